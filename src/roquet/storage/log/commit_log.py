"""The commit log: all records of a broker in the order of arrival.

See docs/storage/commit-log.md.
"""

from __future__ import annotations

import mmap
from collections.abc import Callable, Iterator, Sequence
from typing import Final

import numpy as np

from roquet.errors import CorruptRecord, DamagedFiles, StoreError, UnreadableFile
from roquet.protocol.records.block import RecordBlock, record_starts
from roquet.protocol.records.columns import Ints
from roquet.protocol.records.layout import (
    BLANK_MAGIC,
    BLANK_SIZE,
    HEAD_SIZE,
    blank,
    is_record_head,
    size_and_magic,
    size_at,
)
from roquet.protocol.records.record import decode
from roquet.storage.files.deletion import Deletion
from roquet.storage.files.disk import Disk, DiskFile
from roquet.storage.files.folders import LogFolders
from roquet.storage.files.segments import Segments
from roquet.storage.files.sync_failure import SyncHealth
from roquet.storage.log.write_buffer import WriteBuffer

RESERVED_AT_ONCE: Final = 1024 * 1024
"""Bytes reserved on the drive by one system call: the larger, the fewer appends need one
(decision 0010)."""
_NEAR: Final = 256 * 1024
"""One read of 256 KiB is as fast as a few dozen reads of small pieces."""
BLOCK_SIZE: Final = 1024 * 1024
"""Bytes read at a time when records are walked or copied."""


