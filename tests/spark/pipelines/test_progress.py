"""Progress of a job that runs: on a pseudo-terminal, for programs, and not at all."""

from __future__ import annotations

import json
import os
import pty
import re
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Thread

import pytest
from pyspark.sql import SparkSession

from roquet.cli.pipeline.progress import JobProgress
from roquet.spark.pipelines._shared.job_size import JobSize

pytestmark = pytest.mark.spark

TASKS = 6
ROWS = 6000
FILE_SIZE = 2_000_000


def job(spark: SparkSession) -> None:
    """Tasks of half a second; two run at a time."""
    spark.sparkContext.parallelize(range(TASKS), TASKS).foreach(lambda _: time.sleep(0.5))


@contextmanager
def terminal(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[bytes]]:
    """Standard error is a terminal; what it shows is in the list once this is over."""
    ours, theirs = pty.openpty()
    shown: list[bytes] = []

    def look() -> None:
        try:
            while data := os.read(ours, 4096):
                shown.append(data)
        except OSError:  # nobody has the other end open any more
            pass

    reading = Thread(target=look)
    reading.start()
    with os.fdopen(theirs, "w") as stderr, monkeypatch.context() as patched:
        patched.setenv("TERM", "xterm-256color")
        patched.setenv("COLUMNS", "200")
        patched.setattr(sys, "stderr", stderr)
        yield shown
    reading.join()
    os.close(ours)


def test_a_terminal_shows_rows_rates_and_what_is_left(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    with terminal(monkeypatch) as shown, JobProgress(spark, "archiving") as progress:
        progress.planned(JobSize(ROWS, folder=tmp_path))
        (tmp_path / "part").write_bytes(bytes(FILE_SIZE))
        job(spark)

    text = b"".join(shown).decode()
    line = rf"(\d) of {TASKS} tasks, (\d),000 of 6,000 rows, (\d),000 left, [\d,]+ rows/s, about \d+ s more, 2.0 MB, "
    shown_lines = {tuple(map(int, found)) for found in re.findall(line, text)}
    assert shown_lines
    assert all(done == rows == TASKS - left for done, rows, left in shown_lines)


def test_programs_read_a_line_of_json_each_time(
    spark: SparkSession, capsys: pytest.CaptureFixture[str]
) -> None:
    with JobProgress(spark, "archiving", as_json=True, report_s=0.3) as progress:
        progress.planned(JobSize(ROWS, size=ROWS * 1000))
        job(spark)

    told = [json.loads(line) for line in capsys.readouterr().err.splitlines()]
    assert len(told) >= 3
    assert {line["progress"] for line in told} == {"archiving"}
    rows = [line["rowsDone"] for line in told]
    assert rows == sorted(rows)
    assert rows[-1] >= ROWS // 3
    assert all(line["rowsDone"] + line["rowsLeft"] == ROWS for line in told)
    assert all(line["bytesWritten"] == line["rowsDone"] * 1000 for line in told)
    assert told[-1]["megabytesPerSecond"] > 0


def test_nothing_is_shown_where_nobody_looks(
    spark: SparkSession, capsys: pytest.CaptureFixture[str]
) -> None:
    with JobProgress(spark, "archiving") as progress:
        progress.planned(JobSize(ROWS))
        job(spark)

    assert capsys.readouterr() == ("", "")
