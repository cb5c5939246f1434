"""Every record in arrival order.

See docs/storage/commit-log.md.
"""

from __future__ import annotations

import mmap
from collections.abc import Callable, Iterator, Sequence
from typing import Final

import numpy as np

from roquet.common.units import PhysicalOffset
from roquet.errors import CorruptRecord, DamagedFiles, StoreError, UnreadableFile
from roquet.protocol.records.block import RecordBlock, record_starts
from roquet.protocol.records.columns import Ints
from roquet.protocol.records.record import (
    BLANK_MAGIC,
    BLANK_SIZE,
    HEAD_SIZE,
    MAGIC,
    MAGIC_V2,
    SIZE_MIN,
    blank,
    decode,
    size_and_magic,
    size_at,
)
from roquet.storage.files.deletion import Deletion
from roquet.storage.files.disk import Disk, DiskFile
from roquet.storage.files.folders import LogFolders
from roquet.storage.files.segments import Segments
from roquet.storage.files.sync_failure import SyncHealth
from roquet.storage.log.write_buffer import WriteBuffer

RESERVED_AT_ONCE: Final = 1024 * 1024
_NEAR: Final = 256 * 1024
"""Bytes that one read brings as fast as a few dozen reads bring a piece each."""
BLOCK_SIZE: Final = 1024 * 1024


