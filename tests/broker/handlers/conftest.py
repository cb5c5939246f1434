"""What tests of requests that brokers pass on to clients share."""

from __future__ import annotations

import pytest

from tests.broker.members import Administrator, Consumer
from tests.simulation.nodes import BrokerNode
from tests.simulation.simulation import Simulation


@pytest.fixture
def admin(sim: Simulation, node: BrokerNode) -> Administrator:
    return Administrator(sim, sim.host("10.0.0.99"), node.address)


@pytest.fixture
def consumer(sim: Simulation, node: BrokerNode) -> Consumer:
    return Consumer(sim, node)
