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
from dataclasses import dataclass
from pathlib import Path
from queue import Queue
from typing import Final

import click

from tests.mutants.catalogue import MUTANTS
from tests.mutants.mutant import Mutant

ROOT: Final = Path(__file__).parents[2]
REPORT: Final = Path(__file__).with_name("REPORT.md")
TIMEOUT_S: Final = 300.0
"""A mutant that makes a program run on for ever is one that a test's own time limit would have to kill."""
FAILED: Final = re.compile(r"^(?:FAILED|ERROR) (\S+)", re.MULTILINE)
TESTS_FAILED: Final = 1


@dataclass(frozen=True)
class Verdict:
    """What became of a mutant; `killer` is the first test that failed, "" when none did."""

    mutant: Mutant
    killer: str
    seconds: float
    note: str = ""

    @property
    def survived(self) -> bool:
        return not self.killer


class Copies:
    """Copies of the project, as git knows it, of which each runs one mutant at a time."""

    def __init__(self, folder: Path, count: int) -> None:
        self._free: Queue[Path] = Queue()
        files = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, check=True, capture_output=True).stdout
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
    """Run a mutant's tests until one fails."""
    with copies.one() as copy:
        path = copy / mutant.path
        source = path.read_text()
        path.write_text(mutant.applied(source))
        began = time.monotonic()
        try:
            return verdict(mutant, run_tests(copy, mutant.tests), time.monotonic() - began)
        except subprocess.TimeoutExpired:
            return Verdict(mutant, "(time limit)", time.monotonic() - began)
        finally:
            path.write_text(source)


def run_tests(copy: Path, tests: Sequence[str]) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", "-n", "0", "--tb=no", *tests]
    return subprocess.run(command, cwd=copy, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)


def verdict(mutant: Mutant, run: subprocess.CompletedProcess[str], seconds: float) -> Verdict:
    failed = FAILED.search(run.stdout)
    if run.returncode == TESTS_FAILED and failed is not None:
        return Verdict(mutant, failed[1], seconds)
    if run.returncode == 0:
        return Verdict(mutant, "", seconds)
    return Verdict(mutant, "", seconds, f"pytest ended with {run.returncode}: {run.stdout[-300:]}{run.stderr[-300:]}")


def report(verdicts: Sequence[Verdict]) -> str:
    """A page: survivors first, then who was killed by what and how fast."""
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
        lines.append(f"| {each.mutant.name} | `{each.mutant.file}` | {killer} | {each.seconds:.0f} |")
    return "\n".join(lines) + "\n"


@click.command()
@click.argument("words", nargs=-1)
@click.option("--jobs", default=2, show_default=True, help="How many at the same time.")
def main(words: tuple[str, ...], jobs: int) -> None:
    """Show that the tests would notice."""
    chosen = [mutant for mutant in MUTANTS if not words or any(word in mutant.name for word in words)]
    with tempfile.TemporaryDirectory(prefix="roquet-mutants-") as folder, ThreadPoolExecutor(jobs) as pool:
        copies = Copies(Path(folder), jobs)
        verdicts = []
        for done in pool.map(lambda mutant: judge(mutant, copies), chosen):
            verdicts.append(done)
            sys.stdout.write(f"{done.seconds:5.0f} s  {done.killer or 'SURVIVED'}  {done.mutant.name} {done.note}\n")
            sys.stdout.flush()
    if not words:
        REPORT.write_text(report(verdicts))
    sys.exit(any(verdict.survived for verdict in verdicts))


if __name__ == "__main__":
    main()
