"""What is done once for everything that one turn of the event loop brought."""

from __future__ import annotations

import asyncio
from collections.abc import Callable


class Turn:
    """Keeps: while `is_due`, the work is scheduled and will run before the loop waits for anything.

    :param work: index, wake-ups and replication of what this turn appended.
    """

    __slots__ = ("_work", "is_due")

    def __init__(self, work: Callable[[], None]) -> None:
        self._work = work
        self.is_due = False

    def due(self) -> None:
        """Something was appended in this turn."""
        if not self.is_due:
            self.is_due = True
            asyncio.get_running_loop().call_soon(self._run)

    def _run(self) -> None:
        self.is_due = False
        self._work()
