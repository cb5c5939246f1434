"""Encoders of large bodies in slices: each yields between parts and returns the whole body.

The result is, byte for byte, that of `dump_bytes` or `dump_dialect` of the body's `to_json`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from roquet.common.steps import Steps, in_parts
from roquet.protocol.bodies.body import Table
from roquet.protocol.bodies.tables import TopicTable
from roquet.protocol.json.dialect import ObjectKeys, dump_bytes, dump_dialect


def table(body: Table, dump: Callable[[Any], bytes] = dump_bytes) -> Steps[bytes]:
    """Encode a body whose first table is large, and must not be changed meanwhile.

    :param dump: `dump_dialect` if there are integer keys.
    """
    entries = body.entries()
    items = getattr(body, entries.field).items()
    large = yield from _members(items, lambda part: dump(entries.write(part)))
    rest = body.with_entries({}).to_json()
    members = (
        b'"%b":%b' % (name.encode(), large if name == entries.name else dump(member))
        for name, member in rest.items()
    )
    return b"{%b}" % b",".join(members)


def registration(topics: TopicTable) -> Steps[bytes]:
    """Encode `Registration(topics)`."""
    encoded = yield from table(topics)
    return b'{"filterServerList":[],"topicConfigSerializeWrapper":%b}' % encoded


def object_keys(items: Iterable[tuple[str, Any]]) -> Steps[bytes]:
    """Encode a table whose keys are JSON objects, in fastjson's dialect."""
    return (yield from _members(items, lambda part: dump_dialect(ObjectKeys(part))))


def _members(
    items: Iterable[tuple[str, Any]], dump: Callable[[Iterable[tuple[str, Any]]], bytes]
) -> Steps[bytes]:
    """Encode the members of an object, some of them at once."""
    parts: list[bytes] = []
    for part in in_parts(items):
        parts.append(dump(part)[1:-1])
        yield
    return b"{" + b",".join(parts) + b"}"
