"""For all tests: how long an example may take says nothing on a machine that others use."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, settings

settings.register_profile("roquet", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("roquet")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--seeds",
        type=int,
        default=6,
        metavar="N",
        help="run each test of a simulated cluster in N different ways (default: %(default)s)",
    )
