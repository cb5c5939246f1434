"""PURE: the records of a batch, packed before anybody knows where they will stand in the log."""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from struct import error as struct_error
from typing import Final
from zlib import crc32

import numpy as np

from roquet.protocol.records import message as m
from roquet.protocol.records.columns import Ints, ShortInts, scatter
from roquet.protocol.records.record import (
    MAGIC,
    NO_PLACE,
    UNTELLABLE,
    UNWRITTEN,
    check_sizes,
    fixed_fields,
)
from roquet.storage.log.dispatch_request import keys_by_size

_QUEUE_OFFSET_AT: Final = 20
_PHYSICAL_AT: Final = 28
_STORE_MS_AT: Final = 56
_KEYS_PER_PART: Final = 4096


@dataclass(slots=True)
class BatchItem:
    """One message of a batch, as it is stored."""

    flag: int
    body: bytes
    properties: bytes
    keys: Sequence[bytes]
    tag_code: int


class BatchRecords:
    """Records of one queue, end to end, each of which takes a place in the queue; less than 2 GiB of them.

    Keeps: `data` holds all of every record but for queue offset, physical offset and store time, which `place` writes;
    whatever does not fit its field is refused by `add`, so that nothing is left that can.

    :param sys_flag: with the host bits that fit `born_host` and `store_host`; of no transaction.
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
        self._size = self._fixed.size + len(self._topic) + 2
        self._queue_id, self._sys_flag = queue_id, sys_flag
        self._rest = born_ms, born_host, 0, store_host, reconsume_times, 0
        self._store_ms_at = _STORE_MS_AT + (12 if sys_flag & m.BORN_HOST_V6 else 0)
        self._starts = array("q")
        self._tag_codes = array("q")
        self._keys: dict[int, _Keys] = {}
        self._key_count = 0
        self._key_parts: list[dict[int, _Keys]] = []

    def __len__(self) -> int:
        return len(self._starts)

    def add(self, item: BatchItem) -> None:
        """Pack one more.

        :raises ValueError: a value does not fit its field; these records are of no use any more.
        """
        body, properties = item.body, item.properties
        size = self._size + len(body) + len(properties)
        try:
            check_sizes(0, len(properties))
            if properties.endswith(UNWRITTEN):
                raise ValueError(UNTELLABLE)
            head = self._fixed.pack(
                *(
                    size,
                    MAGIC,
                    crc32(body) & 0x7FFFFFFF,
                    self._queue_id,
                    item.flag,
                    0,
                    0,
                    self._sys_flag,
                ),
                *(*self._rest, len(body)),
            )
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
            self._note(item.keys)

    def _note(self, keys: Sequence[bytes]) -> None:
        start, noted = self._starts[-1], self._keys
        for size, text in keys_by_size(keys).items():
            alike = noted.get(size)
            if alike is None:
                alike = noted[size] = _Keys(bytearray(), array("i"))
            alike.text += text
            alike.starts.extend(array("i", (start,)) * (len(text) // size))
        self._key_count += len(keys)
        if self._key_count >= _KEYS_PER_PART:
            self._key_parts.append(noted)
            self._keys, self._key_count = {}, 0

    def place(self, queue_offset: int, at: int, store_ms: int) -> Ints:
        """Write what follows from where the first record stands; the physical offset of each."""
        starts = np.frombuffer(self._starts, np.int64)
        physical = starts + at
        scatter(
            self.data,
            ">i8",
            starts + _QUEUE_OFFSET_AT,
            np.arange(queue_offset, queue_offset + len(starts)),
        )
        scatter(self.data, ">i8", starts + _PHYSICAL_AT, physical)
        scatter(self.data, ">i8", starts + self._store_ms_at, np.full(len(starts), store_ms))
        return physical

    @property
    def sizes(self) -> Ints:
        """Of each record, in bytes."""
        starts = np.frombuffer(self._starts, np.int64)
        return np.append(starts[1:], len(self.data)) - starts

    @property
    def tag_codes(self) -> Ints:
        return np.frombuffer(self._tag_codes, np.int64)

    def keys_by_part(self) -> Iterator[list[tuple[bytearray, ShortInts]]]:
        """Keys for the index, some thousands of them and then those of later records: those of one size end to end,
        with the index in `data` where each one's record starts.
        """
        for part in (*self._key_parts, self._keys):
            yield [(alike.text, np.frombuffer(alike.starts, np.int32)) for alike in part.values()]


@dataclass(slots=True)
class _Keys:
    """Keys of one size, end to end, and where each one's record starts."""

    text: bytearray
    starts: array[int]
