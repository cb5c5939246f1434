"""roquet's broker under a profiler.

`sample` counts functions and lines by CPU time and disturbs least; `cprofile` counts calls, from
the broker's start to its end, and makes small functions look slow; `perf` sees native code and the
kernel, but no Python.
"""

from __future__ import annotations

import json
import os
import pstats
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from io import StringIO
from pathlib import Path
from typing import Final

from bench.options import Profiler
from tests.interop.processes import Program, wait_until

TOP: Final = 25
PERF_LINES: Final = 60
SAMPLER: Final = Path(__file__).with_name("sampler.py")
ROOT: Final = Path(__file__).parents[1]


class Profile:
    """No profile at all; the others say what they do differently."""

    under: Sequence[str] = ()
    """The command that runs the broker."""
    needs_end: bool = False
    """The broker has to end by itself for the profile to be written."""

    @contextmanager
    def attached(self, pid: int) -> Iterator[None]:
        """While it is measured."""
        yield

    def top(self) -> str:
        """What took longest, once the broker has ended."""
        return ""


class Samples(Profile):
    """Of the windows only."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._file.unlink(missing_ok=True)
        self.under = (sys.executable, str(SAMPLER), str(file))

    @contextmanager
    def attached(self, pid: int) -> Iterator[None]:
        os.kill(pid, signal.SIGUSR1)
        yield
        os.kill(pid, signal.SIGUSR1)
        wait_until(self._file.exists, "the samples")

    def top(self) -> str:
        functions: Counter[str] = Counter()
        lines: Counter[str] = Counter()
        for module, function, line, count in json.loads(self._file.read_text()):
            functions[f"{_without_folders(module)} {function}"] += count
            lines[f"{_without_folders(module)}:{line} {function}"] += count
        total = functions.total()
        return "\n\n".join(
            f"{total:,} samples, own time by {title}\n"
            + "\n".join(
                f"{count / total:7.1%}  {place}" for place, count in counts.most_common(TOP)
            )
            for title, counts in (("function", functions), ("line", lines))
        )


class CProfile(Profile):
    """From the broker's start to its end, its main thread only."""

    needs_end = True

    def __init__(self, file: Path) -> None:
        self._file = file
        self.under = (sys.executable, "-m", "cProfile", "-o", str(file))

    def top(self) -> str:
        text = StringIO()
        stats = pstats.Stats(str(self._file), stream=text)
        stats.sort_stats("tottime").print_stats(TOP)
        return _without_folders(text.getvalue())


class Perf(Profile):
    """Of the windows only, all threads."""

    def __init__(self, file: Path) -> None:
        self._file = file

    @contextmanager
    def attached(self, pid: int) -> Iterator[None]:
        with Program("perf") as perf:
            perf.launch(
                ["perf", "record", "-q", "-F", "499", "-p", str(pid), "-o", str(self._file)]
            )
            yield
            perf.stop()

    def top(self) -> str:
        return "\n\n".join(self._report(keys) for keys in ("dso", "dso,symbol"))

    def _report(self, keys: str) -> str:
        command = ["perf", "report", "-i", str(self._file), "--stdio", "-q", "--sort", keys]
        report = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        return "\n".join(
            [line.rstrip() for line in report.splitlines() if line.strip()][:PERF_LINES]
        )


def profile_into(folder: Path, load: str, profiler: Profiler | None) -> Profile:
    match profiler:
        case Profiler.SAMPLE:
            return Samples(folder / f"{load}.samples")
        case Profiler.CPROFILE:
            return CProfile(folder / f"{load}.cprofile")
        case Profiler.PERF:
            return Perf(folder / f"{load}.perf")
        case None:
            return Profile()


def _without_folders(text: str) -> str:
    for prefix in (f"{ROOT}/src/", f"{ROOT}/", f"{sys.prefix}/", f"{sys.base_prefix}/"):
        text = text.replace(prefix, "")
    return text
