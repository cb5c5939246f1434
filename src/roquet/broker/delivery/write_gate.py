"""Keeps the reason why this broker stores no messages now."""

from __future__ import annotations


class WriteGate:
    """The reason why the broker stores no message now: its drive is too full, or a sync has failed.

    `maintenance/cleaning.py` closes and opens it by the drive's used space. All that append ask it
    first, the fast path of sends once for each read of a connection.

    Invariant: after a failed sync it stays closed (decision 0025).
    """

    __slots__ = ("_has_failed", "why_closed")

    def __init__(self) -> None:
        self.why_closed = ""
        """Why no message is stored, as a clause for remarks; empty while messages are stored."""
        self._has_failed = False

    def close(self, why: str) -> None:
        """Store no message until `open`.

        :param why: as a clause for remarks.
        """
        if not self._has_failed:
            self.why_closed = why

    def open(self) -> None:
        """Store messages again; without effect after a failed sync."""
        self.close("")

    def sync_failed(self, failure: OSError) -> None:
        """Store no message any more, as nothing is synced any more."""
        self._has_failed = True
        self.why_closed = f"a sync of this broker's store has failed: {failure}"
