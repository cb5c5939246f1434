"""Batches whose messages are alike, as rows of bytes: what differs per message is moved in columns.

Messages of one producer usually have the same sizes and properties but for body and unique key. Such a batch is a
table of bytes; storing it takes a few operations on columns instead of some for every message.
"""

from __future__ import annotations

from dataclasses import dataclass
from struct import Struct
from typing import Final
from zlib import crc32

import numpy as np
import numpy.typing as npt

from roquet.protocol.message import UNIQ_KEY

Rows = npt.NDArray[np.uint8]

_HEAD: Final = Struct(">iiiii")
_BODY_AT: Final = _HEAD.size
_KEY_NAME: Final = UNIQ_KEY.encode() + b"\x01"
_CRC_AT, _QUEUE_OFFSET_AT, _PHYSICAL_AT = 8, 20, 28


@dataclass(frozen=True, slots=True)
class BatchForm:
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
    _first: Rows
    _is_shared: Rows

    @property
    def properties_at(self) -> int:
        return self.item_size - len(self.properties)

    def rows(self, data: bytes) -> Rows | None:
        """The batch as one row per message, None when its messages are not all of this form."""
        if not data or len(data) % self.item_size:
            return None
        rows = np.frombuffer(data, np.uint8).reshape(-1, self.item_size)
        if np.count_nonzero((rows ^ self._first) & self._is_shared):
            return None
        if self.key_at < self.key_end and not rows[:, self.key_at : self.key_end].tobytes().isalnum():
            return None
        return rows

    def unique_keys(self, data: bytes) -> list[bytes]:
        """The unique key of each message."""
        size, key_at, key_size = self.item_size, self.key_at, self.key_end - self.key_at
        return [data[at : at + key_size] for at in range(key_at, len(data), size)]


def learn_form(data: bytes) -> BatchForm | None:
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
    return BatchForm(size, flag, body_size, properties, key_at, key_end, first, is_shared)


def _key_places(properties: bytes) -> list[tuple[int, int]]:
    """Where values of the unique key stand in a properties text."""
    places: list[tuple[int, int]] = []
    at = 0
    for segment in properties.split(b"\x02"):
        if segment.startswith(_KEY_NAME):
            places.append((at + len(_KEY_NAME), at + len(segment)))
        at += len(segment) + 1
    return places


_FIELDS: dict[int, np.dtype[np.void]] = {}
_FIELDS_MAX: Final = 1024


def _fields(record_size: int) -> np.dtype[np.void]:
    """The fields of a record that differ from row to row, in a record of that size."""
    found = _FIELDS.get(record_size)
    if found is None:
        if len(_FIELDS) >= _FIELDS_MAX:
            _FIELDS.clear()
        found = _FIELDS[record_size] = np.dtype(
            {
                "names": ["crc", "queue_offset", "physical"],
                "formats": [">u4", ">i8", ">i8"],
                "offsets": [_CRC_AT, _QUEUE_OFFSET_AT, _PHYSICAL_AT],
                "itemsize": record_size,
            }
        )
    return found


def record_rows(
    form: BatchForm,
    data: bytes,
    rows: Rows,
    first_record: bytes,
    body_at: int,
    properties_at: int,
    queue_offset: int,
    physical: int,
) -> Rows:
    """Stored messages, one per row, from the batch they came in.

    :param first_record: the record of the batch's first message, whole; the others differ from it as the rows do.
    :param body_at: where the body stands in a record, `properties_at` where the batch's properties do.
    """
    count, size = len(rows), len(first_record)
    records = np.empty((count, size), np.uint8)
    records[:] = np.frombuffer(first_record, np.uint8)
    records[:, body_at : body_at + form.body_size] = rows[:, _BODY_AT : _BODY_AT + form.body_size]
    if form.key_at < form.key_end:  # else they have no unique keys
        key_at = properties_at + form.key_at - form.properties_at
        key_end = key_at + form.key_end - form.key_at
        records[:, key_at:key_end] = rows[:, form.key_at : form.key_end]
    fields = records.view(_fields(size))[:, 0]
    fields["crc"] = _checksums(form, data)
    fields["queue_offset"] = np.arange(queue_offset, queue_offset + count)
    fields["physical"] = np.arange(physical, physical + count * size, size)
    return records


def _checksums(form: BatchForm, data: bytes) -> list[int]:
    size, end = form.item_size, form.body_size
    return [crc32(data[at : at + end]) & 0x7FFFFFFF for at in range(_BODY_AT, len(data), size)]
