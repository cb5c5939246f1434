"""What the tests of this package share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.broker.harness import World
from tests.simulation.simulation import Simulation


@pytest.fixture
def sim() -> Iterator[Simulation]:
    with Simulation("broker") as sim:
        yield sim


@pytest.fixture
def world(sim: Simulation) -> World:
    return World(sim)
