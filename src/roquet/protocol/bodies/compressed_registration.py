"""PURE: codec of compressed registrations, which have a broker's topics, in slices."""

from __future__ import annotations

import zlib
from struct import Struct
from struct import error as struct_error
from typing import Final

from roquet.common.steps import Steps, in_parts
from roquet.protocol.bodies.tables import (
    DIALECT_VALUES_MAX,
    DataVersion,
    Registration,
    TopicConfig,
    TopicTable,
    parse_request,
)
from roquet.protocol.json.dialect import dump_bytes, load
from roquet.protocol.json.numbers import as_int32

_SIZE: Final = Struct(">i")
_AT_ONCE: Final = 16 * 1024
"""Bytes compressed or decompressed per step."""
SIZE_MIN: Final = 1024 * 1024
SIZE_RATIO: Final = 64
"""A decompressed registration may have `SIZE_RATIO` times its compressed size plus `SIZE_MIN`.

Topics with similar names grow to 10 times their compressed size, zeros to 1,000 times.
"""
_PART_SIZE_MAX: Final = 65_536
"""Bytes of each part other than the topics; usual ones have some hundred."""


def read(body: bytes) -> Steps[Registration]:
    """Decode a registration.

    :raises ValueError: it is damaged, or too large when decompressed.
    """
    try:
        raw = yield from _inflated(body)
        version, at = _sized(raw, 0)
        (count,) = _SIZE.unpack_from(raw, at)
        at += _SIZE.size
        topics: dict[str, TopicConfig] = {}
        for part in in_parts(range(count)):
            for _ in part:
                text, at = _sized(raw, at)
                topic = _topic_from_words(text.decode())
                topics[topic.name] = topic
            yield
        servers, _ = _sized(raw, at)
        table = TopicTable(topics, parse_request(version, DataVersion.from_json, _PART_SIZE_MAX))
        if len(servers) > _PART_SIZE_MAX:
            raise ValueError(f"compressed registration: filter servers of {len(servers)} bytes")
        return Registration(table, tuple(map(str, load(servers, DIALECT_VALUES_MAX) or ())))
    except (zlib.error, struct_error, TypeError) as error:
        raise ValueError(f"compressed registration: {error}") from error


def written(registration: Registration) -> Steps[bytes]:
    """Encode a registration, whose topics must not be changed meanwhile."""
    compressing = zlib.compressobj(9)
    topics, table = registration.table.topics, registration.table
    parts = [
        compressing.compress(
            _with_size(dump_bytes(table.version.to_json())) + _SIZE.pack(len(topics))
        )
    ]
    for part in in_parts(topics.values()):
        parts.append(
            compressing.compress(
                b"".join(_with_size(_words_of_topic(topic).encode()) for topic in part)
            )
        )
        yield
    parts.append(compressing.compress(_with_size(dump_bytes(list(registration.filter_servers)))))
    return b"".join([*parts, compressing.flush()])


def _inflated(data: bytes) -> Steps[bytearray]:
    inflating, raw, size_max = zlib.decompressobj(), bytearray(), SIZE_MIN + SIZE_RATIO * len(data)
    while data and not inflating.eof:
        raw += inflating.decompress(data, _AT_ONCE)
        data = inflating.unconsumed_tail
        if len(raw) > size_max:
            raise ValueError(f"compressed registration: larger than {size_max} bytes")
        yield
    if not inflating.eof:
        raise ValueError("compressed registration: cut short")
    return raw


def _with_size(data: bytes) -> bytes:
    return _SIZE.pack(len(data)) + data


def _sized(raw: bytearray, at: int) -> tuple[bytes, int]:
    (size,) = _SIZE.unpack_from(raw, at)
    end = at + _SIZE.size + size
    if size < 0 or end > len(raw):
        raise ValueError(f"compressed registration: a part of {size} bytes at {at} of {len(raw)}")
    return bytes(raw[at + _SIZE.size : end]), end


def _words_of_topic(topic: TopicConfig) -> str:
    return f"{topic.name} {topic.read_queues} {topic.write_queues} {topic.perm} {topic.filter_type}"


def _topic_from_words(text: str) -> TopicConfig:
    """Decode a topic's five words; a sixth one (5.x's attributes) is ignored, with its blanks."""
    name, read, write, perm, filter_type = text.split(" ", 5)[:5]
    return TopicConfig(name, as_int32(read), as_int32(write), as_int32(perm), filter_type)
