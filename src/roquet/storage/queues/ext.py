"""Consume queues with extension units: tag code, store time, filter bits (`enableConsumeQueueExt`).

An entry of such a queue has the address of its unit in place of its tag code. The units are in
files beside the queue's own.

See docs/storage/consume-queue.md#extension-units.
"""

from __future__ import annotations

import logging
import mmap
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from struct import Struct
from typing import Final, Protocol

import numpy as np
import numpy.typing as npt

from roquet.errors import UnreadableFile
from roquet.protocol.records.columns import Ints
from roquet.storage.files.deletion import Deletion
from roquet.storage.files.disk import Disk
from roquet.storage.files.folders import LogFolders
from roquet.storage.files.segments import Durable, Segments
from roquet.storage.log.commit_log import CommitLog
from roquet.storage.queues.consume_queue import (
    BLANK_RECORD_SIZE,
    ENTRIES,
    ENTRY,
    ENTRY_SIZE,
    ConsumeQueue,
)

log = logging.getLogger(__name__)

ADDRESS_OF_FIRST: Final = -(1 << 63)
ADDRESS_MAX: Final = -0x80000001
"""The last field of an entry is an address if it is not above this; no tag code is so low."""
_UNIT: Final = Struct(">hqqh")
"""Size of the unit, tag code, store time, size of the filter bits, which follow."""
UNIT_SIZE_MAX: Final = 0x7FFF
_END_OF_FILE: Final = Struct(">h")
_END_MARK: Final = -1
_ROOM_FOR_MARK: Final = 4
_RESERVED_AT_ONCE: Final = 64 * 1024
"""Bytes reserved on the drive at a time, so that few appends need a system call."""


@dataclass(frozen=True, slots=True)
class ExtUnit:
    """The extension unit of a queue entry.

    `bits` is a Bloom filter of the filters that the message passed; empty if it was not computed.
    """

    tag_code: int
    store_ms: int
    bits: bytes = b""


def read_unit(data: bytes | memoryview) -> ExtUnit | None:
    """The unit at the start of `data`, None if there is none."""
    if len(data) < _UNIT.size:
        return None
    size, tag_code, store_ms, bits_size = _UNIT.unpack_from(data)
    if bits_size < 0 or size != _UNIT.size + bits_size or size > len(data):
        return None
    return ExtUnit(tag_code, store_ms, bytes(data[_UNIT.size : size]))


