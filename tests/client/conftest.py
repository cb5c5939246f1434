"""What the tests of this package share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.client.cluster import FakeBroker, FakeCluster
from tests.simulation.simulation import Simulation


@pytest.fixture
def cluster() -> Iterator[FakeCluster]:
    with Simulation("client") as sim:
        yield FakeCluster(sim)


@pytest.fixture
def broker(cluster: FakeCluster) -> FakeBroker:
    return cluster.broker()
