"""roquet's broker under a profiler: Python's own, which counts functions, or `perf`, which also sees the kernel."""

from __future__ import annotations

import pstats
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from io import StringIO
from pathlib import Path
from typing import Final

from bench.options import Profiler
from tests.interop.processes import Program

TOP: Final = 25
PERF_LINES: Final = 60


class Profile:
    """No profile at all; the others say what they do differently."""

    under: Sequence[str] = ()
    """The command that runs the broker."""

    @contextmanager
    def attached(self, pid: int) -> Iterator[None]:
        """While it is measured."""
        yield

    def top(self) -> str:
        """What took longest, once the broker has ended."""
        return ""


class CProfile(Profile):
    """From the broker's start to its end, its main thread only; small functions look slower than they are."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self.under = (sys.executable, "-m", "cProfile", "-o", str(file))

    def top(self) -> str:
        text = StringIO()
        stats = pstats.Stats(str(self._file), stream=text)
        stats.sort_stats("tottime").print_stats(TOP)
        return _without_places(text.getvalue())


class Perf(Profile):
    """Samples of all threads within the windows, at native functions."""

    def __init__(self, file: Path) -> None:
        self._file = file

    @contextmanager
    def attached(self, pid: int) -> Iterator[None]:
        with Program("perf") as perf:
            perf.launch(["perf", "record", "-q", "-F", "499", "-p", str(pid), "-o", str(self._file)])
            yield
            perf.stop()

    def top(self) -> str:
        command = ["perf", "report", "-i", str(self._file), "--stdio", "-q", "--sort", "dso,symbol"]
        report = subprocess.run(command, capture_output=True, text=True, check=True).stdout


def profile_into(folder: Path, load: str, profiler: Profiler | None) -> Profile:
    match profiler:
        case Profiler.CPROFILE:
            return CProfile(folder / f"{load}.cprofile")
        case Profiler.PERF:
            return Perf(folder / f"{load}.perf")
        case None:
            return Profile()


def _without_places(text: str) -> str:
    """The table without the folders that modules are in."""
    prefix = f"{Path(__file__).parents[1]}/"
    return text.replace(f"{prefix}src/", "").replace(prefix, "").replace(f"{sys.base_prefix}/", "")
