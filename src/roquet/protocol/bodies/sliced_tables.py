"""Decoders of large bodies in slices: each yields between parts and returns the whole table.

The result equals that of the table type's `from_json`. `sliced` has the encoders.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any, Final, TypeVar

from roquet.common.steps import Steps
from roquet.protocol.bodies.body import Table, told
from roquet.protocol.bodies.tables import TopicTable, read_members
from roquet.protocol.json.sliced import load_parts

T = TypeVar("T", bound=Table)

_WRAPPER: Final = "topicConfigSerializeWrapper"


def table(kind: type[T], text: bytes, dialect_values_max: int | None = None) -> Steps[T]:
    """Decode a body whose first table is large.

    :param dialect_values_max: as in `load`, for a text that has to be read at once.
    :raises ValueError: the text is no such body.
    """
    document, parts = yield from load_parts(text, (kind.entries().name,), dialect_values_max)
    return (yield from _joined(kind, document, parts))


def registration(text: bytes, dialect_values_max: int | None = None) -> Steps[TopicTable]:
    """Decode the topics of a JSON registration.

    :param dialect_values_max: as in `table`.
    :raises ValueError: the text is no registration.
    """
    path = (_WRAPPER, TopicTable.entries().name)
    document, parts = yield from load_parts(text, path, dialect_values_max)
    wrapped = document.get(_WRAPPER) or {}
    if not isinstance(wrapped, dict):
        raise ValueError(f"JSON: {_WRAPPER} is no object")
    return (yield from _joined(TopicTable, wrapped, parts))


def _joined(kind: type[T], document: Mapping[str, Any], parts: list[dict[str, Any]]) -> Steps[T]:
    """The body whose large table has these parts."""
    entries = kind.entries()
    rest = read_members(lambda: kind.from_json({**document, entries.name: {}}))
    found: dict[Any, Any] = {}
    left_out: list[str] = []
    for part in parts:
        found.update(read_members(partial(entries.read, part, left_out)))
        yield
    return rest.with_entries(found, told(left_out))
