"""Every record in arrival order (store-and-ha.md 2)."""

from __future__ import annotations

import mmap
from collections.abc import Iterator
from pathlib import Path

from roquet.errors import CorruptRecord
from roquet.protocol.record import BLANK_MAGIC, BLANK_SIZE, MAGIC, MAGIC_V2, SIZE_MIN, blank, decode, size_and_magic
from roquet.storage.disk import Disk, DiskFile
from roquet.storage.segments import Segments
from roquet.units import PhysicalOffset


class CommitLog:
    """Every message of this broker, in arrival order, in files of equal size.

    Keeps: a record never crosses a file; the rest of a full file is one blank record.
           start <= flushed_to <= end; only place, write, replicate and truncate move end.
    """

    def __init__(self, disk: Disk, folder: Path, file_size: int) -> None:
        self._segments = Segments(disk, folder, file_size)
        self.file_size = file_size
        self.end = PhysicalOffset(0)
        self.flushed_to = PhysicalOffset(0)
        self._file: DiskFile | None = None
        self._buffer: mmap.mmap | bytearray = bytearray()
        self._file_start = 0
        self._room_end = 0

    def load(self) -> None:
        """Open the files; where valid bytes end is for recovery to say, by `truncate`.

        :raises StoreError: a file that does not belong here.
        """
        self._segments.load()
        self.end = self.flushed_to = PhysicalOffset(self._segments.capacity_end)

    @property
    def start(self) -> PhysicalOffset:
        """The first offset that still exists; the end while there is nothing."""
        return PhysicalOffset(self._segments.start) if self._segments.starts else self.end

    @property
    def file_starts(self) -> list[int]:
        return self._segments.starts

    @property
    def room(self) -> int:
        """Bytes of records that fit into the file in use."""
        return max(0, self._room_end - self.end - BLANK_SIZE)

    def place(self, size: int) -> tuple[mmap.mmap | bytearray, int, PhysicalOffset]:
        """Take the next `size` bytes for a record: a buffer, the index in it, and the physical offset.

        The caller fills them before anything else runs.
        """
        at = self.make_room(size)
        self.end = PhysicalOffset(at + size)
        return self._buffer, at - self._file_start, at

    def make_room(self, size: int) -> PhysicalOffset:
        """See to it that `size` bytes of records fit behind the end; where that is now.

        They fit while 8 bytes remain behind them; else a blank closes the file (store-and-ha.md 2.3).

        :raises ValueError: they are larger than a file. OSError: there is no room for another file.
        """
        at = self.end
        return at if at + size + BLANK_SIZE <= self._room_end else self._roll(size)

    def write(self, records: bytes | memoryview) -> None:
        """Write records for which there is room. Cheaper than filling a place where there are many of them.

        :raises OSError: the drive is full; nothing was written.
        """
        assert self._file is not None
        self._file.write(self.end - self._file_start, records)
        self.end = PhysicalOffset(self.end + len(records))

    def _roll(self, size: int) -> PhysicalOffset:
        """Where a record of `size` bytes goes when it does not fit into the file in use."""
        if size + BLANK_SIZE > self.file_size:
            raise ValueError(f"a record of {size} bytes does not fit into a file of {self.file_size}")
        if not self._enter(self.end):
            self._segments.grow(self.end)
            self._enter(self.end)
        if self.end + size + BLANK_SIZE > self._room_end:
            index = self.end - self._file_start
            self._buffer[index : index + BLANK_SIZE] = blank(self._room_end - self.end)
            self.end = PhysicalOffset(self._room_end)
            self._segments.grow()
            self._enter(self.end)
        return self.end

    def _enter(self, at: int) -> bool:
        """Make the file that holds `at` the one in use, if there is one."""
        file = self._segments.file_at(at) if self._segments.starts else None
        if file is None:
            return False
        self._file, self._buffer = file, file.buffer
        self._file_start = at - at % self.file_size
        self._room_end = self._file_start + self.file_size
        return True

    def replicate(self, at: PhysicalOffset, data: bytes | memoryview) -> None:
        """Write a master's bytes at the same place.

        :raises ValueError: `at` is not the log's end, nor, for an empty log, the start of a file.
        :raises OSError: the drive is full; what is written counts.
        """
        if not self._segments.starts and at % self.file_size == 0:
            self.end = self.flushed_to = at
        if at != self.end:
            raise ValueError(f"bytes for offset {at}, the log ends at {self.end}")
        while data:
            if not self._enter(self.end):
                self._segments.grow(self.end)
                self._enter(self.end)
            piece = data[: self._room_end - self.end]
            self.write(piece)
            data = data[len(piece) :]

    def read(self, at: PhysicalOffset, size_max: int) -> memoryview:
        """Up to `size_max` bytes from `at`, of one file, never beyond the end; none where `at` is not there."""
        return self._segments.read(at, min(at + size_max, self.end))

    def record_bytes(self, at: int, size: int) -> bytes | None:
        """The `size` bytes at `at`, which a consume queue entry names; None once their file is deleted."""
        index = at % self.file_size
        data = self.file_buffer(at)[index : index + size]
        return bytes(data) if len(data) == size else None

    def record_at(self, at: int) -> bytes | None:
        """The record at physical offset `at`, None where none stands."""
        data = self.read(PhysicalOffset(at), self.file_size) if at >= self.start else memoryview(b"")
        try:
            record = decode(data)
        except CorruptRecord:
            return None
        size = int.from_bytes(data[:4], "big")
        return bytes(data[:size]) if record.physical_offset == at else None

    def file_buffer(self, at: int) -> mmap.mmap | bytearray:
        """All bytes of the file that holds `at`; none once it is deleted."""
        file = self._segments.file_at(at)
        return file.buffer if file is not None else bytearray()

    def walk(self, at: PhysicalOffset) -> Iterator[tuple[PhysicalOffset, memoryview]]:
        """Each whole record from `at` to the end, blanks skipped; a record that is not all here yet ends the walk.

        :raises CorruptRecord: what stands there is neither a record nor a blank.
        """
        while at + BLANK_SIZE <= self.end:
            data = self.read(at, self.file_size)
            if len(data) < BLANK_SIZE:
                raise CorruptRecord(at, "too near to the file's end")
            size, magic = size_and_magic(data, 0)
            if magic == BLANK_MAGIC:
                at = self.next_file(at)
                continue
            if magic not in (MAGIC, MAGIC_V2) or size < SIZE_MIN or at + size > self.next_file(at):
                raise CorruptRecord(at, f"size {size}, magic {magic:#010x}")
            if size > len(data):
                return
            yield at, data[:size]
            at = PhysicalOffset(at + size)

    def next_file(self, at: PhysicalOffset) -> PhysicalOffset:
        """Where the file after the one of `at` begins."""
        return PhysicalOffset(at - at % self.file_size + self.file_size)

    def truncate(self, end: PhysicalOffset, *, erase: bool) -> None:
        """Let the log end at `end`, and delete the files behind it.

        :param erase: also zero what stands behind `end` in its file, so that no later recovery takes it for valid.
        """
        self._segments.drop_after(end)
        if erase:
            self._segments.erase(end)
        self.end = end
        self.flushed_to = min(self.flushed_to, end)
        self._file, self._buffer, self._file_start, self._room_end = None, bytearray(), 0, 0

    def synced_until(self, at: PhysicalOffset) -> None:
        """Note that bytes from `at` on may not be durable: a recovered log's tail is synced anew."""
        self.flushed_to = min(at, self.end)

    def synced(self, end: PhysicalOffset) -> None:
        """Note that all bytes before `end` are durable now."""
        self.flushed_to = max(self.flushed_to, end)

    def sync(self, end: PhysicalOffset) -> None:
        """Make all bytes before `end` durable; may be called off the loop. Does not move `flushed_to`."""
        self._segments.sync(self.flushed_to, end)

    def close(self) -> None:
        self._segments.close()
