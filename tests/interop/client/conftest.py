"""The two targets of the acceptance suite: Apache's name server and broker of 4.9.7, and ours.

Each runs once, from the first test that needs it on: one worker of pytest has the whole suite.
Every test has topics and groups of its own there.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.interop.apache import require_java
from tests.interop.client.target import READERS, Target, unique
from tests.interop.ground import QUICK, STRICT, Ground

TARGETS = ("apache", "ours")


@pytest.fixture(scope="session")
def apache() -> Iterator[Target]:
    require_java()
    with Ground(is_apache=True) as ground:
        yield Target(ground)


@pytest.fixture(scope="session")
def ours() -> Iterator[Target]:
    with Ground(is_apache=False) as ground:
        yield Target(ground)


@pytest.fixture(scope="session")
def strict_apache() -> Iterator[Target]:
    require_java()
    yield from strict_target(is_apache=True)


@pytest.fixture(scope="session")
def strict_ours() -> Iterator[Target]:
    yield from strict_target(is_apache=False)


def strict_target(*, is_apache: bool) -> Iterator[Target]:
    with Ground(is_apache=is_apache, broker={**QUICK, **STRICT}) as ground:
        target = Target(ground)
        target.make_group(READERS)
        yield target


# The parameter is not that of the fixtures of a session: pytest would end one cluster when a test
# wants the other.
@pytest.fixture(params=TARGETS)
def target(request: pytest.FixtureRequest) -> Target:
    """A cluster on which waiting times are short (`ground.QUICK`)."""
    found: Target = request.getfixturevalue(request.param)
    return found


@pytest.fixture(params=TARGETS)
def strict(request: pytest.FixtureRequest) -> Target:
    """A cluster on which nothing comes to be by itself (`ground.STRICT`)."""
    found: Target = request.getfixturevalue(f"strict_{request.param}")
    return found


@pytest.fixture
def name(request: pytest.FixtureRequest) -> str:
    """Of a topic or a group that does not exist yet."""
    return unique(request.node.originalname)


@pytest.fixture
def topic(target: Target, name: str) -> str:
    """A new topic with one queue."""
    return target.make_topic(name)


@pytest.fixture
def wide(target: Target, name: str) -> str:
    """A new topic with four queues."""
    return target.make_topic(f"wide-{name}", 4)


@pytest.fixture
def group(name: str) -> str:
    """A new group."""
    return f"G-{name}"
