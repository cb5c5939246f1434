"""One topic out of a store of twenty, with the queues asked where its messages are, and without.

python -m bench.one_topic [--folder FOLDER] [--messages N] [--rounds N] [--group N]
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from typing import Final

from bench import machine
from bench.store_files import fill
from roquet.spark._arrow.schema import ARROW_SCHEMA
from roquet.spark._options.store import StoreOptions
from roquet.spark._storefiles.plan import plan_parts
from roquet.spark._storefiles.read import read

TOPICS: Final = [f"topic-{number:02}" for number in range(20)]
TOPIC: Final = TOPICS[7]
QUEUES: Final = 4
BODY_SIZE: Final = 1024
WAYS: Final = {"all of the log": False, "by the queues": True}


@dataclass(frozen=True)
class Read:
    """Seconds to plan and to read, seconds of CPU, bytes asked of the system, and bytes that came
    from the drive.
    """

    plan_s: float
    read_s: float
    cpu_s: float
    asked: int
    from_drive: int


def forget(folder: Path) -> None:
    """Have the system drop what it has of the files in memory."""
    os.sync()
    for path in folder.rglob("0*"):
        if path.is_file():
            with path.open("rb") as file:
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def counted() -> tuple[int, int]:
    """Bytes that this process has asked for so far, and those that came from the drive."""
    lines = dict(line.split(": ") for line in Path("/proc/self/io").read_text().splitlines())
    return int(lines["rchar"]), int(lines["read_bytes"])


def measure(folder: Path, *, by_queues: bool, is_cold: bool, expected: int) -> Read:
    if is_cold:
        forget(folder)
    options = StoreOptions.of({"path": str(folder), "subscribe": TOPIC})
    before, begun, cpu = counted(), time.perf_counter(), time.process_time()
    planned = (
        plan_parts(options)
        if by_queues
        else [replace(part, queues=None) for part in plan_parts(options)]
    )
    assert not by_queues or all(part.queues for part in planned), (
        "the planner does not ask the queues"
    )
    read_from = time.perf_counter()
    count = sum(batch.num_rows for part in planned for batch in read(part, options, ARROW_SCHEMA))
    assert count == expected, f"{count} messages, {expected} were written"
    asked, from_drive = (now - then for now, then in zip(counted(), before, strict=True))
    end = time.perf_counter()
    return Read(read_from - begun, end - read_from, time.process_time() - cpu, asked, from_drive)


def measured(folder: Path, count: int, group: int, rounds: int) -> Iterator[tuple[str, list[Read]]]:
    """Both ways in turn, from memory and from the drive."""
    expected = sum(
        group for number in range(count // group) if TOPICS[number % len(TOPICS)] == TOPIC
    )
    fill(folder, count // group * group, BODY_SIZE, TOPICS, QUEUES, group)
    for is_cold in (False, True):
        found: dict[str, list[Read]] = {name: [] for name in WAYS}
        for _ in range(rounds):
            for name, by_queues in WAYS.items():
                found[name].append(
                    measure(folder, by_queues=by_queues, is_cold=is_cold, expected=expected)
                )
        for name, reads in found.items():
            yield (
                f"groups of {group}, {'from the drive' if is_cold else 'in memory'}: {name}",
                reads,
            )


def line(name: str, reads: Sequence[Read]) -> str:
    """A row of a table, with medians."""
    plan_s, read_s, cpu_s = (
        median(getattr(each, field) for each in reads) for field in ("plan_s", "read_s", "cpu_s")
    )
    asked, from_drive = (
        median(getattr(each, field) / 1e6 for each in reads) for field in ("asked", "from_drive")
    )
    return (
        f"| {name} | {plan_s:.2f} | {read_s:.2f} | {cpu_s:.2f} | {asked:,.0f} | {from_drive:,.0f} |"
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description="Measure how one topic of twenty is read from store files."
    )
    parser.add_argument("--folder", type=Path, default=Path(tempfile.gettempdir()))
    parser.add_argument("--messages", type=int, default=2_500_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument(
        "--group",
        type=int,
        action="append",
        help="Messages of one topic in a row; may be repeated.",
    )
    options = parser.parse_args()
    print(
        f"{machine.describe()}; {options.messages:,} messages of 1 KiB, {len(TOPICS)} topics, one core"
    )
    print(
        "| | plan s | read s | CPU s | MB asked for | MB from the drive |\n| --- | --- | --- | --- | --- | --- |"
    )
    for group in options.group or [1, 64]:
        with tempfile.TemporaryDirectory(prefix="roquet-bench-", dir=options.folder) as folder:
            for name, reads in measured(Path(folder), options.messages, group, options.rounds):
                print(line(name, reads), flush=True)


if __name__ == "__main__":
    main()