class ExtFile:
    """The extension units of one queue, in files of equal size.

    Invariant: a unit never crosses a file. An end mark (-1) follows the last unit of a file.

    :param bits_size: bytes of filter bits that a unit may have.
    """

    def __init__(self, disk: Disk, folder: Path, file_size: int, bits_size: int = 0) -> None:
        self._segments = Segments(
            disk, LogFolders(disk, [folder]), file_size, "mappedFileSizeConsumeQueueExt"
        )
        self._file_size = file_size
        self._size_max = _UNIT.size + bits_size
        self._end = 0
        self._room_to = 0
        self._durable = Durable(0)

    def load(self) -> None:
        """Open the files.

        :raises StoreError: a file does not belong here.
        """
        self._segments.load()
        self._end = self._segments.start
        self._durable = Durable(self._end)

    def make_room(self, count: int) -> None:
        """Make room for `count` units.

        :raises OSError: the drive is full; nothing changed.
        """
        file = self._segments.file_at(self._end)
        if file is not None:
            file.require_whole()
        end = self._end_after(count)
        if end <= self._room_to:
            return
        while end > self._segments.capacity_end:
            self._segments.grow()
        start = max(self._end, self._room_to)
        room_to = min(end + _RESERVED_AT_ONCE, self._segments.capacity_end)
        for file, first, last in self._segments.pieces(start, room_to):
            file.reserve(first, last)
        self._room_to = room_to

    def _end_after(self, count: int) -> int:
        """The highest end of the mark after `count` more units: if all of them have filter bits."""
        size = self._size_max
        file_end = self._end - self._end % self._file_size + self._file_size
        fitting = max(0, file_end - self._end - _ROOM_FOR_MARK) // size
        if count <= fitting:
            return self._end + count * size + _ROOM_FOR_MARK
        files, more = divmod(count - fitting - 1, (self._file_size - _ROOM_FOR_MARK) // size)
        return file_end + files * self._file_size + (more + 1) * size + _ROOM_FOR_MARK

    def put(self, unit: ExtUnit) -> int:
        """Write a unit, for which there must be room; returns its address."""
        size = _UNIT.size + len(unit.bits)
        index = self._end % self._file_size
        if index + size + _ROOM_FOR_MARK > self._file_size:
            _END_OF_FILE.pack_into(self._buffer(self._end), index, _END_MARK)
            self._end += self._file_size - index
            index = 0
        buffer = self._buffer(self._end)
        _UNIT.pack_into(buffer, index, size, unit.tag_code, unit.store_ms, len(unit.bits))
        buffer[index + _UNIT.size : index + size] = unit.bits
        address = self._end + ADDRESS_OF_FIRST
        self._end += size
        return address

    def _buffer(self, at: int) -> mmap.mmap | bytearray:
        file = self._segments.file_at(at)
        assert file is not None, f"no room was made for an extension unit at {at}"
        return file.buffer

    def get(self, address: int) -> ExtUnit | None:
        """The unit at an address, None if there is none (any more)."""
        at = address - ADDRESS_OF_FIRST
        data = self._segments.read(at, at + self._size_max)
        if len(data) >= 2 and len(data) < (size := _END_OF_FILE.unpack_from(data)[0]):
            data = self._segments.read(at, at + size)
        return read_unit(data)

    def end_behind(self, address: int) -> None:
        """Drop the units after the one at `address`.

        A damaged entry may have any address: if it is in no file, all units stay.
        """
        at = address - ADDRESS_OF_FIRST
        if not self._segments.start <= at < self._segments.capacity_end:
            self.begin_a_file()
            return
        unit = self.get(address)
        end = at + _UNIT.size + len(unit.bits) if unit is not None else at
        self._segments.delete_from(end)
        self._end = end
        self._durable, self._room_to = self._durable.truncated(end), 0

    def begin_a_file(self) -> None:
        """Keep all units; write the next one to a new file."""
        self._end = self._segments.capacity_end
        self._room_to = 0

    @property
    def is_whole(self) -> bool:
        """Whether all files exist and have their size."""
        return self._segments.is_whole

    def sync_work(self) -> Callable[[], None]:
        """A function that makes the present units durable; it may run off the loop."""
        return self._segments.sync_work(self._durable, self._end)

    def forget_before(self, address: int) -> list[Deletion]:
        """Forget the files before the one with the unit at `address`; returns their deletions."""
        return self._segments.forget_before(address - ADDRESS_OF_FIRST)

    def delete_newest_first(self) -> None:
        """Delete all units.

        :raises OSError: a file could not be deleted; the next unit is written after the files left.
        """
        try:
            self._segments.delete_newest_first()
        finally:
            self._end = self._segments.capacity_end
            self._durable, self._room_to = self._durable.truncated(self._end), 0

    def close(self) -> None:
        self._segments.close()


class FilterBits(Protocol):
    """Computes the filter bits of records, `size` bytes each."""

    size: int

    def has_any(self, topic: str) -> bool:
        """Whether records of a topic get filter bits."""

    def of(self, topic: str, record: bytes) -> bytes: ...


class LogFilterBits:
    """Computes the filter bits of records in the log.

    A record gets none while it waits in the memory buffer, or if its file cannot be read.

    :param filter_bits: computes them from a record's bytes.
    """

    def __init__(self, commit_log: CommitLog, filter_bits: FilterBits) -> None:
        self._log = commit_log
        self._filter_bits = filter_bits
        self._without_bits: set[str] = set()
        """Topics for which a failure to compute filter bits was logged."""
        self.size = filter_bits.size

    def of(self, topic: str, at: int, size: int) -> bytes:
        """The filter bits of the record of `size` bytes at physical offset `at`, or no bytes."""
        if not self._filter_bits.has_any(topic):
            return b""
        try:
            record = self._log.record_bytes(at, size)
        except UnreadableFile:
            return b""
        if record is None:
            return b""
        try:
            return self._filter_bits.of(topic, record)
        except Exception:  # the record is in the log: it needs its entry, and can do without bits
            if topic not in self._without_bits:
                self._without_bits.add(topic)
                log.exception(
                    "filter bits cannot be computed, new messages get none: topic=%s", topic
                )
            return b""


class ExtendedQueue(ConsumeQueue):
    """A consume queue whose entries have extension units.

    Entries that were written while the setting was off have none.

    Invariant: the last unit is that of the last entry.

    :param filter_bits: None: the units have no bits.
    """

    __slots__ = ("_filter_bits", "_units")
    _STATE = (*ConsumeQueue._STATE, "_units")

    def __init__(
        self,
        disk: Disk,
        folder: Path,
        file_size: int,
        topic: str,
        queue_id: int,
        units: ExtFile,
        filter_bits: LogFilterBits | None,
    ) -> None:
        super().__init__(disk, folder, file_size, topic, queue_id)
        self._units = units
        self._filter_bits = filter_bits

    def load(self) -> None:
        self._units.load()
        super().load()

    def make_room(self, count: int, first: int | None = None) -> int:
        blanks = first - self.max_offset if first is not None and self._segments.starts else 0
        self._units.make_room(blanks + count)
        super().make_room(count, first)
        # room was made for the units of these entries only
        return (self.max_offset if first is None else first) + count

    def put(self, offset: int, physical: int, size: int, tag_code: int, store_ms: int) -> None:
        bits = b""
        if self._filter_bits is not None and size != BLANK_RECORD_SIZE:
            bits = self._filter_bits.of(self.topic, physical, size)
        super().put(
            offset, physical, size, self._units.put(ExtUnit(tag_code, store_ms, bits)), store_ms
        )

    def put_many(self, entries: bytes, _log_end: int, store_ms: int | Ints) -> None:
        times: list[int] = np.broadcast_to(store_ms, len(entries) // ENTRY_SIZE).tolist()
        for (physical, size, tag_code), time_ms in zip(
            ENTRY.iter_unpack(entries), times, strict=True
        ):
            self.put(self.max_offset, physical, size, tag_code, time_ms)

    def entries(self, offset: int, count_max: int) -> Iterator[tuple[int, int, int]]:
        for physical, size, code in super().entries(offset, count_max):
            unit = self._units.get(code) if code <= ADDRESS_MAX else None
            yield physical, size, code if unit is None else unit.tag_code

    def columns(self, offset: int, count_max: int) -> npt.NDArray[np.void]:
        return np.array(list(self.entries(offset, count_max)), ENTRIES)

    def unit(self, offset: int) -> ExtUnit | None:
        """The extension unit of one entry, None if it has none."""
        last = next(self._entries(offset, offset + 1), None)
        return self._units.get(last[2]) if last is not None and last[2] <= ADDRESS_MAX else None

    def filter_bits(self, offset: int) -> tuple[int, bytes] | None:
        unit = self.unit(offset)
        return (unit.store_ms, unit.bits) if unit is not None and unit.bits else None

    def _end_at(self, offset: int) -> None:
        super()._end_at(offset)
        last = next(self._entries(offset - 1, offset), None) if self.max_offset else None
        if last is not None and last[2] <= ADDRESS_MAX:
            self._units.end_behind(last[2])
        elif last is not None:
            self._units.begin_a_file()

    def trim(self, log_start: int) -> list[Deletion]:
        deletions = super().trim(log_start)
        first = next(self._entries(self.min_offset, self.min_offset + 1), None)
        return deletions + (
            self._units.forget_before(first[2])
            if first is not None and first[2] <= ADDRESS_MAX
            else []
        )

    @property
    def is_whole(self) -> bool:
        return super().is_whole and self._units.is_whole

    def sync_work(self) -> Callable[[], None] | None:
        sync_entries = super().sync_work()
        sync_units = self._units.sync_work()
        if sync_entries is None:
            return None

        def work() -> None:
            sync_units()  # first: a durable entry must not name a unit that a crash may take
            sync_entries()

        return work

    def delete_oldest_first(self) -> None:
        super().delete_oldest_first()
        self._units.delete_newest_first()

    def delete_newest_first(self) -> None:
        super().delete_newest_first()
        self._units.delete_newest_first()

    def close(self) -> None:
        super().close()
        self._units.close()
