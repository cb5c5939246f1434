"""Batches whose messages are alike, as rows of bytes.

Messages of one producer usually have the same sizes and properties but for body and unique key. Such a batch is a
table of bytes, and so are several of them, end to end.
"""

from __future__ import annotations

from dataclasses import dataclass
from struct import Struct
from typing import Final

import numpy as np

from roquet.protocol.records.columns import Bytes
from roquet.protocol.records.message import UNIQ_KEY
from roquet.protocol.records.uniform import Checksums, checksums

_HEAD: Final = Struct(">iiiii")
_BODY_AT: Final = _HEAD.size
_KEY_NAME: Final = UNIQ_KEY.encode() + b"\x01"


@dataclass(frozen=True, slots=True)
class BatchTemplate:
    """What all messages of a batch have in common. Sizes and places in bytes, places within one message.

    `properties` are those of the message it was learnt from; another message's differ in the unique key only, which
    stands from `key_at` to `key_end` (nowhere, where the two are the same).
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
        """Where the unique key stands in a message's properties."""
        return self.key_at - (self.item_size - len(self.properties))

    def rows(self, data: bytes) -> Bytes | None:
        """Batches, end to end, as one row per message; None when their messages are not all of this form."""
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
        """Of each message's body."""
        return checksums(self._body.iter_unpack(data))


def learn_form(data: bytes) -> BatchTemplate | None:
    """The form of the first message of a batch; None where its unique key cannot be told for sure.

    The batch was split before, so its sizes add up.
    """
    size, _, _, flag, body_size = _HEAD.unpack_from(data)
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
    """Where values of the unique key stand in a properties text."""
    places: list[tuple[int, int]] = []
    at = 0
    for segment in properties.split(b"\x02"):
        if segment.startswith(_KEY_NAME):
            places.append((at + len(_KEY_NAME), at + len(segment)))
        at += len(segment) + 1
    return places
