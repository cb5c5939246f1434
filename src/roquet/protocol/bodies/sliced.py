"""Encoders of large bodies in slices: each yields between parts and returns the whole body.

The result is, byte for byte, that of `dump_bytes` or `dump_dialect` of the table's `to_json`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar

from roquet.common.steps import Steps, in_parts
from roquet.protocol.bodies.tables import GroupTable, OffsetTable, TopicTable
from roquet.protocol.json.dialect import IntKeys, ObjectKeys, dump_bytes, dump_dialect

T = TypeVar("T")


def members(
    items: Iterable[tuple[str, T]],
    to_json: Callable[[T], Any],
    dump: Callable[[Any], bytes] = dump_bytes,
) -> Steps[bytes]:
    """Encode a table of many members as a JSON object."""
    parts: list[bytes] = []
    for part in in_parts(items):
        parts.append(dump({key: to_json(value) for key, value in part})[1:-1])
        yield
    return b"{" + b",".join(parts) + b"}"


def topic_table(table: TopicTable) -> Steps[bytes]:
    """Encode a topic table, which must not be changed meanwhile."""
    topics = yield from members(table.topics.items(), lambda topic: topic.to_json())
    return b'{"dataVersion":%b,"topicConfigTable":%b}' % (
        dump_bytes(table.version.to_json()),
        topics,
    )


def registration(table: TopicTable) -> Steps[bytes]:
    """Encode `Registration(table)`."""
    topics = yield from topic_table(table)
    return b'{"filterServerList":[],"topicConfigSerializeWrapper":%b}' % topics


def group_table(table: GroupTable) -> Steps[bytes]:
    """Encode a table of groups, which must not be changed meanwhile."""
    groups = yield from members(table.groups.items(), lambda group: group.to_json())
    return b'{"dataVersion":%b,"subscriptionGroupTable":%b}' % (
        dump_bytes(table.version.to_json()),
        groups,
    )


def offset_table(table: OffsetTable) -> Steps[bytes]:
    """Encode a table of consumer offsets, to which no keys may be added meanwhile."""
    items: Iterable[tuple[str, Mapping[int, int]]] = table.offsets.items()
    offsets = yield from members(items, lambda queues: IntKeys(queues), dump_dialect)
    return b'{"offsetTable":%b}' % offsets


def object_keys(items: Iterable[tuple[str, Any]]) -> Steps[bytes]:
    """Encode a table whose keys are JSON objects, in fastjson's dialect."""
    parts: list[bytes] = []
    for part in in_parts(items):
        parts.append(dump_dialect(ObjectKeys(part))[1:-1])
        yield
    return b"{" + b",".join(parts) + b"}"
