"""PURE: decodes JSON texts of megabytes with one large table in slices of a few KB.

The table is cut between two entries. A cut in the wrong place, such as inside a string or a nested
object, leaves a piece that is not JSON. Pieces that are all valid JSON therefore have the same
entries as the whole text.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Final

from roquet.common.steps import Steps, in_parts
from roquet.protocol.json.dialect import load, load_quick

_PIECE_SIZE: Final = 8 * 1024
"""Bytes of a piece: decoding it and making its values takes 0.1 ms."""
WHOLE_SIZE_MAX: Final = 1024 * 1024
"""Bytes of a text that is read at once if it cannot be cut: some 10 ms."""
_CUT: Final = re.compile(rb'\}\s*,\s*(?=")')
_CUTS_TRIED: Final = 8
"""Cuts tried per piece: nested objects look like the end of an entry, too."""
_BRACKETS: Final = re.compile(rb'[{}]|"(?:[^"\\]++|\\.)*+"?', re.DOTALL)
"""Brackets, and strings, in which there may be brackets that do not count.

A string without an end is one match, to the end of the text. If it were none, each escaped quote
in it would be tried as the begin of a string: 80 KB of them took 12 s.
"""
_BRACKETS_AT_ONCE: Final = 512
"""Brackets and strings per step of 0.1 ms."""

Components = tuple[dict[str, Any], list[dict[str, Any]]]


def load_parts(
    text: bytes, path: Sequence[str], dialect_values_max: int | None = None
) -> Steps[Components]:
    """Decode a document with a large table at `path`.

    :param dialect_values_max: as in `load`, for the whole text if it must be read at once, and for
        the bare keys of what is read at once of a text that is cut.
    :returns: the document without the table's entries, and the entries in parts, in order.
    :raises ValueError: the text is no JSON object, or is too large and cannot be cut.
    """
    if len(text) > _PIECE_SIZE and b'"$ref"' not in text:
        parts = yield from _cut(text, path, dialect_values_max)
        if parts is not None:
            return parts
    if len(text) > WHOLE_SIZE_MAX:
        raise ValueError(
            f"JSON of {len(text)} bytes, of which {'.'.join(path)} is not a table of objects"
        )
    document = load(text, dialect_values_max)
    yield
    if not isinstance(document, dict):
        raise ValueError(f"JSON object expected, found {type(document).__name__}")
    table = _at(document, path)
    return document, [table] if table else []


def _cut(text: bytes, path: Sequence[str], bare_keys_max: int | None) -> Steps[Components | None]:
    """Decode the text in pieces; None if it cannot be cut."""
    begins = re.compile(rb'"%b"\s*:\s*\{' % re.escape(path[-1].encode()))
    begin = begins.search(text)
    if begin is None:
        return None
    parts: list[dict[str, Any]] = []
    at = begin.end()
    while (found := (yield from _piece(text, at, bare_keys_max))) is not None:
        part, at = found
        parts.append(part)
        yield
    rest = text[at : at + WHOLE_SIZE_MAX]
    try:
        part, size = yield from _first_table(b"{" + rest, bare_keys_max)
        after = text[at + size - 1 :]
        if begin.start() + len(after) > WHOLE_SIZE_MAX or begins.search(after):
            return None
        document = load_quick(text[: begin.end()] + b"}" + after, bare_keys_max)
        yield
    except ValueError:
        return None
    if not isinstance(document, dict) or _at(document, path) != {}:
        return None
    return document, [*parts, part] if part else parts


def _piece(
    text: bytes, at: int, bare_keys_max: int | None
) -> Steps[tuple[dict[str, Any], int] | None]:
    """The entries of the piece that begins at `at`, and where the next piece begins.

    None if the last piece begins there, or if no cut leaves valid JSON.
    """
    end = at + _PIECE_SIZE
    for _ in range(_CUTS_TRIED):
        cut = _CUT.search(text, end, at + WHOLE_SIZE_MAX)
        if cut is None:
            return None
        try:
            part = load_quick(b"{%b}" % text[at : cut.start() + 1], bare_keys_max)
        except ValueError:
            end = cut.end()
            yield
            continue
        return part, cut.end()
    return None


def _first_table(text: bytes, bare_keys_max: int | None) -> Steps[tuple[dict[str, Any], int]]:
    """Decode the object at the start of a text, and return its size in bytes, too.

    :raises ValueError: there is none that `load_quick` can read.
    """
    depth = 0
    for matches in in_parts(_BRACKETS.finditer(text), _BRACKETS_AT_ONCE):
        for match in matches:
            depth += {b"{": 1, b"}": -1}.get(match.group(), 0)
            if not depth:
                return load_quick(text[: match.end()], bare_keys_max), match.end()
        yield
    raise ValueError("JSON: an object without an end")


def _at(document: dict[str, Any], path: Sequence[str]) -> Any:
    """The value at a path; None if there is none."""
    value: Any = document
    for name in path:
        value = value.get(name) if isinstance(value, dict) else None
    return value
