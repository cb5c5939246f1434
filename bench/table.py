"""PURE: runs -> a page of Markdown tables."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from statistics import median
from typing import Final

from bench.loads import Load
from bench.measure import Run
from bench.options import Side
from bench.readings import Window

MEBI: Final = 1024 * 1024
NONE: Final = "–"

Cell = Callable[[float], str]


def page(
    loads: Sequence[Load], runs: Sequence[Run], setting: Sequence[str], failures: Sequence[str]
) -> str:
    """All that was measured; a load without a run yet is left out.

    :param failures: the runs that gave no figures, and why.
    """
    measured = [load for load in loads if any(run.load == load.name for run in runs)]
    parts = [
        "# roquet's broker and Apache's 4.9.7, side by side",
        "\n".join(f"- {line}" for line in setting),
        "## Throughput and CPU",
        "Median (least – greatest) over all windows of all rounds. Ratios are roquet / Apache, of medians: above 1 is"
        " better for messages per second, below 1 for CPU and latency.",
        _table(
            ("load", "figure", "roquet", "Apache", "ratio"),
            [row for load in measured for row in _load_rows(load, runs)],
        ),
        "## Memory at the end of a round, MiB",
        "All of the process, and in brackets what are no pages of the store's files; medians.",
        _table(
            ("load", "roquet", "Apache", "ratio"), [_memory_row(load, runs) for load in measured]
        ),
        "## From a process's start to its first acknowledged message, s",
        "Empty store; the client runs before the broker does. Median (least – greatest) over all runs.",
        _table(
            ("roquet", "Apache", "ratio"),
            [_pair([run.start_s for run in _of(runs, side)] for side in Side)],
        ),
        "## How far to trust this",
        *_doubts(runs, failures),
        "## More",
        "[The store by itself](STORE.md), [replication](HA.md), [delayed messages](DELAY.md),\n"
        "[many connections](CROWD.md), [half an hour of mixed load](SOAK.md), [Spark's connectors](CONNECTORS.md).",
    ]
    return "\n\n".join(parts) + "\n"


def _load_rows(load: Load, runs: Sequence[Run]) -> list[list[str]]:
    windows = [[window for run in _of(runs, side, load) for window in run.windows] for side in Side]
    figures: list[tuple[str, Callable[[Window], float | None], Cell]] = [
        ("messages/s", lambda window: window.messages_per_s, lambda value: f"{value:,.0f}"),
        (
            "broker CPU, µs/message",
            lambda window: window.broker_cpu_us,
            lambda value: f"{value:.1f}",
        ),
        (
            "client CPU, µs/message",
            lambda window: window.client_cpu_us,
            lambda value: f"{value:.1f}",
        ),
        ("mean latency, ms", lambda window: window.average_ms, lambda value: f"{value:.2f}"),
    ]
    rows: list[list[str]] = []
    for name, figure, cell in figures:
        sides = [
            [value for window in side if (value := figure(window)) is not None] for side in windows
        ]
        if any(sides):
            rows.append(
                [f"{load.title} (`{load.name}`)" if not rows else "", name, *_pair(sides, cell)]
            )
    return rows


def _memory_row(load: Load, runs: Sequence[Run]) -> list[str]:
    cells, residents = [], []
    for side in Side:
        memories = [run.memory for run in _of(runs, side, load)]
        resident = [memory.resident / MEBI for memory in memories]
        residents.append(resident)
        anonymous = [memory.anonymous / MEBI for memory in memories]
        cells.append(f"{median(resident):,.0f} ({median(anonymous):,.0f})" if memories else NONE)
    return [f"`{load.name}`", *cells, _ratio(residents)]


def _pair(sides: Iterable[Sequence[float]], cell: Cell = lambda value: f"{value:.2f}") -> list[str]:
    """roquet's cell, Apache's, and their ratio."""
    both = list(sides)
    return [*(_spread(side, cell) for side in both), _ratio(both)]


def _spread(values: Sequence[float], cell: Cell) -> str:
    if not values:
        return NONE
    if len(values) == 1:
        return cell(values[0])
    return f"**{cell(median(values))}** ({cell(min(values))} – {cell(max(values))})"


def _ratio(sides: Sequence[Sequence[float]]) -> str:
    ours, theirs = sides
    if not ours or not theirs or not (base := median(theirs)):
        return NONE
    return f"{median(ours) / base:.2f}"


def _of(runs: Iterable[Run], side: Side, load: Load | None = None) -> list[Run]:
    return [run for run in runs if run.side is side and (load is None or run.load == load.name)]


def _doubts(runs: Sequence[Run], failures: Sequence[str]) -> list[str]:
    others = [window.others for run in runs for window in run.windows]
    lines = [
        "Other processes and the kernel's own work took"
        f" {median(others):.0%} of all cores in the median window, {max(others):.0%} in the worst."
    ]
    failed = [
        f"`{run.load}` {run.side} round {run.round}: {window.failed:,}"
        for run in runs
        for window in run.windows
        if window.failed
    ]
    lines.append(f"Requests that failed within a window: {'; '.join(failed) or 'none'}.")
    lines += [f"Not measured: {failure}" for failure in failures]
    return lines


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)
