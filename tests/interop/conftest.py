"""Clients and brokers that the tests of a module use one after the other."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.interop.apache import JavaClients, Version, require_java
from tests.interop.ground import Ground
from tests.interop.scene import Scene
from tests.interop.stage import Stage

pytest.register_assert_rewrite("tests.interop.scenarios", "tests.interop.store_rows")


@pytest.fixture(scope="module")
def clients() -> Iterator[JavaClients]:
    require_java()
    with JavaClients() as running:
        yield running


@pytest.fixture(scope="module")
def scene(request: pytest.FixtureRequest) -> Iterator[Scene]:
    """Apache's broker, with Java's clients of its release."""
    require_java()
    title = request.path.stem.removeprefix("test_")
    with (
        Ground(is_apache=True) as ground,
        Stage(Version.V4) as stage,
        Scene(ground, stage, title) as scene,
    ):
        yield scene
