"""How far a job is, in words and for programs."""

from __future__ import annotations

import pytest

from roquet.cli.pipeline.progress import Progress


@pytest.mark.parametrize(
    ("progress", "words"),
    [
        (Progress("archiving", 3.4), "archiving, 3 s"),
        (
            Progress("archiving", 3, 0, 8, 0, 4000),
            "archiving, 3 s, 0 of 8 tasks, 0 of 4,000 rows, 4,000 left",
        ),
        (
            Progress("archiving", 10, 2, 8, 1000, 4000, 25_000_000),
            "archiving, 10 s, 2 of 8 tasks, 1,000 of 4,000 rows, 3,000 left, "
            "100 rows/s, about 30 s more, 25.0 MB, 2.5 MB/s",
        ),
        (Progress("comparing", 10, 2, 8), "comparing, 10 s, 2 of 8 tasks"),
    ],
)
def test_the_line_says_what_is_known(progress: Progress, words: str) -> None:
    assert str(progress) == words


def test_programs_get_the_same_with_null_for_what_is_not_known() -> None:
    known = Progress("archiving", 10, 2, 8, 1000, 4000, 25_000_000).to_json()

    assert known == {
        "progress": "archiving",
        "seconds": 10,
        "tasksDone": 2,
        "tasks": 8,
        "rowsDone": 1000,
        "rows": 4000,
        "rowsLeft": 3000,
        "rowsPerSecond": 100.0,
        "secondsLeft": 30.0,
        "bytesWritten": 25_000_000,
        "megabytesPerSecond": 2.5,
    }
    unknown = Progress("comparing", 10, 2, 8).to_json()
    assert {name for name, value in unknown.items() if value is None} == {
        "rowsDone", "rows", "rowsLeft", "rowsPerSecond", "secondsLeft",
    }  # fmt: skip


def test_rates_of_the_first_moment_are_not_boundless() -> None:
    assert Progress("archiving", 0.001, 1, 8, 500, 4000).rows_per_s == 1000
