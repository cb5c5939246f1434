"""What the tests of this package share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.client.cluster import FakeBroker, FakeCluster
from tests.client.served import Served
from tests.simulation.simulation import Simulation


@pytest.fixture
def sim() -> Iterator[Simulation]:
    with Simulation("client") as sim:
        yield sim


@pytest.fixture
def cluster(sim: Simulation) -> FakeCluster:
    return FakeCluster(sim)


@pytest.fixture
def served(sim: Simulation) -> Served:
    return Served(sim)


@pytest.fixture
def broker(cluster: FakeCluster) -> FakeBroker:
    return cluster.broker()
