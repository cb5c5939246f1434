"""Dispatch requests: the fields of a record that queues and index need."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from struct import Struct
from typing import Final, overload

from roquet.protocol.records import message as m
from roquet.protocol.records.columns import Bools, Ints
from roquet.protocol.records.layout import fields_struct, find_parts, offset_of

_HEAD: Final = fields_struct("size", "magic", "queue_id", "queue_offset", "sys_flag")
_STORE_MS_AT: Final = {bit: offset_of("store_ms", bit) for bit in (0, m.BORN_HOST_V6)}
_LONG: Final = Struct(">q")


@dataclass(frozen=True, slots=True)
class DispatchRequest:
    """The fields of one record that dispatch needs; `physical` is its physical offset."""

    topic: str
    queue_id: int
    queue_offset: int
    physical: int
    size: int
    sys_flag: int
    store_ms: int
    properties: dict[str, str]

    @property
    def is_queued(self) -> bool:
        """Whether the record gets a queue entry. Prepared and rolled back records do not."""
        return m.is_queued(self.sys_flag)

    @property
    def delay_level(self) -> str | None:
        """The delay level of a record in the schedule topic, as its property has it; else None."""
        return self.properties.get(m.DELAY) if self.topic == m.SCHEDULE_TOPIC else None

    @property
    def keys(self) -> list[bytes]:
        """The keys of the index, UNIQ_KEY and the words of KEYS."""
        return keys_of(self.properties) if has_keys(self.sys_flag) else []


@overload
def has_keys(sys_flag: int) -> bool: ...
@overload
def has_keys(sys_flag: Ints) -> Bools: ...
def has_keys(sys_flag: int | Ints) -> bool | Bools:
    """Whether a record's keys are indexed. Those of rolled back records are not."""
    return sys_flag & m.TRANSACTION_BITS != m.TRANSACTION_ROLLBACK


def keys_of(properties: Mapping[str, str]) -> list[bytes]:
    """The keys of a message for the index."""
    return index_keys(properties.get(m.UNIQ_KEY, "").encode(), properties.get(m.KEYS, "").encode())


def index_keys(unique_key: bytes, keys: bytes) -> list[bytes]:
    """UNIQ_KEY, then the words of KEYS; either property may be empty."""
    found = [unique_key] if unique_key else []
    if keys:
        found += filter(None, keys.split(b" "))
    return found


def keys_by_size(keys: Sequence[bytes]) -> dict[int, bytes]:
    """Group keys by their size in bytes: the keys of each size end to end, in order."""
    found: dict[int, list[bytes]] = {}
    for key in keys:
        found.setdefault(len(key), []).append(key)
    return {size: b"".join(alike) for size, alike in found.items()}


def read_dispatch_request(at: int, data: memoryview) -> DispatchRequest:
    """Read a record's fields without its body; bytes that are no UTF-8 become U+FFFD.

    :param at: the record's physical offset.
    :raises CorruptRecord: the sizes of the record's parts do not add up.
    """
    size, magic, queue_id, queue_offset, sys_flag = _HEAD.unpack_from(data)
    _, _, topic_at, properties_at = find_parts(data, 0, size, magic, sys_flag, at)
    (store_ms,) = _LONG.unpack_from(data, _STORE_MS_AT[sys_flag & m.BORN_HOST_V6])
    topic = str(data[topic_at : properties_at - 2], "utf-8", "replace")
    properties = m.split_properties(str(data[properties_at:], "utf-8", "replace"))
    return DispatchRequest(topic, queue_id, queue_offset, at, size, sys_flag, store_ms, properties)
