"""PURE: whether a peer reads what it was sent, and fast enough."""

from __future__ import annotations

from roquet.transport.limits import SLOWEST


class PeerReadProgress:
    """Reading progress of one peer, from samples of its connection. Times: event loop, seconds.

    Invariant: `moved_at` is the last sample at which the peer had read bytes since the sample
    before, or at which nothing was unread. `_due` is when the peer must have read the first `_mark`
    bytes.
    """

    __slots__ = ("_due", "_mark", "_read", "moved_at")

    def __init__(self, now: float) -> None:
        self.moved_at = self._due = now
        self._read = self._mark = 0

    def sample(self, sent: int, unread: int, now: float, idle_s: float) -> None:
        """Take a sample: `sent` bytes so far, of which the peer has not read the last `unread`."""
        read = sent - unread
        if read != self._read or not unread:
            self._read, self.moved_at = read, now
        if read >= self._mark:
            self._mark, self._due = sent, now + idle_s + unread / SLOWEST

    def is_overdue(self, now: float, idle_s: float) -> bool:
        """Whether unread bytes are overdue: none was read for `idle_s`, or fewer than `SLOWEST`."""
        return now - self.moved_at >= idle_s or now >= self._due