class CommitLog:
    """Every message of this broker, in arrival order, in files of equal size.

    Keeps: a record never crosses a file; the rest of a full file is one blank record.
           start <= flushed_to <= readable_to <= end; only take, write, replicate, truncate and the blank that closes a
           file move end, each as the last thing it does: whatever fails before leaves the log as it was.
           Once a sync of the store has failed, flushed_to does not move, and no new record is taken.

    :param pool: memory where new records wait until `commit` brings them into their file.
    :param sync_health: of the store whose log it is.
    """

    def __init__(
        self,
        disk: Disk,
        folders: LogFolders,
        file_size: int,
        pool: WriteBuffer | None = None,
        sync_health: SyncHealth | None = None,
    ) -> None:
        self.folders = folders.all
        self._segments = Segments(disk, folders, file_size, "mappedFileSizeCommitLog")
        self.file_size = file_size
        self.end = PhysicalOffset(0)
        self.flushed_to = PhysicalOffset(0)
        self._file: DiskFile | None = None
        self._buffer: mmap.mmap | bytearray = bytearray()
        self._file_start = 0
        self._pool = pool
        self._sync_health = SyncHealth() if sync_health is None else sync_health
        self._committed_to = PhysicalOffset(0)
        self.mapped_from = PhysicalOffset(0)
        """What stands from there on was written by this process: the system has it in memory, as a rule, and gives it
        without asking the drive. What stands before it is read from the files (decision 0026)."""
        self._room_end = 0
        """Up to where the file in use has room on the drive."""
        self._keeps_looks = False
        self._looked: DiskFile | None = None
        """While looks are kept, the file that `mapped` has looked at last."""

    def forget_cached(self, start: int) -> None:
        """Read the files anew that end behind `start`, and make their names durable; before anybody has opened them."""
        self._segments.forget_cached(start)

    def load(self) -> None:
        """Open the files; where valid bytes end is for recovery to say, by `truncate`.

        :raises StoreError: a file that does not belong here.
        """
        try:
            self._segments.load()
        except DamagedFiles as error:
            raise StoreError(f"{error}; {error.advice}") from error
        self.end = self.flushed_to = PhysicalOffset(self._segments.capacity_end)
        self._committed_to = self.end

    @property
    def start(self) -> PhysicalOffset:
        """The first offset that still exists; the end while there is nothing."""
        return PhysicalOffset(self._segments.start) if self._segments.starts else self.end

    @property
    def file_starts(self) -> list[int]:
        return self._segments.starts

    @property
    def readable_to(self) -> PhysicalOffset:
        """Bytes before it are in the files, where everybody sees them."""
        return self.end if self._pool is None else self._committed_to

    @property
    def room(self) -> int:
        """Bytes of records that fit into the file in use."""
        return (
            max(0, self._file_start + self.file_size - self.end - BLANK_SIZE)
            if self._file is not None
            else 0
        )

    def place(self, size: int) -> tuple[mmap.mmap | bytearray, int, PhysicalOffset]:
        """Where the next `size` bytes of records go: a buffer, the index in it, and the physical offset.

        They are not part of the log until `take`: a caller that cannot fill the place leaves it, filled with zeros.

        :raises ValueError, OSError: as `make_room`.
        """
        at = self.make_room(size)
        return self._buffer, at - self._file_start, at

    def take(self, end: PhysicalOffset) -> None:
        """Let the log end at `end`: what the caller wrote to the place behind the former end is part of it now."""
        assert self.end < end <= self._room_end - BLANK_SIZE, "no room was made for it"
        self.end = end

    def make_room(self, size: int) -> PhysicalOffset:
        """See to it that `size` bytes of records fit behind the end; where that is now.

        They fit while 8 bytes remain behind them; else a blank closes the file, as Apache's does, and the log ends
        where the next file begins, even if that cannot be made now.

        :raises ValueError: they are larger than a file. OSError: there is no room on the drive.
        """
        at = self.end
        return at if at + size + BLANK_SIZE <= self._room_end else self._more_room(size)

    def write(self, records: bytes | memoryview) -> None:
        """Write records for which there is room; the log ends behind them. Cheaper than filling a place where there
        are many of them.

        :raises OSError: the drive is full; nothing was written.
        """
        assert self._file is not None
        if self._pool is None:
            self._file.write(self.end - self._file_start, records)
        else:
            index = self.end - self._file_start
            self._buffer[index : index + len(records)] = records
        self.end = PhysicalOffset(self.end + len(records))

    def _more_room(self, size: int) -> PhysicalOffset:
        if size + BLANK_SIZE > self.file_size:
            raise ValueError(
                f"a record of {size} bytes does not fit into a file of {self.file_size}"
            )
        self._sync_health.check()
        self._enter_end()
        if self.end + size + BLANK_SIZE > self._file_start + self.file_size:
            self._close_file()
        self._reserve(size + BLANK_SIZE)
        return self.end

    def _enter_end(self) -> None:
        """Make the file that holds the log's end the one in use; it is made where it is missing."""
        start = self.end - self.end % self.file_size
        if self._file is None or start != self._file_start:
            self.commit()
            file = self._segments.file_at(self.end) if self._segments.starts else None
            if file is not None:
                file.require_whole()
            self._file = file or self._segments.grow(self.end)
            self._buffer = self._file.buffer if self._pool is None else self._pool.memory
            self._file_start, self._room_end = start, self.end

    def _close_file(self) -> None:
        """Fill what is left of the file in use with a blank, and go to the next one."""
        self._reserve(BLANK_SIZE)
        index = self.end - self._file_start
        self._buffer[index : index + BLANK_SIZE] = blank(self.file_size - index)
        self.commit(BLANK_SIZE)
        self._committed_to = self.end = PhysicalOffset(self._file_start + self.file_size)
        self._enter_end()

    def commit(self, more: int = 0) -> None:
        """Bring what waits in the pool into the file in use, with `more` bytes behind the end.

        :raises OSError: that failed; it still waits.
        """
        if self._pool is None or self._file is None:
            return
        start, end = self._committed_to - self._file_start, self.end + more - self._file_start
        if start < end:
            self._file.write(start, memoryview(self._buffer)[start:end])
            self._committed_to = self.end
            self._pool.give_back(start, end)

    def _reserve(self, size: int) -> None:
        """See to it that the drive has room for the next `size` bytes of the file in use, and for some more."""
        assert self._file is not None
        if self.end + size > self._room_end:
            more = max(self.end + size - self._room_end, RESERVED_AT_ONCE)
            room_end = min(self._room_end + more, self._file_start + self.file_size)
            self._file.reserve(self._room_end - self._file_start, room_end - self._file_start)
            self._room_end = room_end

    def replicate(self, at: PhysicalOffset, data: bytes | memoryview) -> None:
        """Write a master's bytes at the same place.

        :raises ValueError: `at` is not the log's end, nor, for an empty log, the start of a file.
        :raises OSError: the drive is full; what is written counts.
        """
        if not self._segments.starts and at % self.file_size == 0:
            self.end = self.flushed_to = self._committed_to = at
        if at != self.end:
            raise ValueError(f"bytes for offset {at}, the log ends at {self.end}")
        self._sync_health.check()
        while data:
            self._enter_end()
            self.require_whole()
            piece = data[: self._file_start + self.file_size - self.end]
            self.write(piece)
            data = data[len(piece) :]

    def read(self, at: PhysicalOffset, size_max: int) -> bytes:
        """Up to `size_max` bytes from `at`, of one file, never beyond the end; none where `at` is not there.

        :raises UnreadableFile: the file has lost them, or the drive does not give them.
        """
        return self._segments.read(at, min(at + size_max, self.readable_to))

    def copies(self, start: PhysicalOffset, end: PhysicalOffset) -> Iterator[bytes]:
        """The bytes from `start` to `end`, in whatever files they are, as `read` gives them."""
        while start < end:
            piece = self.read(start, min(BLOCK_SIZE, end - start))
            if not piece:
                return
            yield piece
            start = PhysicalOffset(start + len(piece))

    def next_data(self, at: PhysicalOffset) -> PhysicalOffset:
        """Where, from `at` on, there may be something else than zeros that were never written; the end for nowhere."""
        return PhysicalOffset(min(self._segments.next_data(at), self.readable_to))

    def record_bytes(self, at: int, size: int) -> bytes | None:
        """The `size` bytes at `at`, which a consume queue entry names; None once their file is deleted."""
        data = self.stored(at, size) if at + size <= self.readable_to else b""
        return data if len(data) == size else None

    def stored(self, at: int, size: int) -> bytes:
        """The `size` bytes at `at`, as far as they are in one file; none once that is deleted. They may wait for a
        `commit`.

        :raises UnreadableFile: as `read`.
        """
        return self._segments.read(at, at + size)

    def runs(self, firsts: Sequence[int], ends: Sequence[int]) -> list[bytes]:
        """What stands from each of `firsts`, which ascend, to the one of `ends` with it, each in one file.

        One read brings them all where there is not much else between them.
        """
        start, end = firsts[0], ends[-1]
        if (
            len(firsts) > 1
            and end - start <= _NEAR
            and start // self.file_size == (end - 1) // self.file_size
        ):
            data = self.stored(start, end - start)
            return [
                data[first - start : last - start] for first, last in zip(firsts, ends, strict=True)
            ]
        return [self.stored(first, last - first) for first, last in zip(firsts, ends, strict=True)]

    def joined(self, physical: Ints, sizes: Ints) -> bytes:
        """The records that stand at these places, whose files are all there, end to end."""
        apart = physical[1:] != physical[:-1] + sizes[:-1]
        apart |= physical[1:] // self.file_size != physical[:-1] // self.file_size
        breaks = np.flatnonzero(apart) + 1
        firsts = physical[np.append(0, breaks)].tolist()
        lasts = (physical + sizes)[np.append(breaks, len(physical)) - 1].tolist()
        return b"".join(self.runs(firsts, lasts))

    def record_at(self, at: int) -> bytes | None:
        """The record at physical offset `at`, None where none stands: clients may ask for any place, also amid a body
        whose bytes say that gigabytes follow.
        """
        size = size_at(self.read(PhysicalOffset(at), HEAD_SIZE), at) if at >= self.start else 0
        if not size:
            return None
        data = self.read(PhysicalOffset(at), size)
        try:
            record = decode(data)
        except CorruptRecord:
            return None
        return data if record.physical_offset == at and len(data) == size else None

    def mapped(self, at: int) -> mmap.mmap | bytearray:
        """All bytes of the file that holds `at`, for who reads them before anything else runs; none where no file does.
        `at` is not before `mapped_from`.

        :raises UnreadableFile: the file has lost bytes.
        """
        file = self._segments.file_at(at)
        if file is None:
            return bytearray()
        if file is not self._looked:
            file.require_whole()
            if self._keeps_looks:
                self._looked = file
        return file.buffer

    def keep_looks(self, is_kept: bool) -> None:
        """Whether `mapped` need not look again at the file that it looked at last: for who reads many records before
        anything else runs. A look took 0.4 us of the 8 us that a fetch of 32 messages takes."""
        self._keeps_looks, self._looked = is_kept, None

    def require_whole(self) -> None:
        """To be called before new records are written.

        :raises UnreadableFile: the file in use is shorter than it was made.
        """
        if self._file is not None:
            self._file.require_whole()

    def blocks(self, at: PhysicalOffset, *, is_whole: bool = False) -> Iterator[RecordBlock]:
        """The records from `at` to the end, many at a time; blanks are skipped.

        A record that is not all here yet ends it.

        :param is_whole: nothing more of a record comes: one that is not all here is none.
        :raises CorruptRecord: what stands there is neither a record nor a blank.
        """
        while at + BLANK_SIZE <= self.readable_to:
            data = self.read(at, BLOCK_SIZE)
            starts, end = record_starts(data)
            if not starts:
                size = self._first_size(at)
                if size is None:
                    at = self.next_file(at)
                    continue
                data = self.read(at, size)
                if len(data) < size and is_whole:
                    raise CorruptRecord(at, f"size {size}, beyond the log's end")
                if len(data) < size:
                    return
                starts, end = [0], size
            yield RecordBlock(at, data, starts, end)
            at = PhysicalOffset(at + end)

    def _first_size(self, at: PhysicalOffset) -> int | None:
        """How large the record at `at` is that is not within a block; None: a blank stands there.

        :raises CorruptRecord: neither does.
        """
        data = self.read(at, BLANK_SIZE)
        if len(data) < BLANK_SIZE:
            raise CorruptRecord(at, "too near to the file's end")
        size, magic = size_and_magic(data, 0)
        if magic == BLANK_MAGIC:
            return None
        if magic not in (MAGIC, MAGIC_V2) or size < SIZE_MIN or at + size > self.next_file(at):
            raise CorruptRecord(at, f"size {size}, magic {magic:#010x}")
        return size

    def is_closed_at(self, at: PhysicalOffset) -> bool:
        """Whether the blank that closes a file stands at `at`."""
        data = self.read(at, BLANK_SIZE)
        return len(data) == BLANK_SIZE and size_and_magic(data, 0)[1] == BLANK_MAGIC

    def walk(self, at: PhysicalOffset) -> Iterator[tuple[PhysicalOffset, memoryview]]:
        """Each record that `blocks` gives, and where it stands."""
        for block in self.blocks(at):
            yield from block.records()

    def next_file(self, at: PhysicalOffset) -> PhysicalOffset:
        """Where the file after the one of `at` begins."""
        return PhysicalOffset(at - at % self.file_size + self.file_size)

    def truncate(self, end: PhysicalOffset) -> None:
        """Let the log end at `end`, delete the files behind it, and zero what stands behind `end` in its file, durably.

        What is left there would be valid again for a later recovery, as soon as new records end where an old one began.

        :raises OSError: a sync has failed, now or before; then nothing was cut, or not all of it.
        """
        self._sync_health.check()  # the drive may have failed for the copy of what is cut off here
        self._segments.drop_after(end)
        self._segments.erase(end)
        self._segments.sync(
            end, self.next_file(end)
        )  # also where nothing was left: who erased it may not have done so
        self.end = end
        self.flushed_to = min(self.flushed_to, end)
        self._committed_to = end
        self._file, self._buffer, self._room_end = None, bytearray(), 0

    def synced_until(self, at: PhysicalOffset) -> None:
        """Note that bytes from `at` on may not be durable: a recovered log's tail is synced anew."""
        self.flushed_to = min(at, self.end)

    def synced(self, end: PhysicalOffset) -> None:
        """Note that all bytes before `end` are durable now, unless the log is closed by a failed sync."""
        if self._sync_health.failure is None:
            self.flushed_to = max(self.flushed_to, end)

    def take_no_more(self) -> None:
        """A sync has failed: `make_room` refuses from now on."""
        self._room_end = 0

    def sync_work(self, end: PhysicalOffset) -> Callable[[], None]:
        """What makes all bytes before `end` durable, may be called off the loop; `synced` notes that it was done."""
        self.commit()
        pieces = list(self._segments.pieces(self.flushed_to, end))

        def work() -> None:
            try:
                for file, first, last in pieces:
                    file.sync(first, last)
            except (
                UnreadableFile
            ) as error:  # of a queue's file the log has a copy; of one of the log nobody has
                self._sync_health.fail(error)
                raise

        return work

    def look_for_names(self) -> None:
        """See whether somebody has deleted or replaced a file, which is told of once; may be called off the loop."""
        self._segments.look_for_names()

    def modified_ms(self, start: int) -> int:
        """When the file that begins at `start` was last written."""
        return self._segments.modified_ms(start)

    def forget_before(self, start: PhysicalOffset) -> list[Deletion]:
        """Forget the files that end at or before `start`; what deletes them may be called off the loop."""
        return self._segments.forget_before(start)

    def close(self) -> None:
        self._segments.close()
