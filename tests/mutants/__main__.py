"""`make mutants`: small faults, one at a time, each in a copy of the project; does a test fail, and how fast?

    python -m tests.mutants                    every mutant; the report goes to tests/mutants/REPORT.md
    python -m tests.mutants fsync checkpoint   those with one of these words in their names; no report is written

The exit code is 1 when a mutant survives, so that a new gap is seen.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from queue import Queue
from typing import Final

import click

from tests.mutants.catalogue import MUTANTS
from tests.mutants.mutant import Mutant

ROOT: Final = Path(__file__).parents[2]
REPORT: Final = Path(__file__).with_name("REPORT.md")
TIMEOUT_S: Final = 300.0
"""A mutant that makes a program run on for ever is one that a test's own time limit would have to
kill.
"""
FAILED: Final = re.compile(r"^(?:FAILED|ERROR) (\S+)", re.MULTILINE)
TESTS_FAILED: Final = 1


@dataclass(frozen=True)
class Verdict:
    """What became of a mutant; `killer` is the first test that failed, `found_by` the first
    simulated cluster; "" when none did.
    """

    mutant: Mutant
    killer: str
    seconds: float
    note: str = ""
    found_by: str = ""
    found_seconds: float = 0.0

    @property
    def survived(self) -> bool:
        return not self.killer or bool(self.mutant.simulation and not self.found_by)


class Copies:
    """Copies of the project, as git knows it, of which each runs one mutant at a time."""

    def __init__(self, folder: Path, count: int) -> None:
        self._free: Queue[Path] = Queue()
        files = subprocess.run(
            ["git", "ls-files", "-z"], cwd=ROOT, check=True, capture_output=True
        ).stdout
        for number in range(count):
            copy = folder / str(number)
            for name in files.decode().split("\0"):
                if name and (ROOT / name).is_file():
                    (copy / name).parent.mkdir(parents=True, exist_ok=True)
                    shutil.copy2(ROOT / name, copy / name)
            self._free.put(copy)

    @contextmanager
    def one(self) -> Iterator[Path]:
        copy = self._free.get()
        try:
            yield copy
        finally:
            self._free.put(copy)


def judge(mutant: Mutant, copies: Copies) -> Verdict:
    """Run a mutant's tests until one fails, and so its simulated clusters."""
    with copies.one() as copy, applied(mutant, copy):
        told = verdict(mutant, *timed(copy, mutant.tests))
        if not mutant.simulation:
            return told
        found = verdict(mutant, *timed(copy, mutant.simulation))
        note = f"{told.note} {found.note}".strip()
        return replace(told, found_by=found.killer, found_seconds=found.seconds, note=note)


@contextmanager
def applied(mutant: Mutant, copy: Path) -> Iterator[None]:
    sources = {copy / change.path: (copy / change.path).read_text() for change in mutant.changes}
    try:
        for change in mutant.changes:
            path = copy / change.path
            path.write_text(change.applied(path.read_text()))
        yield
    finally:
        for path, source in sources.items():
            path.write_text(source)


def timed(
    copy: Path, tests: Sequence[str]
) -> tuple[subprocess.CompletedProcess[str] | None, float]:
    """How these tests ended, None when they did not, and after how many seconds."""
    began = time.monotonic()
    try:
        run = run_tests(copy, tests)
    except subprocess.TimeoutExpired:
        run = None
    return run, time.monotonic() - began


def run_tests(copy: Path, tests: Sequence[str]) -> subprocess.CompletedProcess[str]:
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-x",
        "-p",
        "no:cacheprovider",
        "-n",
        "0",
        "--tb=no",
    ]
    command += [
        "--hypothesis-profile=unshrunk",
        *tests,
    ]  # that an example fails is enough; its smallest form takes minutes
    return subprocess.run(
        command, cwd=copy, capture_output=True, text=True, timeout=TIMEOUT_S, check=False
    )


def verdict(
    mutant: Mutant, run: subprocess.CompletedProcess[str] | None, seconds: float
) -> Verdict:
    if run is None:
        return Verdict(mutant, "(time limit)", seconds)
    failed = FAILED.search(run.stdout)
    if run.returncode == TESTS_FAILED and failed is not None:
        return Verdict(mutant, failed[1], seconds)
    if run.returncode == 0:
        return Verdict(mutant, "", seconds)
    return Verdict(
        mutant,
        "",
        seconds,
        f"pytest ended with {run.returncode}: {run.stdout[-300:]}{run.stderr[-300:]}",
    )


def report(verdicts: Sequence[Verdict]) -> str:
    """A page: survivors first, then who was killed by what and how fast, then what the simulation
    finds.
    """
    survivors = [verdict for verdict in verdicts if verdict.survived]
    lines = [
        "# Mutants",
        "",
        "Small faults put into the source one at a time, and the first test that failed of those that are meant to",
        "notice (`make mutants` writes this page; seconds include starting Python and pytest, two at a time).",
        "",
        f"{len(verdicts)} mutants, {len(verdicts) - len(survivors)} killed, {len(survivors)} survived.",
        "",
        "| mutant | file | killed by | seconds |",
        "|---|---|---|---|",
    ]
    for each in (*survivors, *(verdict for verdict in verdicts if not verdict.survived)):
        killer = f"`{each.killer}`" if each.killer else f"**survived** {each.note}".strip()
        lines.append(
            f"| {each.mutant.name} | `{each.mutant.file}` | {killer} | {each.seconds:.0f} |"
        )
    return "\n".join([*lines, *simulated(verdicts)]) + "\n"


def simulated(verdicts: Sequence[Verdict]) -> list[str]:
    """Of the faults that the program once had, which the simulation finds."""
    once = [verdict for verdict in verdicts if verdict.mutant.once]
    lines = [
        "",
        "## Faults that the program once had",
        "",
        "Each was found by other means than the simulation, and mended. Here its mend is taken out again, and a",
        "simulated cluster (`tests/simulation`) has to find it.",
        "",
        "| what went wrong | mutant | found by the simulation | seconds |",
        "|---|---|---|---|",
    ]
    for each in once:
        found = f"`{each.found_by}`" if each.found_by else f"**not found** {each.note}".strip()
        lines.append(
            f"| {each.mutant.once} | {each.mutant.name} | {found} | {each.found_seconds:.0f} |"
        )
    return lines


@click.command()
@click.argument("words", nargs=-1)
@click.option("--jobs", default=2, show_default=True, help="How many at the same time.")
def main(words: tuple[str, ...], jobs: int) -> None:
    """Show that the tests would notice."""
    chosen = [
        mutant for mutant in MUTANTS if not words or any(word in mutant.name for word in words)
    ]
    with (
        tempfile.TemporaryDirectory(prefix="roquet-mutants-") as folder,
        ThreadPoolExecutor(jobs) as pool,
    ):
        copies = Copies(Path(folder), jobs)
        verdicts = []
        for done in pool.map(lambda mutant: judge(mutant, copies), chosen):
            verdicts.append(done)
            sys.stdout.write(
                f"{done.seconds:5.0f} s  {done.killer or 'SURVIVED'}  {done.mutant.name} {done.note}\n"
            )
            if done.mutant.simulation:
                sys.stdout.write(
                    f"{done.found_seconds:5.0f} s  {done.found_by or 'NOT FOUND'}  in the simulation\n"
                )
            sys.stdout.flush()
    if not words:
        REPORT.write_text(report(verdicts))
    sys.exit(any(verdict.survived for verdict in verdicts))


if __name__ == "__main__":
    main()
