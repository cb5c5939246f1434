"""Limits the rate of log lines that peers can cause: one line per kind of event and period."""

from __future__ import annotations

import logging
import re
from typing import Final

from roquet.common.bounded_dict import BoundedDict
from roquet.common.loop_time import now_s

PERIOD_S: Final = 60.0
KINDS_MAX: Final = 1000
"""Kinds of events remembered. They may contain names that peers choose, so the table is bounded."""


class LimitedLog:
    """A logger that writes at most one line per kind of event in `PERIOD_S`, by the loop's clock.

    The next line of the kind says how many were left out.

    :param log: the logger that writes the lines.
    """

    def __init__(self, log: logging.Logger) -> None:
        self._log = log
        self._told: BoundedDict[str, tuple[float, int]] = BoundedDict(KINDS_MAX)

    def warning(self, kind: str, message: str, *args: object) -> None:
        """Log at WARNING, as `tell`."""
        self.tell(logging.WARNING, kind, message, *args)

    def tell(self, level: int, kind: str, message: str, *args: object) -> None:
        """Log a line, unless one of its kind was logged less than `PERIOD_S` ago.

        :param kind: the key of the event; lines of one kind are limited together.
        """
        now = now_s()
        told_at, left_out = self._told.get(kind, (-PERIOD_S, 0))
        if now - told_at < PERIOD_S:
            self._told[kind] = told_at, left_out + 1
            return
        self._told[kind] = now, 0
        if left_out:
            message += f" (and {left_out} like it since the last such line)"
        self._log.log(level, message, *args)


def without_numbers(message: str) -> str:
    """The message without its digits, as a kind of event."""
    return re.sub(r"\d+", "", message)
