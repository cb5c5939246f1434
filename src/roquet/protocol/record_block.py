"""Many stored records that stand end to end, read in columns: a hundred of them cost little more than ten."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from struct import Struct
from typing import Any, Final
from zlib import crc32

import numpy as np

from roquet.protocol.columns import Bools, Ints, gather
from roquet.protocol.message import BORN_HOST_V6, STORE_HOST_V6
from roquet.protocol.record import MAGIC, MAGIC_V2, SIZE_MIN
from roquet.units import PhysicalOffset

_SIZE_AND_MAGIC: Final = Struct(">II")
_V6_MORE: Final = 12


def record_starts(data: bytes) -> tuple[list[int], int]:
    """Where each whole record in `data` starts, and where the last of them ends; the first one starts at 0."""
    starts: list[int] = []
    at, end, read = 0, len(data), _SIZE_AND_MAGIC.unpack_from
    while end - at >= SIZE_MIN:
        size, magic = read(data, at)
        if size < SIZE_MIN or at + size > end or magic not in (MAGIC, MAGIC_V2):
            break
        starts.append(at)
        at += size
    return starts, at


@dataclass(frozen=True, slots=True)
class Shape:
    """Indexes in the data of a block: where the parts of each record begin and end; `sound`: they add up."""

    body_at: Ints
    body_end: Ints
    topic_at: Ints
    topic_end: Ints
    properties_at: Ints
    sound: Bools


class RecordBlock:
    """Records from physical offset `at` on, whole and end to end; columns have a value for each.

    :param data: the records' bytes, and maybe more behind them.
    :param starts: index of each record's first byte in `data`, from `record_starts`.
    :param end: index of the first byte behind the last record.
    """

    def __init__(self, at: int, data: bytes, starts: Sequence[int], end: int) -> None:
        self.at = at
        self.data = data
        self.starts: Ints = np.array(starts, np.int64)
        self.ends: Ints = np.append(self.starts[1:], end)

    def __len__(self) -> int:
        return len(self.starts)

    def records(self) -> Iterator[tuple[PhysicalOffset, memoryview]]:
        """Where each record stands in the log, and its bytes."""
        view = memoryview(self.data)
        for start, end in zip(self.starts.tolist(), self.ends.tolist(), strict=True):
            yield PhysicalOffset(self.at + start), view[start:end]

    def column(self, dtype: str, at: Ints) -> Ints:
        """The number that stands so and so many bytes into the data; the last one there, where it would be outside."""
        return gather(self.data, dtype, np.clip(at, 0, len(self.data) - np.dtype(dtype).itemsize)).astype(np.int64)

    @property
    def sizes(self) -> Ints:
        return self.ends - self.starts

    @property
    def physical(self) -> Ints:
        """Where each record stands in the log, which is not read from it."""
        return self.starts + self.at

    def field(self, dtype: str, index: int) -> Ints:
        """A field in front of the first host."""
        return self.column(dtype, self.starts + index)

    @property
    def sys_flags(self) -> Ints:
        return self.field(">i4", 36)

    @property
    def store_ms(self) -> Ints:
        return self.column(">i8", self.starts + 56 + _more(self.sys_flags, BORN_HOST_V6))

    def shape(self) -> Shape:
        """Where the parts of the records are."""
        flags = self.sys_flags
        body_at = self.starts + 88 + _more(flags, BORN_HOST_V6) + _more(flags, STORE_HOST_V6)
        body_end = body_at + self.column(">i4", body_at - 4)
        is_short = self.field(">u4", 4) == MAGIC
        topic_size = self.column(">u1", body_end)
        if not is_short.all():
            topic_size = np.where(is_short, topic_size, self.column(">u2", body_end))
        topic_at = body_end + np.where(is_short, 1, 2)
        topic_end = topic_at + topic_size
        properties_at = topic_end + 2
        adds_up = properties_at + self.column(">u2", topic_end) == self.ends
        return Shape(body_at, body_end, topic_at, topic_end, properties_at, adds_up & (body_at <= body_end))

    def sound_count(self, *, verify: bool) -> int:
        """How many records, from the first on, are what `record.check` takes for sound."""
        shape = self.shape()
        is_sound = shape.sound & (self.field(">i8", 28) == self.physical)
        count = len(self) if is_sound.all() else int(is_sound.argmin())
        count = self._written_count(shape, count)
        return self._unchanged_count(shape, count) if verify else count

    def _written_count(self, shape: Shape, count: int) -> int:
        """How many of the first `count` have topic and properties to their ends: zeros are what was not written."""
        data = self.data
        columns = (shape.topic_at, shape.topic_end, shape.properties_at, self.ends)
        parts = zip(*(column[:count].tolist() for column in columns), strict=True)
        for number, (topic_at, topic_end, properties_at, end) in enumerate(parts):
            if data.find(0, topic_at, topic_end) >= 0 or (properties_at < end and not data[end - 1]):
                return number
        return count

    def _unchanged_count(self, shape: Shape, count: int) -> int:
        """How many of the first `count` have bodies with the stored checksum."""
        view = memoryview(self.data)
        columns = (shape.body_at, shape.body_end, self.field(">u4", 8))
        for number, (start, end, crc) in enumerate(zip(*(column[:count].tolist() for column in columns), strict=True)):
            if crc32(view[start:end]) & 0x7FFFFFFF != crc:
                return number
        return count


def _more(sys_flags: Ints, bit: int) -> Any:
    """How many bytes an address takes beyond an IPv4 one."""
    return np.where(sys_flags & bit, _V6_MORE, 0)
