"""What takes minutes, and is run by `make soak` alone: neither `make test` nor `make check` come
here.
"""

from __future__ import annotations

import random
from pathlib import Path

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("soak")
    group.addoption(
        "--kills", type=int, default=40, metavar="N", help="of one broker (default: %(default)s)"
    )
    group.addoption(
        "--hands",
        type=int,
        default=20,
        metavar="N",
        help="that open one store (default: %(default)s)",
    )
    group.addoption(
        "--minutes",
        type=float,
        default=30,
        metavar="N",
        help="of mixed load (default: %(default)s)",
    )
    group.addoption(
        "--report", default=None, metavar="FILE", help="where what mixed load came to is written"
    )
    group.addoption(
        "--soak-seed",
        type=int,
        default=None,
        metavar="N",
        help="of sizes and moments (default: a new one)",
    )


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """The seed stands in the test's name, so a failure tells it."""
    if "soak_seed" in metafunc.fixturenames:
        given = metafunc.config.getoption("--soak-seed")
        seed = random.randrange(1_000_000) if given is None else given
        metafunc.parametrize("soak_seed", [seed], ids=[f"soak-seed {seed}"])


@pytest.fixture
def seconds(request: pytest.FixtureRequest) -> float:
    return float(request.config.getoption("--minutes")) * 60


@pytest.fixture
def report(request: pytest.FixtureRequest) -> Path | None:
    given = request.config.getoption("--report")
    return None if given is None else Path(given)


@pytest.fixture
def kills(request: pytest.FixtureRequest) -> int:
    return int(request.config.getoption("--kills"))


@pytest.fixture
def hands(request: pytest.FixtureRequest) -> int:
    return int(request.config.getoption("--hands"))
