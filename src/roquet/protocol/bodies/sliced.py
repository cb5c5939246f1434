"""Codecs of large bodies in slices: each yields between parts.

An encoder returns, byte for byte, `dump_bytes` or `dump_dialect` of the body's `to_json`. A decoder
returns what `from_json` of the table's type returns.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any, Final, TypeVar

from roquet.common.steps import Steps, in_parts
from roquet.protocol.bodies.body import Table, log_left_out
from roquet.protocol.bodies.tables import TopicTable, read_members
from roquet.protocol.json.dialect import ObjectKeys, dump_bytes, dump_dialect
from roquet.protocol.json.sliced import load_parts

T = TypeVar("T", bound=Table)

_WRAPPER: Final = "topicConfigSerializeWrapper"


def encode_table(body: Table, dump: Callable[[Any], bytes] = dump_bytes) -> Steps[bytes]:
    """Encode a body whose first table is large, and must not be changed meanwhile.

    :param dump: `dump_dialect` if there are integer keys.
    """
    table = body.first_table_field()
    items = getattr(body, table.field_name).items()
    large = yield from _members(items, lambda part: dump(table.write(part)))
    rest = body.with_entries({}).to_json()
    members = (
        b'"%b":%b' % (name.encode(), large if name == table.member_name else dump(member))
        for name, member in rest.items()
    )
    return b"{%b}" % b",".join(members)


def encode_registration(topics: TopicTable) -> Steps[bytes]:
    """Encode `Registration(topics)`."""
    encoded = yield from encode_table(topics)
    return b'{"filterServerList":[],"%b":%b}' % (_WRAPPER.encode(), encoded)


def encode_object_keys(items: Iterable[tuple[str, Any]]) -> Steps[bytes]:
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


def decode_table(kind: type[T], text: bytes, dialect_values_max: int | None = None) -> Steps[T]:
    """Decode a body whose first table is large.

    :param dialect_values_max: as in `load_parts`.
    :raises ValueError: the text is no such body.
    """
    document, parts = yield from load_parts(
        text, (kind.first_table_field().member_name,), dialect_values_max
    )
    return (yield from _joined(kind, document, parts))


def decode_registration(text: bytes, dialect_values_max: int | None = None) -> Steps[TopicTable]:
    """Decode the topics of a JSON registration.

    :param dialect_values_max: as in `decode_table`.
    :raises ValueError: the text is no registration.
    """
    path = (_WRAPPER, TopicTable.first_table_field().member_name)
    document, parts = yield from load_parts(text, path, dialect_values_max)
    wrapped = document.get(_WRAPPER) or {}
    if not isinstance(wrapped, dict):
        raise ValueError(f"JSON: {_WRAPPER} is no object")
    return (yield from _joined(TopicTable, wrapped, parts))


def _joined(kind: type[T], document: Mapping[str, Any], parts: list[dict[str, Any]]) -> Steps[T]:
    """The body whose large table has these parts."""
    table = kind.first_table_field()
    rest = read_members(lambda: kind.from_json({**document, table.member_name: {}}))
    found: dict[Any, Any] = {}
    left_out: list[str] = []
    for part in parts:
        found.update(read_members(partial(table.read, part, left_out)))
        yield
    return rest.with_entries(found, log_left_out(left_out))
