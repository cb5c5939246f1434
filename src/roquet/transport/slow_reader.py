"""PURE: whether a peer takes what it was sent."""

from __future__ import annotations

from roquet.transport.limits import SLOWEST


class SlowReader:
    """What looks at one connection tell about the peer at its other end; times are the event loop's, in seconds.

    Keeps: `moved_at` is the last look at which bytes had been taken since the one before, or at which none waited;
    `_due` is when all must be taken that waited at an earlier look, of which something still waits.
    """

    __slots__ = ("_due", "_mark", "_taken", "moved_at")

    def __init__(self, now: float) -> None:
        self.moved_at = self._due = now
        self._taken = self._mark = 0

    def look(self, sent: int, unread: int, now: float, idle_s: float) -> None:
        """`sent` bytes in all so far, of which the last `unread` were not taken yet."""
        taken = sent - unread
        if taken != self._taken or not unread:
            self._taken, self.moved_at = taken, now
        if taken >= self._mark:
            self._mark, self._due = sent, now + idle_s + unread / SLOWEST

    def is_overdue(self, now: float, idle_s: float) -> bool:
        """Where bytes are unread: none was taken for `idle_s`, or so few that `SLOWEST` is not reached."""
        return now - self.moved_at >= idle_s or now >= self._due
