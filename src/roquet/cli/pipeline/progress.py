"""Progress of a Spark job while it runs, on standard error.

On a terminal it is one line that changes; for programs it is lines of JSON.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from threading import Event, Thread
from typing import TYPE_CHECKING, Any, Final

from roquet.spark.pipelines._shared.job_size import JobSize

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

REFRESH_S: Final = 0.5
"""The time between two updates of the line on a terminal."""
REPORT_S: Final = 5.0
"""The time between two lines of JSON."""


@dataclass(frozen=True)
class Progress:
    """The progress of a job at one moment; 0 stands for a number that is not known.

    :param what: the verb, such as "archiving".
    :param seconds: the time since the job began.
    :param tasks: the number of tasks in the active stages, `tasks_done` of which have ended.
    :param rows: the number of messages, `rows_done` of which are done.
    :param written: bytes by which the job's folder has grown, or bytes of bodies that were sent.
    """

    what: str
    seconds: float
    tasks_done: int = 0
    tasks: int = 0
    rows_done: int = 0
    rows: int = 0
    written: int = 0

    @property
    def rows_per_s(self) -> float:
        return self.rows_done / max(self.seconds, REFRESH_S)

    @property
    def mb_per_s(self) -> float:
        return self.written / 1e6 / max(self.seconds, REFRESH_S)

    @property
    def rows_left(self) -> int:
        """The number of messages that are not done yet."""
        return self.rows - self.rows_done

    @property
    def seconds_left(self) -> float | None:
        """The estimated time left, by the speed so far; None before the first row."""
        return self.rows_left / self.rows_per_s if self.rows_done else None

    def __str__(self) -> str:
        parts = [self.what, f"{self.seconds:,.0f} s"]
        if self.tasks:
            parts.append(f"{self.tasks_done} of {self.tasks} tasks")
        if self.rows:
            parts += [f"{self.rows_done:,} of {self.rows:,} rows", f"{self.rows_left:,} left"]
        if self.seconds_left is not None:
            parts += [f"{self.rows_per_s:,.0f} rows/s", f"about {self.seconds_left:,.0f} s more"]
        if self.written:
            parts.append(f"{self.written / 1e6:,.1f} MB, {self.mb_per_s:,.1f} MB/s")
        return ", ".join(parts)

    def to_json(self) -> dict[str, Any]:
        """Return the values of a line of JSON; null stands for a number that is not known."""
        left = self.seconds_left
        return {
            "progress": self.what,
            "seconds": round(self.seconds, 1),
            "tasksDone": self.tasks_done,
            "tasks": self.tasks,
            "rowsDone": self.rows_done if self.rows else None,
            "rows": self.rows or None,
            "rowsLeft": self.rows_left if self.rows else None,
            "rowsPerSecond": round(self.rows_per_s, 1) if self.rows else None,
            "secondsLeft": None if left is None else round(left, 1),
            "bytesWritten": self.written,
            "megabytesPerSecond": round(self.mb_per_s, 3),
        }


class JobProgress:
    """Shows the progress of a job while the `with` block runs.

    Without `as_json` it is shown if standard error is a terminal, and only then. Spark reports
    finished tasks, not rows: each finished task counts as its share of the rows.

    :param what: the verb, such as "archiving".
    :param as_json: print a line of JSON every `report_s` seconds, also if there is no terminal.
    """

    def __init__(
        self, spark: SparkSession, what: str, *, as_json: bool = False, report_s: float = REPORT_S
    ) -> None:
        self._spark = spark
        self._what = what
        self._as_json = as_json
        self._report_s = report_s
        self._work = JobSize(0)
        self._rows_done = 0
        self._size_before = 0
        self._over = Event()
        self._thread = Thread(target=self._show, name="progress", daemon=True)

    def planned(self, work: JobSize) -> None:
        """Set the size of the job; a stream calls it for each batch."""
        self._work = work
        self._size_before = _size_of(work.folder)
        self._rows_done = 0

    def __enter__(self) -> JobProgress:
        if self._as_json or sys.stderr.isatty():
            self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        if self._thread.is_alive():
            self._thread.join()

    def _show(self) -> None:
        began = time.monotonic()
        if self._as_json:
            while not self._over.wait(self._report_s):
                print(json.dumps(self._now(began).to_json()), file=sys.stderr, flush=True)
            return
        with status(self._what) as show:
            while not self._over.wait(REFRESH_S):
                show(str(self._now(began)))

    def _now(self, began: float) -> Progress:
        done, tasks = self._tasks()
        if tasks:  # `max`, because a later stage of the same job begins with no task done
            self._rows_done = max(self._rows_done, self._work.rows * done // tasks)
        seconds = time.monotonic() - began
        return Progress(
            self._what, seconds, done, tasks, self._rows_done, self._work.rows, self._written()
        )

    def _written(self) -> int:
        """Return the bytes by which the folder grew, or for a sending job those of the rows."""
        in_files = max(0, _size_of(self._work.folder) - self._size_before)
        return in_files + self._work.size * self._rows_done // max(1, self._work.rows)

    def _tasks(self) -> tuple[int, int]:
        tracker = self._spark.sparkContext.statusTracker()
        stages = [
            info
            for each in tracker.getActiveStageIds()
            if (info := tracker.getStageInfo(each)) is not None
        ]
        return sum(each.numCompletedTasks for each in stages), sum(each.numTasks for each in stages)


@contextmanager
def status(text: str) -> Iterator[Callable[[str], None]]:
    """Show a status line on standard error if that is a terminal.

    Yields a function that replaces the line's text.
    """
    if not sys.stderr.isatty():
        yield lambda changed: None
        return
    from rich.console import Console

    with Console(stderr=True).status(text) as shown:
        yield shown.update


def _size_of(folder: Path | None) -> int:
    """Return the bytes of all files below `folder`; files may vanish meanwhile."""
    size = 0
    for parent, _, names in [] if folder is None else os.walk(folder):
        for name in names:
            with suppress(OSError):
                size += os.path.getsize(os.path.join(parent, name))
    return size
