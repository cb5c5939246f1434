"""What is done once for all that one turn of the event loop, or several of them, brought; or a part in each turn."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

NEXT_TURN_S: Final = 0.001
"""The least that lets a loop send what was written to connections before."""


class EndOfTurn:
    """Keeps: while `is_due`, the work is scheduled and will run before the loop waits for anything.

    :param work: index, wake-ups and replication of what this turn appended.
    :param took: told how long it was, in seconds, from the first append to the end of that work.
    """

    __slots__ = ("_began_s", "_loop", "_took", "_work", "is_due")

    def __init__(
        self, work: Callable[[], None], took: Callable[[float], None] = lambda seconds: None
    ) -> None:
        self._work = work
        self._took = took
        self._loop: asyncio.AbstractEventLoop | None = None
        """The loop on which this is used, kept: asking asyncio for it takes a system call."""
        self._began_s = 0.0
        self.is_due = False

    def due(self) -> None:
        """Something was appended in this turn."""
        if not self.is_due:
            self.is_due = True
            self._loop = loop = self._loop or asyncio.get_running_loop()
            self._began_s = loop.time()
            loop.call_soon(self._run, loop)

    def _run(self, loop: asyncio.AbstractEventLoop) -> None:
        self.is_due = False
        self._work()
        self._took(loop.time() - self._began_s)


class ThrottledWork:
    """Keeps: the work runs after what `due` was told in, when that has left, and never twice within `period_s`.

    :param work: what is cheaper for a lot at once, and nobody waits for.
    """

    def __init__(self, work: Callable[[], None], period_s: float) -> None:
        self._work = work
        self._period_s = period_s
        self._ended_s = 0.0
        self._timer: asyncio.TimerHandle | None = None

    def due(self) -> None:
        """There is something to do."""
        if self._timer is None:
            loop = asyncio.get_running_loop()
            pause_s = max(NEXT_TURN_S, self._ended_s + self._period_s - loop.time())
            self._timer = loop.call_later(pause_s, self._run)

    def stop(self) -> None:
        """Whoever stops does what is left himself."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _run(self) -> None:
        self._timer = None
        self._work()
        self._ended_s = asyncio.get_running_loop().time()
