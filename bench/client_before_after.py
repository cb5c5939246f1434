"""Two states of roquet's source as clients of one broker: what a change costs the client per message.

python -m bench.client_before_after --before FOLDER [--after FOLDER] [--loads A,B] [--pairs N]

Both clients of a round run all the time. They work in turn, some tenths of a second each, and
neighbours are compared: so the machine may get faster and slower meanwhile. Two processes of the
same source differ by some hundredths all their life. So each round has fresh ones, and counts as
one figure.
"""

from __future__ import annotations

import argparse
import random
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from statistics import fmean, median
from typing import Final

from bench import machine, procfs
from bench.client import TOPIC, prepared
from bench.client_loads import BATCH, Client, Kind, Load, Way, find_loads
from bench.client_process import Driver
from bench.options import HERE, Side

STORED: Final = 10_000
"""Messages that a consumer finds each time."""
WARM_UP: Final = 3
_SAMPLES: Final = 2000


def cpu_us(load: Load, driver: Driver, seconds: float) -> float:
    """Of the client, per message of one piece of work."""
    before = procfs.exact_cpu_s(driver.pid)
    work = ("count", STORED) if load.kind is Kind.CONSUME else ("seconds", seconds)
    done = driver.do(*work)
    if not done.messages:
        raise RuntimeError(f"nothing got through, {done.failed:,} requests failed")
    return (procfs.exact_cpu_s(driver.pid) - before) * 1e6 / done.messages


def pairs_of(
    load: Load, sources: Sequence[Path], options: argparse.Namespace
) -> list[tuple[float, float]]:
    """CPU per message before and after; which of them begins changes from pair to pair."""
    with ExitStack() as stack:
        ground = prepared(stack, Side.ROQUET, options.folder)
        if load.kind is Kind.CONSUME:
            with ground.driver(Client.ROQUET, Way.BATCH, BATCH) as driver:
                driver.do("count", STORED // BATCH + 1)
                driver.end()
        drivers = [
            stack.enter_context(
                Driver(
                    Client.ROQUET,
                    ground.names,
                    TOPIC,
                    load.way,
                    load.under_way,
                    ground.home / str(side),
                    source,
                )
            )
            for side, source in enumerate(sources)
        ]
        found: list[tuple[float, float]] = []
        for number in range(-WARM_UP, options.pairs):
            order = (0, 1) if number % 2 else (1, 0)
            cost = {side: cpu_us(load, drivers[side], options.window) for side in order}
            if number >= 0:
                found.append((cost[0], cost[1]))
        for driver in drivers:
            driver.end()
        return found


def row(load: str, rounds: Sequence[Sequence[tuple[float, float]]]) -> str:
    """The medians, the mean of the rounds' ratios, and between which values it lies with 95 %."""
    ratios = [median(after / before for before, after in pairs) for pairs in rounds]
    draw = random.Random(1)
    means = sorted(fmean(draw.choices(ratios, k=len(ratios))) for _ in range(_SAMPLES))
    before, after = (
        fmean(median(pair[side] for pair in pairs) for pairs in rounds) for side in (0, 1)
    )
    low, high = means[_SAMPLES // 40], means[-_SAMPLES // 40]
    return (
        f"| `{load}` | {len(rounds)} | {before:.2f} | {after:.2f} "
        f"| **{fmean(ratios):.3f}** ({low:.3f} – {high:.3f}) |"
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description="Two states of the source as clients of one broker.",
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    parser.add_argument(
        "--before", type=Path, required=True, help="the `src` folder of the one state"
    )
    parser.add_argument("--after", type=Path, default=HERE.parent / "src", help="and of the other")
    parser.add_argument("--loads", default="waiting64,consume", metavar="A,B")
    parser.add_argument("--rounds", type=int, default=20, help="each with fresh processes")
    parser.add_argument("--pairs", type=int, default=10, help="of neighbours in a round")
    parser.add_argument("--window", type=float, default=0.3, metavar="S", help="of sends")
    parser.add_argument(
        "--folder", type=Path, default=Path(tempfile.gettempdir()), help="where stores are"
    )
    options = parser.parse_args()
    sources = [options.before.resolve(), options.after.resolve()]
    print(f"{machine.describe()}, {machine.describe_python()}\n")
    print("| load | rounds | CPU, µs/message before | after | after / before |")
    print("|---|---|---|---|---|")
    for load in find_loads(options.loads):
        rounds = [pairs_of(load, sources, options) for _ in range(options.rounds)]
        print(row(load.name, rounds), flush=True)


if __name__ == "__main__":
    main()
