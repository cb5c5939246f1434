"""Decodes batches of uniform messages as rows of bytes.

The messages of one producer usually have equal sizes and properties and differ only in body and
unique key. Such a batch is a table of bytes with a row per message, and so are several batches end
to end.
"""

from __future__ import annotations

from dataclasses import dataclass
from struct import Struct
from typing import Final

import numpy as np

from roquet.protocol.records.batch import HEAD
from roquet.protocol.records.columns import Bytes
from roquet.protocol.records.message import UNIQ_KEY
from roquet.protocol.records.uniform import Checksums, checksums

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


def learn_form(data: bytes) -> BatchTemplate | None:
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
