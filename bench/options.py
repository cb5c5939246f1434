"""What a measurement is told."""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Final

from bench.loads import DEFAULT, LOADS, Load, find_loads
from bench.reports import COVERED_S

HERE: Final = Path(__file__).parent
BACKLOG_RATE: Final = 540_000
"""Messages per second that a backlog lasts for, unless its size is given."""


class Side(StrEnum):
    ROQUET = "roquet"
    APACHE = "apache"


class Profiler(StrEnum):
    SAMPLE = "sample"
    CPROFILE = "cprofile"
    PERF = "perf"


@dataclass(frozen=True, slots=True)
class Options:
    loads: tuple[Load, ...]
    sides: tuple[Side, ...]
    rounds: int
    warmup_s: float
    window_s: float
    windows: int
    heap: str
    backlog: int
    profiler: Profiler | None
    folder: Path
    results: Path


def read_options(arguments: Sequence[str]) -> Options:
    """What the command line says; it ends the program if that makes no sense."""
    parser = _parser()
    given = parser.parse_args(arguments)
    try:
        loads = tuple(find_loads(given.loads))
    except ValueError as error:
        parser.error(str(error))
    if given.window <= COVERED_S:
        parser.error(f"a window is longer than the {COVERED_S:.0f} s that one report covers")
    seconds = given.warmup + given.windows * given.window
    profiler = None if given.profile is None else Profiler(given.profile)
    sides = (Side(given.only),) if given.only else tuple(Side)
    return Options(
        loads,
        (Side.ROQUET,) if profiler else sides,
        1 if profiler else given.rounds,
        given.warmup,
        given.window,
        given.windows,
        given.heap,
        given.backlog or int(seconds * BACKLOG_RATE),
        profiler,
        given.folder,
        given.results,
    )


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m bench",
        description="Measure roquet's broker and Apache's in turn, with Apache's benchmark classes.",
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    known = ", ".join(load.name for load in LOADS)
    parser.add_argument(
        "--loads",
        default=DEFAULT,
        metavar="A,B",
        help=f"of {known}; -json behind one: JSON headers",
    )
    parser.add_argument("--only", choices=[*Side], help="leave the other broker out")
    parser.add_argument(
        "--rounds", type=int, default=3, help="so often everything, each time with fresh processes"
    )
    parser.add_argument(
        "--warmup",
        type=float,
        default=35,
        metavar="S",
        help="from the start of the benchmark class",
    )
    parser.add_argument(
        "--window", type=float, default=10, metavar="S", help="a figure covers so much time"
    )
    parser.add_argument(
        "--windows", type=int, default=3, help="figures in a round, one after the other"
    )
    parser.add_argument("--heap", default="1g", help="of Apache's broker")
    parser.add_argument(
        "--backlog",
        type=int,
        metavar="N",
        help=f"messages to drain; enough for {BACKLOG_RATE:,} a second without",
    )
    parser.add_argument(
        "--profile",
        nargs="?",
        choices=[*Profiler],
        const=Profiler.SAMPLE.value,
        help="one round of roquet's broker under a profiler, and no table",
    )
    parser.add_argument(
        "--folder",
        type=Path,
        default=Path(tempfile.gettempdir()),
        help="where stores are while it runs",
    )
    parser.add_argument(
        "--results", type=Path, default=HERE / "RESULTS.md", help="where the table goes"
    )
    return parser
