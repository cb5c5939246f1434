"""PURE: JSON texts of megabytes that are one large table, read a few KB at a time.

The table is cut between two of its entries. A cut in the wrong place, such as within a text or a nested object, leaves
a piece that is no JSON; so pieces that are all JSON say, put together, what the whole text says.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Final

from roquet.common.steps import Steps
from roquet.protocol.json.dialect import load, load_quick

_PIECE_SIZE: Final = 8 * 1024
"""Bytes of a piece: 0.1 ms, with what is made of it."""
WHOLE_SIZE_MAX: Final = 1024 * 1024
"""Bytes that are read at once where a text cannot be cut: some 10 ms."""
_CUT: Final = re.compile(rb'\}\s*,\s*(?=")')
_CUTS_TRIED: Final = 8
"""Entries with objects inside have that many more places that look like their end."""

Components = tuple[dict[str, Any], list[dict[str, Any]]]


def load_parts(
    text: bytes, path: Sequence[str], whole_values_max: int | None = None
) -> Steps[Components]:
    """A document without the entries of the table at `path`, and these in parts, in their order.

    :param whole_values_max: as `load`, for a text that has to be read at once.
    :raises ValueError: it is no JSON object, or too large and not to be cut.
    """
    if len(text) > _PIECE_SIZE and b'"$ref"' not in text:
        parts = yield from _cut(text, path)
        if parts is not None:
            return parts
    if len(text) > WHOLE_SIZE_MAX:
        raise ValueError(
            f"JSON of {len(text)} bytes, of which {'.'.join(path)} is not a table of objects"
        )
    document = load(text, whole_values_max)
    yield
    if not isinstance(document, dict):
        raise ValueError(f"JSON object expected, found {type(document).__name__}")
    table = _at(document, path)
    return document, [table] if table else []


def _cut(text: bytes, path: Sequence[str]) -> Steps[Components | None]:
    """None: it cannot be cut."""
    begins = re.compile(rb'"%b"\s*:\s*\{' % re.escape(path[-1].encode()))
    begin = begins.search(text)
    if begin is None:
        return None
    parts: list[dict[str, Any]] = []
    at = begin.end()
    while (found := _piece(text, at)) is not None:
        part, at = found
        parts.append(part)
        yield
    rest = text[at : at + WHOLE_SIZE_MAX]
    try:
        part, size = _first_table(b"{" + rest)
        after = text[at + size - 1 :]
        if len(begin.string[: begin.start()]) + len(after) > WHOLE_SIZE_MAX or begins.search(after):
            return None
        document = load_quick(text[: begin.end()] + b"}" + after)
        yield
    except ValueError:
        return None
    if not isinstance(document, dict) or _at(document, path) != {}:
        return None
    return document, [*parts, part] if part else parts


def _piece(text: bytes, at: int) -> tuple[dict[str, Any], int] | None:
    """The entries from `at` on that are one piece, and where the next one begins; None where the last piece begins,
    or there is no piece.
    """
    end = at + _PIECE_SIZE
    for _ in range(_CUTS_TRIED):
        cut = _CUT.search(text, end, at + WHOLE_SIZE_MAX)
        if cut is None:
            return None
        try:
            part = load_quick(b"{%b}" % text[at : cut.start() + 1])
        except ValueError:
            end = cut.end()
            continue
        return part, cut.end()
    return None


def _first_table(text: bytes) -> tuple[dict[str, Any], int]:
    """The object that a text begins with, and how many bytes it has.

    :raises ValueError: none that is standard JSON but for bare integer keys.
    """
    depth = 0
    for match in _BRACKETS.finditer(text):
        depth += {b"{": 1, b"}": -1}.get(match.group(), 0)
        if not depth:
            part = load_quick(text[: match.end()])
            return part, match.end()
    raise ValueError("JSON: an object without an end")


_BRACKETS: Final = re.compile(rb'[{}]|"(?:[^"\\]|\\.)*"', re.DOTALL)


def _at(document: dict[str, Any], path: Sequence[str]) -> Any:
    """What stands at a path; None where nothing does."""
    value: Any = document
    for name in path:
        value = value.get(name) if isinstance(value, dict) else None
    return value
