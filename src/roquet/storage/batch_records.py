"""Records of a batch, packed before their physical offsets are known."""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from struct import error as struct_error
from typing import Final, TypeAlias

import numpy as np

from roquet.protocol.records.block import scatter_field
from roquet.protocol.records.columns import Ints, ShortInts
from roquet.protocol.records.layout import (
    FIELDS,
    HOST_BITS,
    MAGIC,
    check_end,
    check_sizes,
    checksum,
    fixed_fields,
)
from roquet.storage.log.dispatch_request import keys_by_size
from roquet.storage.new_record import NO_PLACE

_SIZE, _CRC, _FLAG, _BODY_SIZE = map([*FIELDS].index, ("size", "crc", "flag", "body_size"))
_KEYS_PER_PART: Final = 4096
"""The index hashes a part at a time: hashing a million keys at once would block the event loop."""

_Keys: TypeAlias = "tuple[bytearray, array[int]]"
"""Keys of one size, end to end, and for each the index in `data` where its record starts."""


@dataclass(slots=True)
class BatchItem:
    """One message of a batch; body and properties as stored."""

    flag: int
    body: bytes
    properties: bytes
    keys: Sequence[bytes]
    tag_code: int


class BatchRecords:
    """Packed records of one queue, end to end; each gets a queue entry. Less than 2 GiB in all.

    Invariant: `data` has all bytes of every record but for queue offset, physical offset and store
    time, which `place` writes. `add` refuses values that do not fit their fields, so `place` cannot
    fail.

    :param sys_flag: with the host bits that fit `born_host` and `store_host`, without transaction
        bits.
    """

    def __init__(
        self,
        topic: bytes,
        queue_id: int,
        sys_flag: int,
        born_ms: int,
        born_host: bytes,
        store_host: bytes,
        reconsume_times: int = 0,
    ) -> None:
        check_sizes(len(topic), 0)
        self.data = bytearray()
        self._topic = bytes((len(topic),)) + topic
        self._fixed = fixed_fields(sys_flag)
        self._size_of_rest = self._fixed.size + len(self._topic) + 2
        """Bytes of a record without its body and its properties."""
        given = {
            "magic": MAGIC,
            "queue_id": queue_id,
            "sys_flag": sys_flag,
            "born_ms": born_ms,
            "born_host": born_host,
            "store_host": store_host,
            "reconsume_times": reconsume_times,
        }
        self._values = [given.get(name, 0) for name in FIELDS]
        """The fields of the record that is being packed."""
        self._hosts = sys_flag & HOST_BITS
        self._starts = array("q")
        self._tag_codes = array("q")
        self._keys: dict[int, _Keys] = {}
        """The part of the keys that is being filled, by their size."""
        self._key_count = 0
        self._key_parts: list[dict[int, _Keys]] = []

    def __len__(self) -> int:
        return len(self._starts)

    def add(self, item: BatchItem) -> None:
        """Pack one more record.

        :raises ValueError: a value does not fit its field. The caller must drop the whole batch
            then.
        """
        body, properties, values = item.body, item.properties, self._values
        try:
            check_sizes(0, len(properties))
            check_end(properties)
            values[_SIZE] = self._size_of_rest + len(body) + len(properties)
            values[_CRC] = checksum(body)
            values[_FLAG] = item.flag
            values[_BODY_SIZE] = len(body)
            head = self._fixed.pack(*values)
            self._tag_codes.append(item.tag_code)
        except (struct_error, ValueError, OverflowError) as error:
            raise ValueError(NO_PLACE.format(error)) from error
        self._starts.append(len(self.data))
        self.data += head
        self.data += body
        self.data += self._topic
        self.data += len(properties).to_bytes(2, "big")
        self.data += properties
        if item.keys:
            self._collect_keys(item.keys)

    def _collect_keys(self, keys: Sequence[bytes]) -> None:
        """Add the keys of the last record to the part that is being filled."""
        start = self._starts[-1]
        by_size = self._keys
        for size, text in keys_by_size(keys).items():
            texts, starts = by_size.get(size) or by_size.setdefault(size, (bytearray(), array("i")))
            texts.extend(text)
            starts.extend(array("i", (start,)) * (len(text) // size))
        self._key_count += len(keys)
        if self._key_count >= _KEYS_PER_PART:
            self._key_parts.append(by_size)
            self._keys, self._key_count = {}, 0

    def place(self, queue_offset: int, at: int, store_ms: int) -> Ints:
        """Write the offsets and the store time into all records.

        :param queue_offset: of the first record.
        :param at: physical offset of the first record.
        :returns: the physical offset of each record.
        """
        starts = np.frombuffer(self._starts, np.int64)
        physical = starts + at
        queue_offsets = np.arange(queue_offset, queue_offset + len(starts))
        for name, values in (
            ("queue_offset", queue_offsets),
            ("physical_offset", physical),
            ("store_ms", store_ms),
        ):
            scatter_field(self.data, name, starts, self._hosts, values)
        return physical

    @property
    def sizes(self) -> Ints:
        """The size of each record, in bytes."""
        starts = np.frombuffer(self._starts, np.int64)
        return np.append(starts[1:], len(self.data)) - starts

    @property
    def tag_codes(self) -> Ints:
        return np.frombuffer(self._tag_codes, np.int64)

    def keys_by_part(self) -> Iterator[list[tuple[bytearray, ShortInts]]]:
        """Keys for the index, in parts of some thousands, in the order of the records.

        A part has for each size of keys: the keys end to end, and for each the index in `data`
        where its record starts.
        """
        for part in (*self._key_parts, self._keys):
            yield [(texts, np.frombuffer(starts, np.int32)) for texts, starts in part.values()]
