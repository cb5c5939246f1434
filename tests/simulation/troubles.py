"""Troubles that a simulated cluster goes through: crashes, cut links, stops, promotions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeAlias

from tests.simulation.cluster import CONSUMER, PRODUCER, Cluster
from tests.simulation.disk import DriveSpeed
from tests.simulation.network import LinkQuality
from tests.simulation.transactions import TransactionWorld

MASTER: Final = "sync-master"
SLAVE: Final = "slave"
OTHER: Final = "slave-2"

ROUNDS: Final = 4
SECONDS_MAX: Final = 30

Trouble: TypeAlias = Callable[[Cluster], None]


def _some_broker(cluster: Cluster) -> str:
    return cluster.chance.choice(list(cluster.brokers))


def kill_somebody(cluster: Cluster) -> None:
    cluster.kill(cluster.chance.choice([*cluster.name_servers, CONSUMER, *cluster.brokers]))


def stop_a_broker(cluster: Cluster) -> None:
    cluster.stop(_some_broker(cluster))


def crash_a_slave(cluster: Cluster) -> None:
    slave = cluster.chance.choice(cluster.some_set().slaves).name
    cluster.lose_power_soon(slave)
    cluster.run_for(1)
    cluster.lose_power_by_now(slave)


def crash_the_master(cluster: Cluster) -> None:
    name = cluster.some_set().master.name
    cluster.lose_power_soon(name)
    cluster.run_for(1)
    cluster.lose_power_by_now(name)


def crash_the_name_server(cluster: Cluster) -> None:
    cluster.crash(cluster.some_name_server(), silently=cluster.chance.random() < 0.5)


def isolate_somebody(cluster: Cluster) -> None:
    cluster.isolate(
        cluster.chance.choice([*cluster.name_servers, CONSUMER, PRODUCER, *cluster.brokers])
    )


def cut_a_link(cluster: Cluster) -> None:
    cluster.cut(_some_broker(cluster), cluster.chance.choice(cluster.names))


def half_open_a_link(cluster: Cluster) -> None:
    cluster.half_open(_some_broker(cluster), cluster.chance.choice(cluster.names))


def partition_a_link(cluster: Cluster) -> None:
    one_way = cluster.chance.random() < 0.5
    cluster.partition(_some_broker(cluster), cluster.chance.choice(cluster.names), one_way)


def slow_the_network(cluster: Cluster) -> None:
    cluster.slow_down(LinkQuality((0.01, 0.3), 0.1, (0.5, 4.0), split_chance=0.9, window=8_192))


def slow_a_drive(cluster: Cluster) -> None:
    cluster.host(_some_broker(cluster)).drive.speed = DriveSpeed((0.1, 3.0))


def set_a_clock(cluster: Cluster) -> None:
    cluster.host(_some_broker(cluster)).clock_ahead_ms += cluster.chance.randint(-60_000, 60_000)


def replace_the_master(cluster: Cluster) -> None:
    """Its process or its host is gone for good; whoever has most of its log takes its place."""
    brokers = cluster.some_set()
    cluster.end_the_master(brokers)
    cluster.run_for_up_to(SECONDS_MAX)
    cluster.take_over(brokers)


def replace_the_master_amid_other_troubles(cluster: Cluster) -> None:
    cluster.chance.choice(NO_DEATHS)(cluster)
    cluster.run_for_up_to(SECONDS_MAX)
    replace_the_master(cluster)


NO_DEATHS: Final[tuple[Trouble, ...]] = (
    cut_a_link,
    half_open_a_link,
    partition_a_link,
    slow_the_network,
    slow_a_drive,
    set_a_clock,
)

TROUBLES: Final[tuple[Trouble, ...]] = (
    kill_somebody,
    stop_a_broker,
    crash_a_slave,
    crash_the_name_server,
    isolate_somebody,
    *NO_DEATHS,
)

REPLACING: Final = (*TROUBLES, *[replace_the_master, replace_the_master_amid_other_troubles] * 4)


def some_brokers(seed: int) -> tuple[str, ...]:
    """One slave, at times two."""
    return (MASTER, SLAVE, OTHER) if seed // 4 % 3 == 0 else (MASTER, SLAVE)


def go_through(cluster: Cluster, troubles: tuple[Trouble, ...]) -> None:
    for _ in range(ROUNDS):
        cluster.send(20)
        cluster.run_for_up_to(0.5)
        trouble = cluster.chance.choice(troubles)
        cluster.sim.note("trouble", trouble.__name__)
        trouble(cluster)
        cluster.send(10)
        cluster.run_for_up_to(SECONDS_MAX)
        cluster.settle()
    cluster.check_everything()


def end_master(world: TransactionWorld, way: str) -> None:
    """For up to a minute."""
    world.sim.run_for(world.chance.uniform(0, 900))
    {"kill": world.master.host.kill, "crash": world.master.host.crash, "stop": world.master.stop}[
        way
    ]()
    world.sim.run_for(world.chance.uniform(0, 60))
    world.start_master()
