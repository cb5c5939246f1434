"""PURE: what clients came to -> the tables of CLIENT.md."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from statistics import median
from typing import Final, NamedTuple

from bench.client_loads import LOADS, STORED, Client, Kind, Load
from bench.in_turn import shown, spread

BEGIN: Final = "<!-- written by python -m bench.client --write -->"
END: Final = "<!-- end -->"
NAMES: Final = {
    Client.ROQUET: "roquet",
    Client.UVLOOP: "roquet, uvloop",
    Client.JAVA: "Java",
    Client.CPP: "C++ in Python",
    Client.GO: "Go",
}
OURS: Final = (Client.ROQUET, Client.UVLOOP)
JAVA_CPU_MAX: Final = 2.0
COLD_RATIO_MIN: Final = 5.0
FIRST_MS_MAX: Final = 150.0
MEMORY_MB_MAX: Final = 40.0
NONE: Final = "–"


class Reading(NamedTuple):
    """What one process of a client came to."""

    load: str
    client: Client
    round: int
    rate: float
    """Messages per second."""
    cpu_us: float
    """Of the client, per message."""
    whole_s: float
    """From the start of the process to its end."""
    from_start_ms: float
    """From the start of the process to its first acknowledged message."""
    first_ms: float
    """The same from behind its imports."""
    memory_mb: float
    others: float
    """The share of all cores that neither client nor broker used."""
    failed: int


Value = Callable[[Reading], float]


class Column(NamedTuple):
    title: str
    value: Value


RATE: Final = Column("messages/s", lambda reading: reading.rate)
CPU: Final = Column("CPU, µs/message", lambda reading: reading.cpu_us)
WHOLE: Final = Column("whole process, s", lambda reading: reading.whole_s)
FROM_START: Final = Column("from the process's start, ms", lambda reading: reading.from_start_ms)
FIRST: Final = Column("from its imports, ms", lambda reading: reading.first_ms)
MEMORY: Final = Column("memory, MB", lambda reading: reading.memory_mb)
COLUMNS: Final = {
    Kind.SEND: (RATE, CPU, MEMORY),
    Kind.CONSUME: (RATE, CPU, MEMORY),
    Kind.FIRST: (FIRST, FROM_START),
    Kind.COLD: (WHOLE, CPU, MEMORY),
}


class Readings:
    """All of a run."""

    def __init__(self, readings: Sequence[Reading]) -> None:
        self._readings = readings
        self._clients = {reading.client for reading in readings}

    def values(self, load: Load, client: Client, column: Column) -> list[float]:
        return [
            column.value(reading)
            for reading in self._readings
            if (reading.load, reading.client) == (load.name, client)
        ]

    def ratios(self, load: Load, client: Client, other: Client, column: Column) -> list[float]:
        """Of the two clients, round by round."""
        by_round = [
            {
                reading.round: column.value(reading)
                for reading in self._readings
                if (reading.load, reading.client) == (load.name, one)
            }
            for one in (client, other)
        ]
        return [value / by_round[1][n] for n, value in by_round[0].items() if by_round[1].get(n)]

    def tables(self) -> Iterator[str]:
        for title, kinds in (
            ("Send and consume", (Kind.SEND, Kind.CONSUME)),
            ("The first message of a process", (Kind.FIRST,)),
            (f"A script that starts, sends {STORED:,} messages and ends", (Kind.COLD,)),
        ):
            loads = [load for load in LOADS if load.kind in kinds and self._has(load)]
            if loads:
                yield f"## {title}"
                yield self._table(loads, COLUMNS[kinds[0]])
        goals = list(self._goals())
        if goals:
            yield "## Goals"
            head = ["goal", *(NAMES[client] for client in OURS)]
            yield "\n".join(_row(cells) for cells in (head, ["---"] * len(head), *goals))

    def _has(self, load: Load) -> bool:
        return any(reading.load == load.name for reading in self._readings)

    def _table(self, loads: Sequence[Load], columns: Sequence[Column]) -> str:
        heads = [cell for column in columns for cell in (column.title, "× Java")]
        lines = [["load", "client", *heads]]
        lines.append(["---"] * len(lines[0]))
        for load in loads:
            title = f"{load.title} (`{load.name}`)"
            for client in (client for client in load.clients if client in self._clients):
                cells = [
                    cell
                    for column in columns
                    for cell in (
                        _spread(self.values(load, client, column)),
                        NONE
                        if client is Client.JAVA
                        else _spread(self.ratios(load, client, Client.JAVA, column)),
                    )
                ]
                lines.append([title, NAMES[client], *cells])
                title = ""
        return "\n".join(_row(cells) for cells in lines)

    def _goals(self) -> Iterator[list[str]]:
        for load in LOADS:
            if load.kind in (Kind.SEND, Kind.CONSUME):
                yield from self._against(
                    load, CPU, Client.JAVA, "at most", JAVA_CPU_MAX, is_better_below=True
                )
                yield from self._against(load, CPU, Client.CPP, "below", 1, is_better_below=True)
                yield from self._against(load, RATE, Client.CPP, "above", 1, is_better_below=False)
            elif load.kind is Kind.COLD:
                most = 1 / COLD_RATIO_MIN
                yield from self._against(
                    load, WHOLE, Client.JAVA, "at most", most, is_better_below=True
                )
                yield from self._below(load, MEMORY, MEMORY_MB_MAX)
            else:
                yield from self._below(load, FIRST, FIRST_MS_MAX)

    def _against(
        self,
        load: Load,
        column: Column,
        other: Client,
        word: str,
        limit: float,
        *,
        is_better_below: bool,
    ) -> Iterator[list[str]]:
        """A row, if both have been measured."""
        found = [self.ratios(load, client, other, column) for client in OURS]
        if any(found):
            goal = f"`{load.name}`: {column.title} {word} {limit:g} × of {NAMES[other]}"
            yield [goal, *(_judged(values, limit, is_better_below) for values in found)]

    def _below(self, load: Load, column: Column, limit: float) -> Iterator[list[str]]:
        found = [self.values(load, client, column) for client in OURS]
        if any(found):
            goal = f"`{load.name}`: {column.title} below {limit:g}"
            yield [goal, *(_judged(values, limit, is_better_below=True) for values in found)]


def text(setting: Sequence[str], readings: Sequence[Reading], failures: Sequence[str]) -> str:
    """What stands between the marks of the page."""
    rounds = max((reading.round for reading in readings), default=0)
    short = [load.name for load in LOADS if load.kind is Kind.FIRST]
    others = [reading.others for reading in readings if reading.load not in short] or [0.0]
    refused = [
        f"`{reading.load}` {NAMES[reading.client]} round {reading.round}: {reading.failed:,}"
        for reading in readings
        if reading.failed
    ]
    notes = [
        *setting,
        f"rounds: {rounds}; medians (least – greatest); `× Java` is the figure / Java's of the same round",
        f"other processes and the kernel's own work took {median(others):.0%} of all cores in the median measurement,"
        f" {max(others):.0%} in the worst",
        f"sends that failed: {'; '.join(refused) or 'none'}",
        *(f"not measured: {failure}" for failure in failures),
    ]
    parts = ["\n".join(f"- {note}" for note in notes), *Readings(readings).tables()]
    return "\n\n".join(parts)


def replaced(page: str, new: str) -> str:
    """The page with new text between its marks."""
    before, begin, rest = page.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not (begin and end):
        raise ValueError(f"the page needs the lines {BEGIN} and {END}")
    return f"{before}{begin}\n\n{new}\n\n{end}{after}"


def _judged(values: Sequence[float], limit: float, is_better_below: bool) -> str:
    if not values:
        return NONE
    found = median(values)
    is_met = found <= limit if is_better_below else found >= limit
    return f"{shown(found)}, {'met' if is_met else '**not met**'}"


def _spread(values: Sequence[float]) -> str:
    return spread(values) if values else NONE


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"
