"""For all tests: how long an example may take says nothing on a machine that others use.

Tests with an argument `seed` run once for each seed of `--seeds`, and for those that once failed.
Those marked `shares_histories` have the seeds of `--histories` among them, so that each seed is one
long history. `--part 1/2` runs every second one of all that is asked for, so that two processes can
share the work.

Several workers take a file at a time; all files whose tests share the Spark session go to one of
them, and so does the client's acceptance suite.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any, Final

import pytest
from hypothesis import HealthCheck, Phase, settings
from xdist.scheduler import LoadFileScheduling

ACCEPTANCE: Final = "tests/interop/client/"

settings.register_profile("roquet", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile(
    "unshrunk", settings.get_profile("roquet"), phases=(Phase.explicit, Phase.generate)
)
settings.load_profile("roquet")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--seeds",
        type=int,
        default=4,
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
        "--kill-seed",
        type=int,
        default=1,
        metavar="N",
        help="of those kills and their moments (default: %(default)s)",
    )
    parser.addoption(
        "--histories",
        type=int,
        default=60,
        metavar="N",
        help="let a simulated cluster go through N different series of troubles (default: %(default)s)",
    )
    parser.addoption(
        "--baseline",
        action="store_true",
        help="let the interop scenarios judge Apache's own broker instead of ours",
    )
    parser.addoption(
        "--fuzz-seconds",
        type=float,
        default=24,
        metavar="N",
        help="of hostile requests (default: %(default)s)",
    )
    parser.addoption(
        "--fuzz-seed",
        type=int,
        default=1,
        metavar="N",
        help="of their first round (default: %(default)s)",
    )
    parser.addoption(
        "--answered-within-ms",
        type=float,
        metavar="N",
        help="99 in 100 questions of others must be answered within N ms meanwhile (default: no bound)",
    )
    parser.addoption(
        "--part", default="1/1", metavar="I/N", help="run only every Nth test, from the Ith on"
    )


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers", "also_seeds(*seeds): seeds that once failed; they run whatever --seeds says"
    )
    config.addinivalue_line(
        "markers",
        "shares_histories(part, of): runs each seed of --histories whose rest by `of` is `part`",
    )


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Unless a test names its seeds itself."""
    named = [str(mark.args[0]) for mark in metafunc.definition.iter_markers("parametrize")]
    if "seed" not in metafunc.fixturenames or any("seed" in names.split(",") for names in named):
        return
    once_failed = [
        seed for mark in metafunc.definition.iter_markers("also_seeds") for seed in mark.args
    ]
    share = metafunc.definition.get_closest_marker("shares_histories")
    if share is None:
        due = range(metafunc.config.getoption("--seeds"))
    else:
        due = range(share.args[0], metafunc.config.getoption("--histories"), share.args[1])
    metafunc.parametrize("seed", list(dict.fromkeys([*once_failed, *due])))


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    part, of = map(int, config.getoption("--part").split("/"))
    config.hook.pytest_deselected(
        items=[item for number, item in enumerate(items) if number % of != part - 1]
    )
    items[:] = items[part - 1 :: of]


class SharedPrograms(LoadFileScheduling):  # type: ignore[misc]  # pytest-xdist has no types
    """Files that share programs which are slow to start go to one worker.

    A Spark that has just started takes several times the CPU of one that runs for a while. Of the
    client's acceptance suite each worker would start four clusters.
    """

    def _split_scope(self, nodeid: str) -> str:
        file: str = super()._split_scope(nodeid)
        if file.startswith(ACCEPTANCE):
            return ACCEPTANCE
        return "spark" if _asks_for_spark(file) else file


@cache
def _asks_for_spark(file: str) -> bool:
    text = (Path(__file__).parent.parent / file).read_text(encoding="utf-8")
    return "spark: SparkSession" in text or 'getfixturevalue("spark")' in text


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> SharedPrograms:
    return SharedPrograms(config, log)
