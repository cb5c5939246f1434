"""Name servers, masters and slaves, and applications that send and consume: what a test does to
them, and what must hold.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from roquet.broker.config.store import FlushDisk
from roquet.protocol.headers.admin import CreateTopicHeader
from roquet.protocol.records.message import DEAD_LETTER_PREFIX, KEYS
from roquet.protocol.records.record import decode
from roquet.protocol.remoting.codes import RequestCode
from roquet.protocol.remoting.command import Command
from tests.simulation.books import (
    ACCOUNTS,
    BILLING,
    LEDGER,
    ORDERS,
    SCREENS,
    Books,
    HandlerCancelled,
    HandlerFailed,
)
from tests.simulation.buyers import Buyer
from tests.simulation.disk import DriveSpeed
from tests.simulation.hosts import START_S_MAX, ClusterHosts
from tests.simulation.loop import NotReachedError
from tests.simulation.network import LinkQuality
from tests.simulation.nodes import QUEUES
from tests.simulation.quiet import ALL_TIMES, KEY_HITS_MAX
from tests.simulation.roles import OPERATOR_ADDRESS, ask
from tests.simulation.sellers import Seller
from tests.simulation.simulation import Host
from tests.simulation.swallowed import SwallowedErrors
from tests.storage.records import found_by_key

GROUPS: Final = (BILLING, LEDGER, SCREENS)
BUYERS: Final = 4
SELLERS: Final = 2
ALL_SEE: Final = 2
"""So many of the buyers are members of the broadcasting group, in all their lives."""
SETTLE_S_MAX: Final = 1800.0
CLOCK_STEPS_MS: Final = (-3_600_000, -60_000, -1_000, 1_000, 60_000, 3_600_000)
FAULTS: Final = (
    "kill a broker", "kill a master", "kill a name server", "lose power", "isolate", "partition",
    "cut", "half-open", "slow network", "slow drive", "clock",
    "buyer leaves", "buyer leaves", "buyer dies", "buyer comes", "seller leaves", "seller dies",
)  # fmt: skip


class Market(ClusterHosts):
    """Two masters with a slave each, two name servers, sellers and buyers.

    Invariant: no exception was swallowed by a log, and no call of a client takes longer than it
    may.
    """

    def __init__(self, seed: int, folder: Path) -> None:
        flush = FlushDisk.SYNC_FLUSH if seed % 2 else FlushDisk.ASYNC_FLUSH
        master = "sync-master" if seed // 2 % 2 else "async-master"
        super().__init__(seed, (master, "slave"), flush, consumers=0, sets=2, name_servers=2)
        self._may_lose_power = flush is FlushDisk.SYNC_FLUSH
        self.books = Books(self.sim)
        server = self.brokers[master].config.namesrv_addr
        self.sellers = [
            Seller(self.sim.host(f"10.0.2.{number}"), server, self.books)
            for number in range(1, SELLERS + 1)
        ]
        self.buyers = [
            Buyer(self.sim.host(f"10.0.3.{number}"), server, self.books, folder)
            for number in range(1, BUYERS + 1)
        ]

    def open(self) -> None:
        """Start the servers, and make the topics."""
        for name in (*self.name_servers, *self.brokers):
            self.restart(name)
        operator = self.sim.host(OPERATOR_ADDRESS)
        for each in self.sets:
            for topic in (ORDERS, ACCOUNTS):
                header = CreateTopicHeader(topic, QUEUES, QUEUES)
                request = Command(RequestCode.UPDATE_AND_CREATE_TOPIC, header.write())
                operator.call(partial(ask, each.master.address, request))
        operator.kill()
        self.sim.run_until(lambda: all(map(self._has_topics, self.brokers)), START_S_MAX)

    def _has_topics(self, name: str) -> bool:
        return {ORDERS, ACCOUNTS} <= self.broker(name).parts.tables.topics.topics.keys()

    # applications

    def come(self, buyer: Buyer) -> None:
        """It becomes a member of some groups."""
        number = self.buyers.index(buyer)
        groups = [group for group in (BILLING, LEDGER) if self.chance.random() < 0.6]
        if number < ALL_SEE:
            groups.append(SCREENS)
        buyer.start(*groups or (BILLING,))

    def send(self, messages: int) -> None:
        """Those that are not sending begin to."""
        for seller in self.sellers:
            if not seller.is_sending:
                if seller.host.is_running:
                    seller.host.kill()
                seller.start(messages)

    # faults

    def trouble(self) -> None:
        fault = self.chance.choice(FAULTS)
        self.sim.note("trouble", fault)
        buyer, seller = self.chance.choice(self.buyers), self.chance.choice(self.sellers)
        broker = self.chance.choice(list(self.brokers))
        master = self.chance.choice(self.sets).master.name
        match fault:
            case "kill a broker":
                self._kill_for_a_while(broker)
            case "kill a master":
                self._kill_for_a_while(master)
            case "kill a name server":
                self._kill_for_a_while(self.some_name_server())
            case "lose power" if self._may_lose_power:
                self._kill_for_a_while(master, loses_power=True)
            case "isolate":
                self.sim.network.isolate(self._any_host().address)
            case "partition":
                one, other = self._any_host(), self._any_host()
                self.sim.network.partition(one.address, other.address, self.chance.random() < 0.5)
            case "cut":
                self.sim.network.cut(self._any_host().address, self._any_host().address)
            case "half-open":
                self.sim.network.half_open(self._any_host().address, self._any_host().address)
            case "slow network":
                self.slow_down(LinkQuality((0.01, 0.3), 0.1, (0.5, 4.0), split_chance=0.9))
            case "slow drive":
                self.host(broker).drive.speed = DriveSpeed((0.1, 3.0))
            case "clock":
                self._any_host().clock_ahead_ms += self.chance.choice(CLOCK_STEPS_MS)
            case "buyer leaves" if buyer.groups:
                buyer.leave()
            case "buyer dies" if buyer.groups:
                buyer.kill()
            case "buyer comes" if not buyer.groups:
                self.come(buyer)
            case "seller leaves" if seller.is_sending:
                seller.leave()
            case "seller dies" if seller.is_sending:
                seller.kill()

    def _any_host(self) -> Host:
        applications = [seller.host for seller in self.sellers]
        applications += [buyer.host for buyer in self.buyers]
        servers = [self.host(name) for name in (*self.name_servers, *self.brokers)]
        return self.chance.choice(servers + applications)

    def _kill_for_a_while(self, name: str, *, loses_power: bool = False) -> None:
        if self.host(name).is_running:
            if loses_power:
                self.crash(name, silently=self.chance.random() < 0.5)
            else:
                self.kill(name)
        self.sim.run_for(self.chance.choice((0.2, 5, 40)))
        if not self.host(name).is_running:
            self.start(name)
        self.books.ledger.broker_since_s = self.sim.now_s + START_S_MAX

    # calm

    def settle(self) -> None:
        """Heal everything, and wait until all that was acknowledged is handled."""
        self.heal()
        self.books.is_calm = True
        for name in (*self.name_servers, *self.brokers):
            if not self.host(name).is_running:
                self.start(name)
        for name in (*self.name_servers, *self.brokers):
            self.wait_until_serving(name)
        self.sim.run_until(
            lambda: not any(seller.is_sending for seller in self.sellers), SETTLE_S_MAX
        )
        self._wait_for(self.buyers)
        last = self.buyers[-1]
        if last.groups and {*last.groups} != {BILLING, LEDGER}:
            last.kill()  # so that each group has a member, whatever the others were drawn to be
        for number, buyer in enumerate(self.buyers):
            if not buyer.groups:
                buyer.start(*(GROUPS if number < ALL_SEE else (BILLING, LEDGER)))
        all_see = [buyer.host.address for buyer in self.buyers[:ALL_SEE]]
        try:
            self.sim.run_until(lambda: not self.books.missing(all_see), SETTLE_S_MAX)
        except NotReachedError as error:
            raise AssertionError(f"not handled: {self.books.missing(all_see)}") from error

    def _wait_for(self, leaving: list[Buyer]) -> None:
        """Those that are leaving have left; each group still has a member that stays."""
        self.sim.run_until(lambda: not any(buyer.is_leaving for buyer in leaving), SETTLE_S_MAX)

    def close(self) -> None:
        """All applications close what they have; what was given up is among the dead letters."""
        for buyer in self.buyers:
            buyer.leave()
        self.sim.run_until(lambda: not any(buyer.groups for buyer in self.buyers), SETTLE_S_MAX)
        assert not self.books.operations
        lost = [key for key in sorted(self.books.dead[BILLING]) if not self._is_dead_letter(key)]
        assert not lost, f"given up, but not among the dead letters: {lost}"

    def _is_dead_letter(self, key: str) -> bool:
        topic = f"{DEAD_LETTER_PREFIX}{BILLING}"
        return any(
            decode(record).properties.get(KEYS) == key
            for each in self.sets
            for record in found_by_key(
                self.broker(each.master.name).store, topic, key, KEY_HITS_MAX, *ALL_TIMES
            ).records
        )


@contextmanager
def market(seed: int) -> Iterator[Market]:
    """A market whose servers are up and whose buyers have come."""
    with (
        TemporaryDirectory() as folder,
        SwallowedErrors(HandlerFailed, HandlerCancelled) as swallowed,
    ):
        place = Market(seed, Path(folder))
        with place.sim:
            place.sim.check_always(swallowed.check)
            place.sim.check_always(place.books.ledger.check)
            place.open()
            for buyer in place.buyers:
                place.come(buyer)
            yield place
