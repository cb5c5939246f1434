"""PURE: failures in a row of something that is tried again and again: the first of them counts."""

from __future__ import annotations


class FailureStreak:
    """Says which failures of a repeated task are worth a log line: the first in a row.

    A task that fails each second, for days, would fill the log.
    """

    __slots__ = ("_kind",)

    def __init__(self) -> None:
        self._kind: object = None

    @property
    def is_on(self) -> bool:
        """Whether the task failed when it was tried last."""
        return self._kind is not None

    def failed(self, kind: object = True) -> bool:
        """Note a failure. Returns whether it is the first in a row, or follows another kind.

        :param kind: what tells failures apart that are each worth a line; not None.
        """
        is_news = kind != self._kind
        self._kind = kind
        return is_news

    def ended(self) -> bool:
        """Note that the task succeeded. Returns whether it failed before."""
        was_on = self.is_on
        self._kind = None
        return was_on
