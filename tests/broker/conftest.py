"""What the tests of this package share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.broker.harness import World
from tests.broker.served import started
from tests.broker.transacting import ADDRESS, SMALL_LOG, TransactionProducer
from tests.simulation.nodes import BrokerNode
from tests.simulation.simulation import Simulation


@pytest.fixture
def sim() -> Iterator[Simulation]:
    with Simulation("broker") as sim:
        yield sim


@pytest.fixture
def world(sim: Simulation) -> World:
    return World(sim)


@pytest.fixture
def node(sim: Simulation) -> BrokerNode:
    """A whole broker; a module may have another one."""
    return started(sim, ADDRESS, **SMALL_LOG)


@pytest.fixture
def producer(sim: Simulation, node: BrokerNode) -> TransactionProducer:
    return TransactionProducer(sim, node)
