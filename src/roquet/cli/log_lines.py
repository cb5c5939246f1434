"""How a server's log looks: one line for one event; and how names of peers look wherever they are printed."""

from __future__ import annotations

import logging
import re
from typing import Final

_NOT_PRINTED: Final = re.compile(r"[^\x20-\x7e]")


class OneLine(logging.Formatter):
    """Keeps: what peers call themselves, their groups and their topics writes no line of its own, and does nothing to
    a terminal: characters that are not printed are escaped as Python writes them. A traceback keeps its lines.
    """

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - logging's name
        return printable(super().formatMessage(record))


def printable(text: str) -> str:
    """The text with its characters that are not printed, newlines too, escaped as Python writes them."""
    return text if text.isprintable() else _NOT_PRINTED.sub(_escaped, text)


def _escaped(found: re.Match[str]) -> str:
    character = found[0]
    return character if character.isprintable() else repr(character)[1:-1]
