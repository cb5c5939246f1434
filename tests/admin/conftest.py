"""A scripted cluster for the tests of one module."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.admin.scripted import ScriptedCluster
from tests.simulation.simulation import Simulation


@pytest.fixture
def scripted() -> Iterator[ScriptedCluster]:
    with Simulation(seed=5) as sim:
        yield ScriptedCluster(sim)
