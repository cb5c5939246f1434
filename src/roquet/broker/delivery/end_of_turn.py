"""Batches work: runs it once at the end of an event-loop turn, or at most once per period."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from roquet.common.loop_time import now_s

NEXT_TURN_S: Final = 0.001
"""The shortest timer after which the loop has sent what was written to connections before."""


class EndOfTurn:
    """Runs `work` once at the end of each event-loop turn in which `due` was called.

    Invariant: while `is_due`, the work is scheduled and runs before the loop waits for I/O.

    :param took: called with the seconds from the turn's first `due()` to the end of the work.
    """

    __slots__ = ("_began_s", "_loop", "_took", "_work", "is_due")

    def __init__(
        self, work: Callable[[], None], took: Callable[[float], None] = lambda seconds: None
    ) -> None:
        self._work = work
        self._took = took
        self._loop: asyncio.AbstractEventLoop | None = None
        """The running loop, cached: `asyncio.get_running_loop` makes a system call."""
        self._began_s = 0.0
        self.is_due = False

    def due(self) -> None:
        """Run the work at the end of this turn."""
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
    """Runs `work` soon after `due()`, but at most once per `period_s`.

    The work starts no earlier than the next turn of the event loop, so that the answers of this
    turn are sent first. It is for work that is cheaper in bulk and that no client waits for.

    :param period_s: seconds between the end of one run and the start of the next.
    """

    def __init__(self, work: Callable[[], None], period_s: float) -> None:
        self._work = work
        self._period_s = period_s
        self._ended_s = 0.0
        self._timer: asyncio.TimerHandle | None = None

    def due(self) -> None:
        """Schedule the work unless it is scheduled already."""
        if self._timer is None:
            loop = asyncio.get_running_loop()
            pause_s = max(NEXT_TURN_S, self._ended_s + self._period_s - loop.time())
            self._timer = loop.call_later(pause_s, self._run)

    def stop(self) -> None:
        """Cancel the scheduled work: the caller does it."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _run(self) -> None:
        self._timer = None
        self._work()
        self._ended_s = now_s()
