"""Uniform messages as rows of bytes: batches of them are decoded, and records made, in columns.

The messages of one producer usually have records of one size that differ in the body and in a few
bytes at fixed positions. Storing a hundred of them takes as many operations as storing ten. A batch
of them is a table of bytes with a row per message, and so are several batches end to end.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import starmap
from struct import Struct
from typing import Final
from zlib import crc32

import numpy as np
import numpy.typing as npt

from roquet.protocol.records.batch import HEAD
from roquet.protocol.records.columns import Bytes, Ints
from roquet.protocol.records.layout import CHECKSUM_BITS, NUMPY_TYPES, OFFSETS, fixed_fields
from roquet.protocol.records.message import UNIQ_KEY

Checksums = npt.NDArray[np.uint32]


@dataclass(frozen=True, slots=True)
class UniformBatch:
    """Messages to store whose records have one size and differ at known positions only.

    Times are in ms since the epoch. `body` and `properties` are those of the first message, as
    stored. The properties of other messages differ in `variable_parts`: the byte position in the
    properties and a row per message. `keys` are for the index: the first keys of all messages, then
    their second keys, and so on. `tag_codes` is one per message, or one for all.
    """

    flag: int
    sys_flag: int
    reconsume_times: int
    born_host: bytes
    born_ms: Sequence[int] | Ints
    body: bytes
    properties: bytes
    bodies: Bytes
    checksums: Checksums
    variable_parts: Sequence[tuple[int, Bytes]]
    keys: Sequence[bytes]
    tag_codes: int | Sequence[int]

    def __len__(self) -> int:
        return len(self.bodies)


def view_rows(texts: bytes, count: int) -> Bytes:
    """View `count` texts of one size that are end to end as rows."""
    return np.frombuffer(texts, np.uint8).reshape(count, len(texts) // count)


def checksums(bodies: Iterable[tuple[bytes | memoryview]]) -> Checksums:
    """The checksums of bodies as in a record (docs/protocol/messages.md#stored-message)."""
    return np.fromiter(starmap(crc32, bodies), np.uint32) & np.uint32(CHECKSUM_BITS)


_OF_EACH: Final = ("crc", "queue_id", "queue_offset", "physical_offset", "born_ms")
"""The number fields that differ between records."""


@lru_cache(1024)
def _fields(record_size: int) -> np.dtype[np.void]:
    """A numpy type with the fields `_OF_EACH` of records of that size."""
    return np.dtype(
        {
            "names": _OF_EACH,
            "formats": [NUMPY_TYPES[name] for name in _OF_EACH],
            "offsets": [OFFSETS[name] for name in _OF_EACH],
            "itemsize": record_size,
        }
    )


def record_rows(
    messages: UniformBatch,
    first_record: bytes | bytearray,
    queue_ids: Ints,
    queue_offsets: Ints,
    physical: Ints,
) -> Bytes:
    """Encode the messages as records, one per row.

    :param first_record: the record of the first message. Its number fields are overwritten with the
        values of each message.
    """
    size = len(first_record)
    properties_at = size - len(messages.properties)
    body_at = fixed_fields(messages.sys_flag).size
    records = np.empty((len(messages), size), np.uint8)
    records[:] = np.frombuffer(first_record, np.uint8)
    records[:, body_at : body_at + len(messages.body)] = messages.bodies
    for at, rows in messages.variable_parts:
        records[:, properties_at + at : properties_at + at + rows.shape[1]] = rows
    fields = records.view(_fields(size))[:, 0]
    fields["crc"] = messages.checksums
    fields["queue_id"] = queue_ids
    fields["queue_offset"] = queue_offsets
    fields["physical_offset"] = physical
    fields["born_ms"] = messages.born_ms
    return records


_DIGITS: Final = np.frombuffer(b"".join(b"%02X" % byte for byte in range(256)), np.uint16)
"""Byte -> its two hexadecimal digits."""


def message_ids(host: bytes, physical: Ints) -> bytes:
    """The offset message ids (docs/protocol/messages.md#offset-message-id), a comma after each.

    :param host: address and port of the broker in hexadecimal digits.
    """
    at = len(host)
    ids = np.empty((len(physical), at + 17), np.uint8)
    ids[:, :at] = np.frombuffer(host, np.uint8)
    ids[:, at:-1] = _DIGITS[physical.astype(">i8").view(np.uint8)].view(np.uint8).reshape(-1, 16)
    ids[:, -1] = ord(",")
    return ids.tobytes()


# batches

_BODY_AT: Final = HEAD.size
_KEY_NAME: Final = UNIQ_KEY.encode() + b"\x01"


@dataclass(frozen=True, slots=True)
class BatchTemplate:
    """The layout and the constant bytes of a uniform batch.

    Sizes are in bytes, `..._at` are byte positions within one message of the batch. `properties`
    are those of the message that it was learnt from. Other messages differ in the unique key only,
    from `key_at` to `key_end` (both equal: without a unique key).
    """

    item_size: int
    flag: int
    body_size: int
    properties: bytes
    key_at: int
    key_end: int
    _first: Bytes
    _is_shared: Bytes

    _body: Struct

    @property
    def key_in_properties(self) -> int:
        """Byte position of the unique key in a message's properties."""
        return self.key_at - (self.item_size - len(self.properties))

    def rows(self, data: bytes) -> Bytes | None:
        """Batches end to end as one row per message; None if a message does not match."""
        if not data or len(data) % self.item_size:
            return None
        rows = np.frombuffer(data, np.uint8).reshape(-1, self.item_size)
        if np.count_nonzero((rows ^ self._first) & self._is_shared):
            return None
        if (
            self.key_at < self.key_end
            and not rows[:, self.key_at : self.key_end].tobytes().isalnum()
        ):
            return None
        return rows

    def bodies(self, rows: Bytes) -> Bytes:
        return rows[:, _BODY_AT : _BODY_AT + self.body_size]

    def unique_keys(self, rows: Bytes) -> Bytes:
        return rows[:, self.key_at : self.key_end]

    def checksums(self, data: bytes) -> Checksums:
        """The checksum of each message's body."""
        return checksums(self._body.iter_unpack(data))


def learn_batch(data: bytes) -> BatchTemplate | None:
    """Make the template of a batch from its first message.

    :param data: a batch that `split_batch` accepted: its sizes add up.
    :returns: None if the unique key cannot be located with certainty.
    """
    size, _, _, flag, body_size = HEAD.unpack_from(data)
    properties_at = _BODY_AT + body_size + 2
    properties = data[properties_at:size]
    places = _key_places(properties)
    if len(places) > 1:
        return None
    key_at, key_end = places[0] if places else (len(properties), len(properties))
    if not properties[key_at:key_end].isalnum() and places:
        return None
    first = np.frombuffer(data[:size], np.uint8)
    key_at, key_end = key_at + properties_at, key_end + properties_at
    is_shared = np.full(size, 0xFF, np.uint8)
    is_shared[_BODY_AT : _BODY_AT + body_size] = 0
    is_shared[key_at:key_end] = 0
    body = Struct(f"{_BODY_AT}x{body_size}s{size - _BODY_AT - body_size}x")
    return BatchTemplate(size, flag, body_size, properties, key_at, key_end, first, is_shared, body)


def _key_places(properties: bytes) -> list[tuple[int, int]]:
    """The spans of all values of the unique key in encoded properties."""
    places: list[tuple[int, int]] = []
    at = 0
    for segment in properties.split(b"\x02"):
        if segment.startswith(_KEY_NAME):
            places.append((at + len(_KEY_NAME), at + len(segment)))
        at += len(segment) + 1
    return places
