"""Delayed messages and retries: hours of a broker's life, with crashes, in seconds.

See docs/broker/retries.md and docs/storage/delayed-messages.md.
"""

from __future__ import annotations

import pytest

from roquet.broker.config.store import FlushDisk
from roquet.storage.store import Store
from tests.simulation.clocks import set_clocks
from tests.simulation.cluster import Cluster
from tests.simulation.delay_world import (
    MINUTES,
    delay_world,
    live_through,
    serving,
)
from tests.simulation.delays import DelayWorld, check_delivered, check_not_late, check_received
from tests.simulation.nodes import (
    NAME_SERVER_PORT,
    BrokerNode,
)

HOURS = (5, 10, 14, 15, 16, 17)
SETTLE_S_MAX = 2 * 3600.0
LATE_MS_MAX_OF_STEPS = 2000
"""A step back of up to a second repeats the last store time for so long; a second for requests and
pulls.
"""


def wait_until_dealt_with(world: DelayWorld, store: Store) -> None:
    world.sim.run_until(lambda: not world.sender.is_sending, SETTLE_S_MAX)
    end_s = world.sim.now_s + SETTLE_S_MAX
    while left := world.unsettled(store):
        assert world.sim.now_s < end_s, f"nobody dealt with {sorted(left)}"
        world.sim.run_for(5)
    world.sim.run_for(1)
    assert world.sender.acknowledged


def settle(world: DelayWorld, node: BrokerNode) -> int:
    """Until everything was dealt with; how many messages came twice."""
    wait_until_dealt_with(world, serving(node).store)
    return world.check(serving(node).store, node.host.now_ms())


def test_without_a_crash_each_message_comes_once_and_on_time(seed: int) -> None:
    with delay_world(seed, FlushDisk.ASYNC_FLUSH, MINUTES) as (world, node):
        world.sender.send(120, 2)
        assert settle(world, node) == 0
        assert world.sender.acknowledged == world.sender.sent.keys()


@pytest.mark.shares_histories(0, 30)
def test_hours_of_delays_and_retries_take_seconds(seed: int) -> None:
    with delay_world(seed, FlushDisk.ASYNC_FLUSH, HOURS) as (world, node):
        world.sender.send(60, 30)
        live_through(world, node, ("stop", "kill"), 2, 1800)
        settle(world, node)
        assert world.sim.now_s > 3600


def test_no_message_is_lost_or_early_whatever_ends_a_broker_that_syncs(seed: int) -> None:
    with delay_world(seed, FlushDisk.SYNC_FLUSH, MINUTES) as (world, node):
        world.sender.send(200, 1)
        live_through(
            world, node, ("stop", "kill", "crash", "crash at a change to the drive"), 6, 60
        )
        settle(world, node)


def test_a_stopped_broker_delivers_nothing_twice(seed: int) -> None:
    with delay_world(seed, FlushDisk.ASYNC_FLUSH, MINUTES) as (world, node):
        world.sender.send(100, 1)
        live_through(world, node, ("stop",), 4, 60)
        assert settle(world, node) == 0


def test_a_slave_that_takes_over_goes_on_with_what_waits(seed: int) -> None:
    """Whatever the master has delivered by then, to itself alone or to both."""
    with Cluster(seed, "sync-master", "slave") as cluster:
        server = f"{cluster.name_server.host.address}:{NAME_SERVER_PORT}"
        world = DelayWorld(cluster.sim, server, cluster.brokers["sync-master"], (1, 2, 3, 4))
        world.desk.start()
        world.sender.send(150, 0.2)
        cluster.run_for(cluster.chance.uniform(10, 30))
        cluster.end_the_master()
        name = cluster.take_over()
        store = cluster.broker(name).store
        wait_until_dealt_with(world, store)
        check_delivered(store, cluster.host(name).now_ms())
        check_received(world.sender, [world.desk])
        assert not cluster.forced


def test_a_clock_that_steps_by_hours_and_days_moves_nothing_that_waits(seed: int) -> None:
    with delay_world(seed, FlushDisk.ASYNC_FLUSH, MINUTES) as (world, node):
        world.sender.send(150, 1)
        set_clocks(world.sim, [node.host, world.sim.host("10.0.0.1")], 12, 20)
        wait_until_dealt_with(world, serving(node).store)
        check_received(world.sender, [world.desk])
        check_not_late(world.sender, world.desk, LATE_MS_MAX_OF_STEPS)


@pytest.mark.parametrize("seed", [1])
def test_a_crash_does_let_messages_come_twice(seed: int) -> None:
    """Else nothing would be said by finding none after a stop."""
    with delay_world(seed, FlushDisk.ASYNC_FLUSH, MINUTES) as (world, node):
        world.sender.send(200, 0.2)
        live_through(world, node, ("kill",), 6, 30)
        assert settle(world, node) > 0
