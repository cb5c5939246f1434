"""Escapes unprintable characters in log lines and in all output."""

from __future__ import annotations

import logging
import re
from typing import Final

_NOT_PRINTED: Final = re.compile(r"[^\x20-\x7e]")


class OneLine(logging.Formatter):
    """Formats each log event as one line.

    Invariant: names that peers chose (clients, groups, topics) can neither begin a line nor send
    control sequences to a terminal, because unprintable characters are escaped. A traceback keeps
    its lines.
    """

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - logging's name
        return printable(super().formatMessage(record))


def printable(text: str) -> str:
    """Return the text with unprintable characters, also newlines, escaped as in Python."""
    return text if text.isprintable() else _NOT_PRINTED.sub(_escaped, text)


def _escaped(found: re.Match[str]) -> str:
    character = found[0]
    return character if character.isprintable() else repr(character)[1:-1]
