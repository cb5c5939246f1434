"""roquet's programs and Apache's in turn, in the same run: figures, and the page that shows them
beside each other.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from statistics import median
from typing import NamedTuple, TypeVar

from bench import machine
from bench.options import Side
from bench.programs import compile_roquet

P = TypeVar("P")


class Figure(NamedTuple):
    name: str
    value: float
    is_better_above: bool


def lower(name: str, value: float) -> Figure:
    return Figure(name, value, is_better_above=False)


def higher(name: str, value: float) -> Figure:
    return Figure(name, value, is_better_above=True)


def percentiles(name: str, values: Sequence[float]) -> Iterator[Figure]:
    ordered = sorted(values)
    yield lower(f"{name}: p50, ms", ordered[len(ordered) // 2])
    yield lower(f"{name}: p99, ms", ordered[len(ordered) * 99 // 100])


class Page(NamedTuple):
    """`module` is what `python -m` runs; `notes` say what was measured how, a line each."""

    module: str
    title: str
    notes: Sequence[str]

    def text(self, runs: Sequence[dict[Side, list[Figure]]], heap: str) -> str:
        lines = [
            f"# {self.title}",
            "",
            f"- {datetime.now(UTC).date()}, `python -m {self.module} --rounds {len(runs)}`, {len(runs)} rounds, "
            "medians (least – greatest)",
            f"- {machine.describe()}; all processes on it, over loopback",
            f"- roquet: {machine.describe_python()}; Apache's brokers, 4.9.7: {machine.describe_java()}, heap {heap}",
            *(f"- {note}" for note in self.notes),
            "- ratios are roquet / Apache, of medians",
            "",
            "| figure | roquet | Apache | ratio | better is |",
            "| --- | --- | --- | --- | --- |",
        ]
        for number, figure in enumerate(runs[0][Side.ROQUET]):
            sides = [[run[side][number].value for run in runs] for side in Side]
            ratio = median(sides[0]) / median(sides[1])
            better = "above 1" if figure.is_better_above else "below 1"
            lines.append(
                f"| {figure.name} | {spread(sides[0])} | {spread(sides[1])} | {ratio:.2f} | {better} |"
            )
        return "\n".join(lines) + "\n"


def spread(values: Sequence[float]) -> str:
    return f"**{shown(median(values))}** ({shown(min(values))} – {shown(max(values))})"


def shown(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.2f}"


def run(
    page: Page,
    measured: Sequence[Callable[[Side, P], Iterator[Figure]]],
    place_in: Callable[[Path], P],
    results: Path,
    heap: str,
) -> None:
    """The command: measure each side in turn, round by round, and write the page.

    :param place_in: what the measures need, below a folder that is gone afterwards.
    """
    parser = argparse.ArgumentParser(description=f"{page.title}: roquet and Apache in turn.")
    parser.add_argument("--folder", type=Path, default=Path(tempfile.gettempdir()))
    parser.add_argument("--results", type=Path, default=results)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", choices=[work.__name__ for work in measured])
    options = parser.parse_args()
    compile_roquet()
    runs: list[dict[Side, list[Figure]]] = []
    with tempfile.TemporaryDirectory(prefix="roquet-bench-", dir=options.folder) as folder:
        place = place_in(Path(folder))
        for _ in range(options.rounds):
            runs.append({side: [] for side in Side})
            for work in measured:
                for side in Side if options.only in (None, work.__name__) else ():
                    for figure in work(side, place):
                        runs[-1][side].append(figure)
                        print(
                            f"round {len(runs)}, {side}: {figure.name} {shown(figure.value)}",
                            flush=True,
                        )
    options.results.write_text(page.text(runs, heap))
