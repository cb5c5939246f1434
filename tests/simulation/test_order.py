"""Queues keep their order, whoever of the group comes, goes and dies.

See docs/protocol/consuming.md#orderly-consumption.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from roquet.broker.config.store import BrokerRole, FlushDisk
from tests.simulation.clocks import set_clocks
from tests.simulation.nodes import (
    NAME_SERVER_PORT,
    BrokerNode,
    NameServerNode,
    drawn_config,
    with_role,
)
from tests.simulation.order import Booking, Clerk, Ledger
from tests.simulation.simulation import Simulation
from tests.simulation.swallowed import SwallowedErrors

ADDRESS: Final = "10.0.0.2"
MEMBERS: Final = 3
SETTLE_S_MAX: Final = 600.0


class Office:
    """A name server, a broker, who books, and who deals with it."""

    def __init__(self, sim: Simulation) -> None:
        self.sim = sim
        self.chance = sim.chance("office")
        server = f"10.0.0.1:{NAME_SERVER_PORT}"
        names = NameServerNode(sim.host("10.0.0.1"))
        names.start()
        config = with_role(
            drawn_config(self.chance, server),
            BrokerRole.ASYNC_MASTER,
            0,
            ADDRESS,
            FlushDisk.ASYNC_FLUSH,
        )
        self.broker = BrokerNode("master", sim.host(ADDRESS), config)
        self.ledger = Ledger(sim)
        self.booking = Booking(sim.host("10.0.2.1"), server)
        self.clerks = [
            Clerk(sim.host(f"10.0.3.{number}"), server, self.ledger) for number in range(MEMBERS)
        ]
        sim.check_always(self.ledger.check)
        sim.run_until(lambda: names.is_serving, 60)
        self.start_broker()

    def start_broker(self) -> None:
        self.broker.start()
        self.sim.run_until(lambda: self.broker.broker is not None, 60)
        self.ledger.broker_since_s = self.sim.now_s

    def trouble(self) -> None:
        """Something happens to a member, more often than to the broker."""
        clerk = self.chance.choice(self.clerks)
        match self.chance.choice(("leave", "kill", "restart", "broker")):
            case "leave" if clerk.is_member:
                clerk.leave()
            case "kill" if clerk.is_member:
                clerk.kill()
            case "restart" if clerk.is_member:
                clerk.kill()
                clerk.start()
            case "broker":
                self.broker.host.kill()
                self.sim.run_for(self.chance.choice((0.5, 5, 45)))
                self.start_broker()
            case _:
                self.come(clerk)

    def come(self, clerk: Clerk) -> None:
        if not clerk.is_member:
            if clerk.host.is_running:
                clerk.host.kill()
            clerk.start()

    def settle(self) -> None:
        for clerk in self.clerks:
            self.come(clerk)
        self.sim.run_until(lambda: not self.booking.is_sending, SETTLE_S_MAX)
        self.sim.run_until(lambda: self.booking.acknowledged <= self.ledger.settled, SETTLE_S_MAX)


@contextmanager
def office(seed: int) -> Iterator[Office]:
    with Simulation(seed) as sim, SwallowedErrors() as swallowed:
        sim.check_always(swallowed.check)
        yield Office(sim)


def test_queues_keep_their_order_while_members_come_go_and_die_and_the_broker_restarts(
    seed: int,
) -> None:
    with office(seed) as place:
        place.clerks[0].start()
        place.booking.send(300, pause_s=0.3)
        for _ in range(12):
            place.sim.run_for(place.chance.uniform(0, 20))
            place.trouble()
        place.settle()
        assert place.ledger.retries > 0 < place.ledger.dead


def test_while_the_broker_lives_no_two_members_work_on_one_queue(seed: int) -> None:
    """Members only come and go, so that queues change hands many times."""
    with office(seed) as place:
        place.clerks[0].start()
        place.booking.send(200, pause_s=0.3)
        for _ in range(8):
            place.sim.run_for(place.chance.uniform(0, 20))
            place.come(random.Random(seed).choice(place.clerks[1:]))
            place.sim.run_for(place.chance.uniform(0, 20))
            leaving = [clerk for clerk in place.clerks[1:] if clerk.is_member]
            place.chance.choice(leaving).leave()
        place.settle()
        assert place.ledger.overlaps == 0


def test_wall_clocks_that_are_set_take_no_queue_from_who_works_on_it(seed: int) -> None:
    """Those of servers and members, so that a lock seems to be over at once, or never."""
    with office(seed) as place:
        for clerk in place.clerks:
            clerk.start()
        place.booking.send(150, pause_s=0.6)
        hosts = [
            place.sim.host("10.0.0.1"),
            place.broker.host,
            *(clerk.host for clerk in place.clerks),
        ]
        set_clocks(place.sim, hosts, 10, 15)
        place.settle()
        assert place.ledger.overlaps == 0
