"""Hours of transactions: what is committed comes, what is not never does, and nothing stays open,
whatever crashes.
"""

from __future__ import annotations

from itertools import pairwise

import pytest

from roquet.broker.config.store import FlushDisk
from roquet.protocol.records.message import CHECK_MAX_TIME_TOPIC, HALF_TOPIC
from tests.simulation.clocks import set_clocks
from tests.simulation.cluster import Cluster
from tests.simulation.strange_halves import StrangeHalves
from tests.simulation.transactions import (
    COMMIT,
    CashierNode,
    Database,
    TransactionWorld,
    check_settled,
    delivered,
)
from tests.simulation.troubles import end_master

HOUR_S = 3600.0
TROUBLES = 6
SLACK_S = 3.0
"""For a question on its way, and what stands before it."""


def test_for_hours_all_goes_as_promised(seed: int) -> None:
    """No trouble: each committed message comes exactly once, and each open transaction is asked for
    in time.
    """
    with TransactionWorld(seed) as world:
        for _ in range(2):
            world.work(30, HOUR_S)
            world.sim.run_for(HOUR_S)
        world.settle()
        check_settled(world.broker, world.database, troubles=0)
        check_asked_in_time(world)


def check_asked_in_time(world: TransactionWorld) -> None:
    """Soon after it is old enough, then once a round until it has ended or is given up."""
    database, rules = world.database, world.rules
    period_s, timeout_s = rules.period_ms / 1000, rules.timeout_ms / 1000
    for key, asked in database.asked.items():
        assert timeout_s <= asked[0] - database.stored[key] + 1 <= timeout_s + period_s + SLACK_S
        assert all(
            abs(later - earlier - period_s) <= SLACK_S for earlier, later in pairwise(asked)
        ), asked
        assert len(asked) <= rules.checks_max
    given_up = delivered(world.broker, CHECK_MAX_TIME_TOPIC)
    assert {len(database.asked[key]) for key in given_up} <= {rules.checks_max}
    assert set(given_up) == database.stored.keys() - database.decided.keys()


def test_wall_clocks_that_are_set_by_hours_and_days_end_nothing_and_ask_nobody_sooner_or_later(
    seed: int,
) -> None:
    with TransactionWorld(seed) as world:
        world.work(30, 1200)
        set_clocks(world.sim, [world.master.host, world.name_server.host], 12, 200)
        world.settle()
        check_settled(world.broker, world.database, troubles=0)
        check_asked_in_time(world)


WAYS = ("kill", "crash", "stop")


def test_for_hours_with_a_master_that_ends_again_and_again(seed: int) -> None:
    """In the same way all through a history, the ways in turn from seed to seed."""
    with TransactionWorld(seed) as world:
        for _ in range(TROUBLES):
            world.work(10, 500)
            end_master(world, WAYS[seed % len(WAYS)])
        world.settle()
        check_settled(world.broker, world.database, troubles=TROUBLES)


@pytest.mark.shares_histories(30, 60)
def test_strange_half_messages_take_nobodys_place_and_end_as_others_do(seed: int) -> None:
    troubles = 3
    with TransactionWorld(seed) as world:
        strange = StrangeHalves(world)
        for _ in range(troubles):
            world.work(15, 900)
            strange.send(40, 900)
            end_master(world, world.chance.choice(WAYS))
        world.sim.run_until(lambda: not strange.pending, HOUR_S)
        world.settle()
        check_settled(world.broker, world.database, troubles=troubles)
        strange.check(troubles=troubles)


def test_for_hours_with_cashiers_that_die(seed: int) -> None:
    """The other one is asked about what a dead one left open; what it had begun and not decided is
    given up.
    """
    with TransactionWorld(seed) as world:
        for _ in range(TROUBLES):
            world.work(10, 500)
            world.sim.run_for(world.chance.uniform(0, 600))
            cashier = world.chance.choice(world.cashiers)
            cashier.host.crash()
            world.sim.run_for(world.chance.uniform(0, 100))
            cashier.start()
        world.settle()
        check_settled(world.broker, world.database, troubles=TROUBLES)


def test_the_power_may_fail_at_any_change_to_the_drive(seed: int) -> None:
    with TransactionWorld(seed) as world:
        for _ in range(TROUBLES):
            world.work(6, 70)
            world.sim.run_for(world.chance.uniform(50, 70))
            world.master.host.drive.lose_power_after(world.chance.randrange(40))
            world.sim.run_for(30)
            if world.master.host.is_running:
                world.master.host.crash()
            world.start_master()
        world.settle()
        check_settled(world.broker, world.database, troubles=TROUBLES)


def test_without_sync_flush_a_power_failure_takes_whole_transactions_only(seed: int) -> None:
    """It may take half messages; it takes no end whose half message is left without anybody asking
    about that.
    """
    with TransactionWorld(seed, FlushDisk.ASYNC_FLUSH) as world:
        for _ in range(TROUBLES):
            world.work(10, 500)
            end_master(world, "crash")
        world.settle()
        left = set(delivered(world.broker, HALF_TOPIC)) - set(
            delivered(world.broker, CHECK_MAX_TIME_TOPIC)
        )
        committed, came = world.database.keys(COMMIT), set(delivered(world.broker))
        assert committed & left <= came <= committed


def test_a_slave_that_becomes_the_master_goes_on_asking(seed: int) -> None:
    with Cluster(seed, "sync-master", "slave", flush=FlushDisk.SYNC_FLUSH) as cluster:
        database = Database(seed)
        server = f"{cluster.name_server.host.address}:9876"
        cashiers = [CashierNode(cluster.sim.host(f"10.0.4.{n}"), server, database) for n in (1, 2)]
        for cashier in cashiers:
            cashier.start()
        cluster.run_for(3)
        troubles = 2
        for _ in range(troubles):
            for cashier in cashiers:
                cashier.work(8, 60)
            cluster.run_for_up_to(90)
            cluster.end_the_master()
            cluster.run_for_up_to(20)
            cluster.take_over()
            cluster.run_for_up_to(30)
            cluster.settle()
        broker = cluster.broker(cluster.master.name)
        cluster.sim.run_until(lambda: all(not cashier.pending for cashier in cashiers), HOUR_S)
        cluster.sim.run_until(lambda: not len(broker.parts.halves.open), HOUR_S)
        cluster.run_for(10)
        check_settled(broker, database, troubles=troubles)
