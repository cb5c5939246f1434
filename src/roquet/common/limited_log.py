"""A rate limit for log lines about what peers cause: one line for each kind of event and period."""

from __future__ import annotations

import logging
import re
from typing import Final

PERIOD_S: Final = 60.0
KINDS_MAX: Final = 1000
"""Kinds remembered; the keys may come from peers, so the table must not grow with them."""


class LimitedLog:
    """Keeps: of one kind of event at most one line leaves in `period_s`; the next line says how many were left out.

    :param log: where the lines go.
    """

    def __init__(self, log: logging.Logger, period_s: float = PERIOD_S) -> None:
        self._log = log
        self._period_s = period_s
        self._told: dict[str, tuple[float, int]] = {}

    def warning(self, kind: str, now: float, message: str, *args: object) -> None:
        """Tell of what went wrong; `now` as in `tell`."""
        self.tell(logging.WARNING, kind, now, message, *args)

    def tell(self, level: int, kind: str, now: float, message: str, *args: object) -> None:
        """:param now: the event loop's clock in seconds."""
        told_at, left_out = self._told.get(kind, (-self._period_s, 0))
        if now - told_at < self._period_s:
            self._told[kind] = told_at, left_out + 1
            return
        if len(self._told) >= KINDS_MAX:
            self._told.clear()
        self._told[kind] = now, 0
        if left_out:
            message += f" (and {left_out} like it since the last such line)"
        self._log.log(level, message, *args)


def without_numbers(message: str) -> str:
    """A kind of event: what the message says, whatever its numbers are."""
    return re.sub(r"\d+", "", message)
