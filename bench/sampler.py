"""Runs a Python program and, when told, samples where its main thread spends CPU time.

python bench/sampler.py FILE PROGRAM [ARGUMENT]...

The first SIGUSR1 starts the sampling, the second ends it and writes FILE: a list of module,
function, line, samples. Samples are a few milliseconds of the process's CPU time apart, so waiting
counts nothing, other programs distort little, and a function costs what it costs without the
profiler. What native code and the kernel take counts for the line that called them. The interpreter
looks for signals after calls, at loops' ends and as a function begins: a sample at the line of a
`def` belongs to what ran just before, such as the event loop.
"""

from __future__ import annotations

import json
import runpy
import signal
import sys
from collections import Counter
from pathlib import Path
from types import FrameType
from typing import Final

INTERVAL_S: Final = 0.001
"""The system rounds it up to its own clock, often to 4 ms."""


class Sampler:
    """Counts by code and line; on from one `toggle` to the next."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._is_on = False
        self._samples: Counter[tuple[str, str, int]] = Counter()

    def toggle(self, _number: int, _frame: FrameType | None) -> None:
        self._is_on = not self._is_on
        signal.setitimer(signal.ITIMER_PROF, *([INTERVAL_S] * 2 if self._is_on else [0.0, 0.0]))
        if not self._is_on:
            rows = [[*place, count] for place, count in self._samples.most_common()]
            written = self._file.with_suffix(".part")
            written.write_text(json.dumps(rows))
            written.rename(self._file)

    def sample(self, _number: int, frame: FrameType | None) -> None:
        if frame is not None:
            self._samples[
                frame.f_code.co_filename, frame.f_code.co_qualname, frame.f_lineno or 0
            ] += 1


def main(file: Path, program: list[str]) -> None:
    sampler = Sampler(file)
    signal.signal(signal.SIGPROF, sampler.sample)
    signal.signal(signal.SIGUSR1, sampler.toggle)
    sys.argv = program
    runpy.run_path(program[0], run_name="__main__")


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