class CommitLog:
    """The records of one broker in the order of arrival, in segments of equal size.

    Invariant: a record never crosses a segment; one blank fills the rest of a full one. start <=
    flushed_to <= readable_to <= end. Only `take`, `write`, `replicate`, `truncate` and the blank
    that closes a file move `end`, each as its last step, so that a failure before it leaves the log
    as it was (`replicate` also sets the start of an empty log). Once a sync of the store has
    failed, `flushed_to` does not move and no new record is accepted.

    :param pool: memory where new records wait until `commit` writes them to their file.
    :param sync_health: of the store that the log belongs to.
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
        self.end = 0
        """The physical offset of the next record."""
        self.flushed_to = 0
        """The log is durable up to this physical offset."""
        self._file: DiskFile | None = None
        self._buffer: mmap.mmap | bytearray = bytearray()
        self._file_start = 0
        self._pool = pool
        self._sync_health = SyncHealth() if sync_health is None else sync_health
        self._committed_to = 0
        self.mapped_from = 0
        """Bytes from this physical offset on were written by this process. They are in the page
        cache as a rule and are read through the mapping; earlier ones are read with `pread`
        (decision 0026)."""
        self._room_end = 0
        """The physical offset up to which the file in use has room on the drive."""
        self._remembers_checked_file = False
        self._checked_file: DiskFile | None = None
        """The file that `mapped` checked last; None unless `remember_checked_file` is set."""

    def forget_cached(self, start: int) -> None:
        """Drop cached pages of the files that end after `start`, and make their names durable.

        To be called before a file is mapped.
        """
        self._segments.forget_cached(start)

    def load(self) -> None:
        """Open the files. Recovery finds the end of the valid bytes and sets it by `truncate`.

        :raises StoreError: a file does not belong here, has another size or is missing.
        """
        try:
            self._segments.load()
        except DamagedFiles as error:
            raise StoreError(f"{error}; {error.advice}") from error
        self.end = self.flushed_to = self._segments.capacity_end
        self._committed_to = self.end

    @property
    def start(self) -> int:
        """Physical offset of the first byte that still exists; `end` while there are no files."""
        return self._segments.start if self._segments.starts else self.end

    @property
    def file_starts(self) -> list[int]:
        return self._segments.starts

    @property
    def readable_to(self) -> int:
        """The physical offset before which bytes are in the files, and not only in the buffer."""
        return self.end if self._pool is None else self._committed_to

    @property
    def room(self) -> int:
        """Bytes of records that still fit into the file in use."""
        return (
            max(0, self._file_start + self.file_size - self.end - BLANK_SIZE)
            if self._file is not None
            else 0
        )

    def place(self, size: int) -> tuple[mmap.mmap | bytearray, int, int]:
        """Prepare to write `size` bytes of records after the log's end.

        The bytes become part of the log by `take`. A caller that cannot fill them leaves them as
        zeros.

        :returns: a buffer, the index in it, and the physical offset.
        :raises ValueError, OSError: as `make_room`.
        """
        at = self.end
        if at + size + BLANK_SIZE > self._room_end:  # `make_room` inlined: no call per send
            at = self._more_room(size)
        return self._buffer, at - self._file_start, at

    def take(self, end: int) -> None:
        """Move the log's end to `end`, after the caller has written the bytes before it."""
        assert self.end < end <= self._room_end - BLANK_SIZE, "no room was made for it"
        self.end = end

    def make_room(self, size: int) -> int:
        """Make sure that `size` bytes of records fit after the log's end.

        They fit if 8 bytes (`BLANK_SIZE`) remain after them. Otherwise a blank closes the file, as
        in Apache, and the log ends where the next file begins, even if that file cannot be made
        now.

        :returns: the log's end.
        :raises ValueError: the records are larger than a file.
        :raises OSError: there is no room on the drive.
        """
        at = self.end
        return at if at + size + BLANK_SIZE <= self._room_end else self._more_room(size)

    def write(self, records: bytes | memoryview) -> None:
        """Append records for which `make_room` has made room.

        One `pwrite` for a run of records took 0.16 us of kernel time per message instead of the
        0.38 us of page faults (decision 0008). For a single record `place` and `take` are cheaper.

        :raises OSError: the drive is full; nothing was written.
        """
        assert self._file is not None
        if self._pool is None:
            self._file.write(self.end - self._file_start, records)
        else:
            index = self.end - self._file_start
            self._buffer[index : index + len(records)] = records
        self.end = self.end + len(records)

    def _more_room(self, size: int) -> int:
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
        """Make the file that holds the log's end the file in use; create it if it is missing."""
        start = self.end - self.end % self.file_size
        if self._file is None or start != self._file_start:
            self.commit()
            file = self._segments.file_at(self.end) if self._segments.starts else None
            if file is not None:
                file.require_whole()
            self._file = file or self._segments.grow(self.end)
            self._buffer = self._file.buffer if self._pool is None else self._pool.memory
            self._file_start = start
            self._room_end = self.end

    def _close_file(self) -> None:
        """Fill the rest of the file in use with a blank, and enter the next file."""
        self._reserve(BLANK_SIZE)
        index = self.end - self._file_start
        self._buffer[index : index + BLANK_SIZE] = blank(self.file_size - index)
        self.commit(BLANK_SIZE)
        self._committed_to = self.end = self._file_start + self.file_size
        self._enter_end()

    def commit(self, more: int = 0) -> None:
        """Write the records that wait in the memory buffer to the file in use.

        :param more: bytes after the log's end to write as well.
        :raises OSError: the write failed; the records still wait.
        """
        if self._pool is None or self._file is None:
            return
        start, end = self._committed_to - self._file_start, self.end + more - self._file_start
        if start < end:
            self._file.write(start, memoryview(self._buffer)[start:end])
            self._committed_to = self.end
            self._pool.give_back(start, end)

    def _reserve(self, size: int) -> None:
        """Reserve room on the drive for at least `size` more bytes of the file in use."""
        assert self._file is not None
        if self.end + size > self._room_end:
            more = max(self.end + size - self._room_end, RESERVED_AT_ONCE)
            room_end = min(self._room_end + more, self._file_start + self.file_size)
            self._file.reserve(self._room_end - self._file_start, room_end - self._file_start)
            self._room_end = room_end

    def replicate(self, physical: int, data: bytes | memoryview) -> None:
        """Append bytes of the master's log at the physical offset that they have there.

        :raises ValueError: `physical` is not the log's end, nor the start of a file (empty log).
        :raises OSError: the drive is full; the bytes before the new `end` were written.
        """
        if not self._segments.starts and physical % self.file_size == 0:
            self.end = self.flushed_to = self._committed_to = physical
        if physical != self.end:
            raise ValueError(f"bytes for offset {physical}, the log ends at {self.end}")
        self._sync_health.check()
        while data:
            self._enter_end()
            self.require_whole()
            piece = data[: self._file_start + self.file_size - self.end]
            self.write(piece)
            data = data[len(piece) :]

    def read(self, physical: int, size_max: int) -> bytes:
        """Up to `size_max` bytes from `physical`, of one file and before `readable_to`.

        Empty if the log has no byte at `physical`.

        :raises UnreadableFile: the file was truncated, or the drive cannot read the bytes.
        """
        return self._segments.read(physical, min(physical + size_max, self.readable_to))

    def copies(self, start: int, end: int) -> Iterator[bytes]:
        """The bytes from `start` to `end` as `read` returns them, across files."""
        while start < end:
            piece = self.read(start, min(BLOCK_SIZE, end - start))
            if not piece:
                return
            yield piece
            start = start + len(piece)

    def next_data(self, physical: int) -> int:
        """The first physical offset from `physical` on that is not in a sparse part of a file.

        It is the end if there is none.

        Sparse parts of files were never written and read as zeros.
        """
        return min(self._segments.next_data(physical), self.readable_to)

    def record_bytes(self, at: int, size: int) -> bytes | None:
        """The `size` bytes at `at`, which a queue entry names; None once their file is deleted."""
        data = self.stored(at, size) if at + size <= self.readable_to else b""
        return data if len(data) == size else None

    def stored(self, at: int, size: int) -> bytes:
        """The `size` bytes at `at`, up to the end of the file; empty once the file is deleted.

        It may read beyond `readable_to`: those bytes are zeros until a `commit`.

        :raises UnreadableFile: as `read`.
        """
        return self._segments.read(at, at + size)

    def runs(self, firsts: Sequence[int], ends: Sequence[int]) -> list[bytes]:
        """The bytes from each of `firsts` to the matching one of `ends`.

        All are read at once if they are near each other.

        :param firsts: ascending; each run is within one file.
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
        """The records at these physical offsets, end to end; their files must all exist."""
        apart = physical[1:] != physical[:-1] + sizes[:-1]
        apart |= physical[1:] // self.file_size != physical[:-1] // self.file_size
        breaks = np.flatnonzero(apart) + 1
        firsts = physical[np.append(0, breaks)].tolist()
        lasts = (physical + sizes)[np.append(breaks, len(physical)) - 1].tolist()
        return b"".join(self.runs(firsts, lasts))

    def record_at(self, at: int) -> bytes | None:
        """The record at physical offset `at`; None if no record begins there.

        Clients may ask for any offset. The size is checked before the bytes are read, since bytes
        within a body may look like a record of gigabytes.
        """
        size = size_at(self.read(at, HEAD_SIZE), at) if at >= self.start else 0
        if not size:
            return None
        data = self.read(at, size)
        try:
            decode(data)
        except CorruptRecord:
            return None
        return data

    def mapped(self, at: int) -> mmap.mmap | bytearray:
        """The buffer of the file that holds `at`; empty if there is no such file.

        The caller reads from it before anything else runs: the file may be truncated at any time.

        :param at: not before `mapped_from`.
        :raises UnreadableFile: the file was truncated.
        """
        file = self._segments.file_at(at)
        if file is None:
            return bytearray()
        if file is not self._checked_file:
            file.require_whole()
            if self._remembers_checked_file:
                self._checked_file = file
        return file.buffer

    def remember_checked_file(self, is_remembered: bool) -> None:
        """Set whether `mapped` remembers the file that it checked last, to check it only once.

        It is set by callers that fetch many times before anything else runs. A check took 0.4 us of
        the 8 us of a fetch of 32 messages.
        """
        self._remembers_checked_file = is_remembered
        self._checked_file = None

    def require_whole(self) -> None:
        """Check, before new records are written, that the file in use was not truncated.

        :raises UnreadableFile: the file is shorter than it was made.
        """
        if self._file is not None:
            self._file.require_whole()

    def blocks(self, physical: int, *, is_whole: bool = False) -> Iterator[RecordBlock]:
        """The records from `physical` to the end in blocks of many; blanks are skipped.

        It ends at a record whose bytes are not all in the log yet.

        :param is_whole: no more bytes will follow, so that an incomplete record is damage.
        :raises CorruptRecord: neither a record nor a blank begins there.
        """
        while physical + BLANK_SIZE <= self.readable_to:
            data = self.read(physical, BLOCK_SIZE)
            starts, end = record_starts(data)
            if not starts:
                size = self._first_size(physical)
                if size is None:
                    physical = self.next_file(physical)
                    continue
                data = self.read(physical, size)
                if len(data) < size and is_whole:
                    raise CorruptRecord(physical, f"size {size}, beyond the log's end")
                if len(data) < size:
                    return
                starts, end = [0], size
            yield RecordBlock(physical, data, starts, end)
            physical = physical + end

    def _first_size(self, physical: int) -> int | None:
        """The size of the record at `physical`, which is longer than a block; None for a blank.

        :raises CorruptRecord: neither a record nor a blank begins there.
        """
        data = self.read(physical, BLANK_SIZE)
        if len(data) < BLANK_SIZE:
            raise CorruptRecord(physical, "too near to the file's end")
        size, magic = size_and_magic(data, 0)
        if magic == BLANK_MAGIC:
            return None
        if not is_record_head(size, magic, self.next_file(physical) - physical):
            raise CorruptRecord(physical, f"size {size}, magic {magic:#010x}")
        return size

    def is_closed_at(self, physical: int) -> bool:
        """Whether the blank that closes a file begins at `physical`."""
        data = self.read(physical, BLANK_SIZE)
        return len(data) == BLANK_SIZE and size_and_magic(data, 0)[1] == BLANK_MAGIC

    def walk(self, physical: int) -> Iterator[tuple[int, memoryview]]:
        """Each record of `blocks` with its physical offset."""
        for block in self.blocks(physical):
            yield from block.records()

    def next_file(self, physical: int) -> int:
        """The start of the file after the one that holds `physical`."""
        return physical - physical % self.file_size + self.file_size

    def truncate(self, end: int) -> None:
        """End the log at `end`: delete the files after it, and zero the rest of its file, durably.

        Old records left there would become valid for a later recovery as soon as new records end
        where an old one begins.

        :raises OSError: a sync has failed, now or before; the log was truncated in part or not at
            all.
        """
        self._sync_health.check()  # the drive may have failed while `save_tail` copied the tail
        self._segments.delete_from(end)
        self._segments.erase(end)
        # also if all was zero: a process that erased it before may have been killed before its sync
        self._segments.sync(end, self.next_file(end))
        self.end = end
        self.flushed_to = min(self.flushed_to, end)
        self._committed_to = end
        self._file, self._buffer, self._room_end = None, bytearray(), 0

    def reset_flushed_to(self, physical: int) -> None:
        """Set `flushed_to` back to `physical`: a recovered log may not be durable from there on."""
        self.flushed_to = min(physical, self.end)

    def synced(self, end: int) -> None:
        """Move `flushed_to` to `end` after a sync, unless a sync of the store has failed."""
        if self._sync_health.failure is None:
            self.flushed_to = max(self.flushed_to, end)

    def refuse_appends(self) -> None:
        """Let `make_room` refuse from now on, since a sync has failed."""
        self._room_end = 0

    def sync_work(self, end: int) -> Callable[[], None]:
        """A function that makes the bytes before `end` durable; it may run off the loop.

        The caller calls `synced` when it has run.
        """
        self.commit()
        pieces = list(self._segments.pieces(self.flushed_to, end))

        def work() -> None:
            try:
                for file, first, last in pieces:
                    file.sync(first, last)
            except UnreadableFile as error:
                # a queue can be rebuilt from the log, but a lost segment has no copy here
                self._sync_health.fail(error)
                raise

        return work

    def look_for_names(self) -> None:
        """Log, once each, files that were deleted or replaced; may be called off the loop."""
        self._segments.look_for_names()

    def modified_ms(self, start: int) -> int:
        """When the file that begins at `start` was last written, ms since 1970."""
        return self._segments.modified_ms(start)

    def forget_before(self, start: int) -> list[Deletion]:
        """Forget the files that end at or before `start`; returns their deletions."""
        return self._segments.forget_before(start)

    def close(self) -> None:
        self._segments.close()
