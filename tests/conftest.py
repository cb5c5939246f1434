"""For all tests: how long an example may take says nothing on a machine that others use.

Tests with an argument `seed` run once for each seed of `--seeds`, and for those that once failed.
"""

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
        help="run each test of a simulated cluster or drive in N different ways (default: %(default)s)",
    )
    parser.addoption(
        "--rounds",
        type=int,
        default=3,
        metavar="N",
        help="so often a side of a cluster on a real network is killed (default: %(default)s)",
    )
    parser.addoption(
        "--kill-seed", type=int, default=1, metavar="N", help="of those kills and their moments (default: %(default)s)"
    )


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "also_seeds(*seeds): seeds that once failed; they run whatever --seeds says")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Unless a test names its seeds itself."""
    named = [str(mark.args[0]) for mark in metafunc.definition.iter_markers("parametrize")]
    if "seed" not in metafunc.fixturenames or any("seed" in names.split(",") for names in named):
        return
    once_failed = [seed for mark in metafunc.definition.iter_markers("also_seeds") for seed in mark.args]
    seeds = dict.fromkeys([*once_failed, *range(metafunc.config.getoption("--seeds"))])
    metafunc.parametrize("seed", list(seeds))
