"""Tasks of a store that are run again after the drive failed, for want of room as a rule."""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from roquet.common.failure_streak import FailureStreak

log = logging.getLogger(__name__)

DISPATCH: Final = "dispatch"
INDEX: Final = "index"
REBUILD: Final = "rebuild of consume queues"
"""Names of the tasks in log lines."""


class RetriedTasks:
    """Which tasks were held up by the drive when they were run last.

    Invariant: only the first failure in a row of a task is logged.
    """

    def __init__(self) -> None:
        self._streaks: defaultdict[str, FailureStreak] = defaultdict(FailureStreak)

    @property
    def is_any_held_up(self) -> bool:
        return any(streak.is_on for streak in self._streaks.values())

    @contextmanager
    def attempt(self, task: str) -> Iterator[None]:
        """Run a task that the caller repeats later if the drive fails.

        :param task: its name in the log line.
        """
        try:
            yield
        except OSError as error:
            if self._streaks[task].failed():
                log.error("store task is held up, will be retried: task=%r error=%s", task, error)
        else:
            self._streaks[task].ended()
