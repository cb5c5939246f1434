"""Tasks and a driver of Spark, killed between sending and committing: nothing is lost, nothing
found is sent again.
"""

from __future__ import annotations

import os
import signal
import sys
from collections import Counter
from pathlib import Path

import pytest

from tests.interop.ground import Ground
from tests.interop.processes import Program
from tests.soak.sink_job import BATCH_TOPIC, DELIVERIES, KILLED, ROWS
from tests.spark.written import numbers, stored

pytestmark = [pytest.mark.process, pytest.mark.spark]

SECONDS = 400


def job(ground: Ground, folder: Path, life: str) -> Program:
    """The program, in a session of its own: its JVM is to be killed with it."""
    program = Program(f"sink-job-{life}")
    program.launch(
        ["setsid", sys.executable, "-m", "tests.soak.sink_job", ground.namesrv, str(folder), life],
        {"PYTHONPATH": os.pathsep.join(sys.path)},
    )
    return program


def test_rows_survive_tasks_and_drivers_that_die_before_they_commit(tmp_path: Path) -> None:
    topics = [BATCH_TOPIC, *(f"stream-{delivery}" for delivery in DELIVERIES)]
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "rows.txt").write_text("".join(f"{number}\n" for number in range(ROWS)))
    with Ground(is_apache=False) as ground:
        for topic in topics:
            ground.create_topic(topic, 4)
        with job(ground, tmp_path, "die") as first:
            reached = [tmp_path / f"commits-stream-{delivery}" for delivery in DELIVERIES]
            first.wait_ready(
                lambda: all(file.exists() for file in reached),
                "both streams in their commits",
                SECONDS,
            )
            os.killpg(first.pid, signal.SIGKILL)
        assert (tmp_path / KILLED).exists()
        assert all(len(stored(ground.namesrv, topic)) == ROWS for topic in topics), (
            "whoever died had sent its rows"
        )
        with job(ground, tmp_path, "finish") as second:
            assert second.wait_end(SECONDS) == 0, second.log()[-4000:]
        found = {topic: Counter(numbers(stored(ground.namesrv, topic))) for topic in topics}
    assert found[BATCH_TOPIC] == found["stream-effectively-once"] == Counter(range(ROWS))
    assert found["stream-at-least-once"] == Counter([*range(ROWS), *range(ROWS)]), (
        "sent again, nothing is lost"
    )
