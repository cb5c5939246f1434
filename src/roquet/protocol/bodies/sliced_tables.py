"""Decoders of large bodies in slices: each yields between parts and returns the whole table.

The result equals that of the table type's `from_json`. `sliced` has the encoders.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Final, TypeVar

from roquet.common.steps import Steps
from roquet.protocol.bodies import tables as bodies
from roquet.protocol.bodies.tables import (
    DataVersion,
    GroupConfig,
    GroupTable,
    OffsetTable,
    TopicConfig,
    TopicTable,
    read_members,
)
from roquet.protocol.json.numbers import as_int32, as_int64
from roquet.protocol.json.sliced import load_parts

K = TypeVar("K")
T = TypeVar("T")

_TOPICS: Final = "topicConfigTable"


def topic_table(text: bytes, dialect_values_max: int | None = None) -> Steps[TopicTable]:
    """Decode a topic table.

    :param dialect_values_max: as in `load`, for a text that has to be read at once.
    :raises ValueError: the text is no topic table.
    """
    document, parts = yield from load_parts(text, (_TOPICS,), dialect_values_max)
    return (yield from _topics(document, parts))


def registration(text: bytes, dialect_values_max: int | None = None) -> Steps[TopicTable]:
    """Decode the topics of a JSON registration.

    :param dialect_values_max: as in `topic_table`.
    :raises ValueError: the text is no registration.
    """
    wrapper = "topicConfigSerializeWrapper"
    document, parts = yield from load_parts(text, (wrapper, _TOPICS), dialect_values_max)
    return (yield from _topics(_table_in(document, wrapper), parts))


def _topics(document: Mapping[str, Any], parts: Sequence[Mapping[str, Any]]) -> Steps[TopicTable]:
    version = _version(document)
    topics, left_out = yield from _entries(
        parts, lambda part: bodies.table(part, str, TopicConfig.from_json)
    )
    return TopicTable(topics, version, left_out)


def group_table(text: bytes) -> Steps[GroupTable]:
    """Decode a table of groups.

    :raises ValueError: the text is none.
    """
    document, parts = yield from load_parts(text, ("subscriptionGroupTable",))
    version = _version(document)
    groups, left_out = yield from _entries(
        parts, lambda part: bodies.table(part, str, GroupConfig.from_json)
    )
    return GroupTable(groups, version, left_out)


def offset_table(text: bytes) -> Steps[OffsetTable]:
    """Decode a table of consumer offsets.

    :raises ValueError: the text is none.
    """
    _, parts = yield from load_parts(text, ("offsetTable",))
    offsets, left_out = yield from _entries(parts, _offsets)
    return OffsetTable(offsets, left_out)


def _offsets(part: Mapping[str, Any]) -> tuple[dict[str, dict[int, int]], list[str]]:
    offsets: dict[str, dict[int, int]] = {}
    left_out: list[str] = []
    for key, queues in part.items():
        offsets[key], odd = bodies.table(queues, as_int32, as_int64)
        left_out += odd
    return offsets, left_out


def _table_in(document: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    table = document.get(name) or {}
    if not isinstance(table, dict):
        raise ValueError(f"JSON: {name} is no object")
    return table


def _version(document: Mapping[str, Any]) -> DataVersion:
    return read_members(lambda: DataVersion.from_json(_table_in(document, "dataVersion")))


def _entries(
    parts: Sequence[Mapping[str, Any]],
    read: Callable[[Mapping[str, Any]], tuple[dict[K, T], list[str]]],
) -> Steps[tuple[dict[K, T], int]]:
    """The valid entries of all parts, and how many are invalid."""
    found: dict[K, T] = {}
    left_out: list[str] = []
    for part in parts:
        some, odd = read_members(partial(read, part))
        found.update(some)
        left_out += odd
        yield
    return found, bodies.told(left_out)
