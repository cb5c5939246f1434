"""Large bodies, made a part at a time: each of these yields between parts, and returns the whole body.

What they give is, to the byte, what `dump_bytes` or `dump_dialect` give for the table's `to_json`.
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
    """A table of many members as an object."""
    parts: list[bytes] = []
    for part in in_parts(items):
        parts.append(dump({key: to_json(value) for key, value in part})[1:-1])
        yield
    return b"{" + b",".join(parts) + b"}"


def topic_table(table: TopicTable) -> Steps[bytes]:
    """:param table: one that nobody changes meanwhile."""
    topics = yield from members(table.topics.items(), lambda topic: topic.to_json())
    return b'{"dataVersion":%b,"topicConfigTable":%b}' % (
        dump_bytes(table.version.to_json()),
        topics,
    )


def registration(table: TopicTable) -> Steps[bytes]:
    """`Registration(table)`."""
    topics = yield from topic_table(table)
    return b'{"filterServerList":[],"topicConfigSerializeWrapper":%b}' % topics


def group_table(table: GroupTable) -> Steps[bytes]:
    """:param table: one that nobody changes meanwhile."""
    groups = yield from members(table.groups.items(), lambda group: group.to_json())
    return b'{"dataVersion":%b,"subscriptionGroupTable":%b}' % (
        dump_bytes(table.version.to_json()),
        groups,
    )


def offset_table(table: OffsetTable) -> Steps[bytes]:
    """:param table: one to which nobody adds keys meanwhile."""
    items: Iterable[tuple[str, Mapping[int, int]]] = table.offsets.items()
    offsets = yield from members(items, lambda queues: IntKeys(queues), dump_dialect)
    return b'{"offsetTable":%b}' % offsets


def object_keys(items: Iterable[tuple[str, Any]]) -> Steps[bytes]:
    """A table whose keys are JSON objects, in fastjson's form."""
    parts: list[bytes] = []
    for part in in_parts(items):
        parts.append(dump_dialect(ObjectKeys(part))[1:-1])
        yield
    return b"{" + b",".join(parts) + b"}"
