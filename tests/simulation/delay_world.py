"""A simulated cluster that delivers delayed messages."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from roquet.broker.config.store import BrokerRole, FlushDisk
from roquet.broker.server import Broker
from tests.simulation.delays import DelayWorld
from tests.simulation.nodes import (
    NAME_SERVER_PORT,
    BrokerNode,
    NameServerNode,
    drawn_config,
    with_role,
)
from tests.simulation.simulation import Simulation
from tests.simulation.swallowed import SwallowedErrors

ADDRESS = "10.0.0.2"

MINUTES = (0, 1, 2, 3, 4, 5, 6, 7)
"""Levels of up to 3 minutes, and none."""


@contextmanager
def delay_world(
    seed: int,
    flush: FlushDisk,
    levels: tuple[int, ...],
    prepare: Callable[[BrokerNode], None] = lambda _: None,
) -> Iterator[tuple[DelayWorld, BrokerNode]]:
    """A name server, a broker, a sender and a desk, all of which serve.

    :param prepare: called with the broker before it starts.
    """
    with Simulation(seed, events_max=100_000_000) as sim, SwallowedErrors() as swallowed:
        sim.check_always(swallowed.check)
        name_server = NameServerNode(sim.host("10.0.0.1"))
        name_server.start()
        server = f"10.0.0.1:{NAME_SERVER_PORT}"
        config = with_role(
            drawn_config(sim.chance("config"), server), BrokerRole.ASYNC_MASTER, 0, ADDRESS, flush
        )
        node = BrokerNode("master", sim.host(ADDRESS), config)
        prepare(node)
        world = DelayWorld(sim, server, node, levels)
        node.start()
        sim.run_until(lambda: node.broker is not None, 60)
        world.desk.start()
        yield world, node


def serving(node: BrokerNode) -> Broker:
    assert node.broker is not None
    return node.broker


def end_it(world: DelayWorld, node: BrokerNode, chance: random.Random, how: str) -> None:
    match how:
        case "stop":
            world.service.stops()
            node.stop()
        case "kill":
            node.host.kill()
        case "crash":
            node.host.crash(silently=chance.random() < 0.5)
        case "crash at a change to the drive":
            node.host.drive.lose_power_after(chance.randrange(60))
            world.sim.run_for(5)
            if node.host.is_running:
                node.host.crash()


def restart(world: DelayWorld, node: BrokerNode) -> None:
    node.start()
    world.sim.run_until(lambda: node.broker is not None, 60)


def live_through(
    world: DelayWorld, node: BrokerNode, ways: tuple[str, ...], times: int, span_s: float
) -> None:
    """So many ends and starts of the broker, each within so many seconds."""
    chance = world.sim.chance("troubles")
    for _ in range(times):
        world.sim.run_for(chance.uniform(0, span_s))
        end_it(world, node, chance, chance.choice(ways))
        world.sim.run_for(chance.choice((0, 0.5, 5, 60)))
        restart(world, node)
