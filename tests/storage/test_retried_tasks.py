"""A task that the drive holds up is logged once and counts until it has run."""

from __future__ import annotations

import errno

import pytest

from roquet.storage.retried_tasks import RetriedTasks


def run(tasks: RetriedTasks, task: str, failure: Exception | None = None) -> None:
    with tasks.attempt(task):
        if failure is not None:
            raise failure


FULL = OSError(errno.ENOSPC, "No space left on device")


def test_a_task_is_held_up_until_it_has_run(caplog: pytest.LogCaptureFixture) -> None:
    tasks = RetriedTasks()
    assert not tasks.is_any_held_up
    for _ in range(3):
        run(tasks, "dispatch", FULL)
        run(tasks, "index")
        assert tasks.is_any_held_up
    run(tasks, "dispatch")
    assert not tasks.is_any_held_up
    assert [line.partition(":")[0] for line in caplog.messages] == [
        "store task is held up, will be retried"
    ]

    run(tasks, "dispatch", FULL)
    assert len(caplog.messages) == 2


def test_other_errors_are_the_callers() -> None:
    tasks = RetriedTasks()
    with pytest.raises(KeyError):
        run(tasks, "dispatch", KeyError("k"))
    assert not tasks.is_any_held_up
