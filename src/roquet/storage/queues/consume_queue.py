"""A consume queue: per message an entry of fixed size that points into the commit log.

See docs/storage/consume-queue.md.
"""

from __future__ import annotations

import mmap
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from struct import Struct
from typing import ClassVar, Final

import numpy as np
import numpy.typing as npt

from roquet.common.java import LONG_MAX
from roquet.errors import UnreadableFile
from roquet.protocol.records.columns import Ints
from roquet.protocol.records.layout import SIZE_MIN
from roquet.storage.files.deletion import Deletion
from roquet.storage.files.disk import Disk, DiskFile
from roquet.storage.files.folders import LogFolders
from roquet.storage.files.segments import Durable, Segments

ENTRY: Final = Struct(">qiq")
"""Physical offset, record size, tag code (schedule topic: delivery time)."""
ENTRY_SIZE: Final = ENTRY.size
ENTRIES: Final = np.dtype([("physical", ">i8"), ("size", ">i4"), ("tag_code", ">i8")])
"""`ENTRY` as a numpy type."""
BLANK_RECORD_SIZE: Final = 0x7FFFFFFF
"""The record size in a blank: an entry that points to no record."""
BLANK_ENTRY: Final = ENTRY.pack(0, BLANK_RECORD_SIZE, 0)
"""Fills a file up to the first entry of a queue that does not begin at the file's start."""
_RESERVED_AT_ONCE: Final = 32 * 1024
"""Bytes reserved on the drive at a time, so that few appends need a system call."""
_LOOKED_AT_ONCE: Final = 4096
"""Entries read at a time in the search for one that is no blank."""
OFFSET_END: Final = (1 << 62) // ENTRY_SIZE
"""Queue offsets are below it, so that the byte positions of entries fit into a signed long."""


def entry_rows(
    physical: Ints, sizes: int | Ints, tag_codes: int | Sequence[int] | Ints
) -> npt.NDArray[np.void]:
    """Pack entries, one per physical offset.

    :param sizes: of each record, or one size for all; likewise `tag_codes`.
    """
    entries = np.empty(len(physical), ENTRIES)
    entries["physical"] = physical
    entries["size"] = sizes
    entries["tag_code"] = tag_codes
    return entries


@lru_cache(4096)
def _entries_struct(count: int) -> Struct:
    """`count` entries without their tag codes."""
    return Struct(">" + "qi8x" * count)


def record_end(physical: int, size: int) -> int:
    """The end in the log of an entry's record; a blank has no record and ends where it is."""
    return physical + (size if size != BLANK_RECORD_SIZE else 0)


def _is_leading_blank(physical: int, size: int) -> bool:
    return size == BLANK_RECORD_SIZE and not physical


@dataclass(slots=True)
class Appended:
    """Counts of the records appended since the store was opened, and their bytes.

    Replicated records do not count. The writer counts, which has the queue at hand: the broker
    would look up the topic for each message, in every handler that appends.
    """

    messages: int = 0
    size: int = 0


class ConsumeQueue:
    """The entries of one queue of a topic.

    `log_end` is the end of the last entry's record in the log. If the last entry is a blank, it is
    the physical offset in that blank.

    Invariant: `min_offset <= max_offset`. The entry of queue offset n is at byte n * 20. The files
    of the entries before `room_to` are open and whole and have room on the drive, so that `put`
    cannot fail for them.
    """

    _STATE: ClassVar[tuple[str, ...]] = (
        "_buffer",
        "_durable",
        "_file_end",
        "_file_start",
        "_require_file",
        "_reserved_to",
        "_segments",
        "log_end",
        "max_offset",
        "min_offset",
        "room_to",
        "written_from",
    )
    """The attributes that `adopt` takes over from a rebuilt queue."""

    __slots__ = (
        "_buffer",
        "_durable",
        "_file_end",
        "_file_size",
        "_file_start",
        "_require_file",
        "_reserved_to",
        "_segments",
        "appended",
        "is_lost",
        "log_end",
        "max_offset",
        "min_offset",
        "queue_id",
        "replacement",
        "room_to",
        "topic",
        "topic_bytes",
        "written_from",
    )

    def __init__(self, disk: Disk, folder: Path, file_size: int, topic: str, queue_id: int) -> None:
        self.topic = topic
        self.queue_id = queue_id
        self.topic_bytes = topic.encode()
        self._segments = Segments(
            disk, LogFolders(disk, [folder]), file_size, "mappedFileSizeConsumeQueue"
        )
        self._file_size = file_size
        self.min_offset = 0
        """Queue offset of the first message whose record is still in the log."""
        self.max_offset = 0
        """Queue offset of the next message."""
        self.log_end = 0
        self._durable = Durable(0)
        self._buffer: mmap.mmap | bytearray = bytearray()
        self._require_file: Callable[[], None] = lambda: None
        """The check of the file in use."""
        self._file_start = 0
        self._file_end = 0
        self.room_to = 0
        """Entries before this queue offset can be written without `make_room`. The writer resets it
        to 0 to force a check that the file was not truncated."""
        self._reserved_to = 0
        """Queue offset up to which the queue's own files have room on the drive."""
        self.written_from = 0
        """Entries from this queue offset on were written by this process. A fetch compares earlier
        ones with their records, since a crash may have damaged them."""
        self.is_lost = False
        """Whether the queue is being rebuilt: it has its offsets, but returns and accepts no
        entry."""
        self.replacement: ConsumeQueue | None = None
        """The queue that is being filled from the log; None unless this one is lost."""
        self.appended = Appended()
        """The queues of a topic share one; in the schedule topic each delay level has its own."""

    def load(self) -> None:
        """Open the files and find the queue's end.

        That is the end of the unbroken run of entries in the last file that has any. After a crash
        the files may have other bytes after the last valid entry; recovery removes them by
        `truncate`.

        :raises StoreError: a file does not belong here.
        :raises DamagedFiles: a file has another size or is missing.
        """
        segments = self._segments
        segments.load()
        for start in reversed(segments.starts):
            count = self._first_false(
                start, segments.capacity_end, lambda at, size: at >= 0 and size > 0
            )
            if count:
                self.min_offset = segments.start // ENTRY_SIZE
                self._end_at(start // ENTRY_SIZE + count)
                self._durable = Durable(self.max_offset * ENTRY_SIZE)
                self.written_from = self.max_offset
                return
        # there is no entry, or none survived a crash: the next may have any offset
        self.delete_newest_first()

    def _first_false(self, start: int, end: int, is_so: Callable[[int, int], bool]) -> int:
        """Count the entries at the start of a file for which `is_so` holds, by binary search.

        :param start: the file's first byte.
        :param end: entries from this byte on are not counted.
        :param is_so: takes physical offset and size; true up to some entry and false after it.
        """
        low, high = 0, (min(end, start + self._file_size) - start) // ENTRY_SIZE
        while low < high:
            middle = (low + high) // 2
            at = start + middle * ENTRY_SIZE
            physical, size, _ = ENTRY.unpack(self._segments.read(at, at + ENTRY_SIZE))
            if is_so(physical, size):
                low = middle + 1
            else:
                high = middle
        return low

    def make_room(self, count: int, first: int | None = None) -> int:
        """Make sure that the next `count` entries have files, which are whole, and room.

        :param first: queue offset of the first of them, if it is not the next one.
        :returns: the queue offset up to which there is room, often more than was asked for.
        :raises UnreadableFile: one of the files is shorter than it was made.
        :raises OSError: the drive is full, or the process is short of file descriptors for a new
            queue; nothing changed.
        """
        start = self.max_offset if first is None else first
        self._require_whole(start + count)
        if start + count > self._reserved_to:
            if self._segments.starts:
                self._reserve(start + count)
            else:
                self._make_first_file(start, start + count)
        return self._reserved_to

    def _make_first_file(self, first: int, end_offset: int) -> None:
        """Create the first file for entries from queue offset `first` on, and reserve their room.

        :raises OSError: the drive is full; there is no file, and the queue's offsets are as before.
        """
        self._segments.require_descriptors()
        before = self.max_offset
        file = self._segments.grow(first * ENTRY_SIZE)
        try:
            self._blank(file, first * ENTRY_SIZE % self._file_size)
            self.begin_at(first)
            self._reserve(end_offset)
        except OSError:
            self.delete_newest_first()
            self.begin_at(before)
            raise

    @property
    def is_in_use(self) -> bool:
        """Whether this process has made room for entries, so that a file is open."""
        return self._reserved_to > 0

    def _reserve(self, end_offset: int) -> None:
        """Reserve room on the drive for at least the entries before queue offset `end_offset`."""
        segments = self._segments
        end = end_offset * ENTRY_SIZE
        while end > segments.capacity_end:
            segments.grow()
        reserved = max(self._reserved_to, self.max_offset) * ENTRY_SIZE
        end = min(segments.capacity_end, max(end, reserved + _RESERVED_AT_ONCE))
        for file, first_byte, last_byte in segments.pieces(reserved, end):
            file.reserve(first_byte, last_byte)
        self._reserved_to = end // ENTRY_SIZE

    def _require_whole(self, end_offset: int) -> None:
        """Check the existing files of the next entries, those before queue offset `end_offset`."""
        at, end = self.max_offset * ENTRY_SIZE, end_offset * ENTRY_SIZE
        if self._file_start <= at < self._file_end:
            self._require_file()
            at = self._file_end
        if at < end:
            for file, _, _ in self._segments.pieces(at, end):
                file.require_whole()

    @staticmethod
    def _blank(file: DiskFile, end: int) -> None:
        """Fill the bytes of a new file before `end` with blank entries."""
        if end:
            file.reserve(0, end)
            file.buffer[:end] = BLANK_ENTRY * (end // ENTRY_SIZE)

    def begin_at(self, offset: int) -> None:
        """Let a queue without entries begin at `offset`; nothing is written."""
        self.min_offset = self.max_offset = offset

    def can_go_on_at(self, offset: int) -> bool:
        """Whether the next entry may be that of queue offset `offset`.

        An empty queue may begin at any offset. Otherwise at most one file of entries may be left
        out.
        """
        if not self._segments.starts:
            return 0 <= offset < OFFSET_END
        return 0 <= offset - self.max_offset <= self._file_size // ENTRY_SIZE

    def skip_to(self, offset: int) -> None:
        """Write blanks up to queue offset `offset`, for which there must be room.

        They have the end of the last record as physical offset, so that the physical offsets in a
        queue ascend.
        """
        log_end = self.log_end
        for _ in range(self.max_offset, offset):
            self.put_blank(log_end)

    def put_blank(self, physical: int) -> None:
        """Write a blank for the damaged record at `physical`; there must be room for it."""
        self.put(self.max_offset, physical, BLANK_RECORD_SIZE, 0, 0)
        self.log_end = physical

    def put(
        self,
        offset: int,
        physical: int,
        size: int,
        tag_code: int,
        store_ms: int,  # noqa: ARG002 - queues with extension units keep it
    ) -> None:
        """Write the entry of queue offset `offset`, for which there must be room."""
        at = offset * ENTRY_SIZE
        if not self._file_start <= at < self._file_end:
            self._enter(at)
        ENTRY.pack_into(self._buffer, at - self._file_start, physical, size, tag_code)
        self.max_offset = offset + 1
        self.log_end = physical + size

    def put_many(
        self,
        entries: bytes,
        log_end: int,
        store_ms: int | Ints,  # noqa: ARG002 - queues with extension units keep it
    ) -> None:
        """Write the next entries, for which there must be room.

        :param entries: the bytes of `entry_rows`.
        :param log_end: the end of the last entry's record in the log.
        :param store_ms: of each record, or one time for all; only queues with extension units keep
            it.
        """
        at = self.max_offset * ENTRY_SIZE
        end = at + len(entries)
        if self._file_start <= at < end <= self._file_end:
            self._buffer[at - self._file_start : end - self._file_start] = entries
        else:
            self._put_across(memoryview(entries), at)
        self.max_offset = end // ENTRY_SIZE
        self.log_end = log_end

    def _put_across(self, entries: memoryview, at: int) -> None:
        """Write entries from byte `at` on across files."""
        while entries:
            if not self._file_start <= at < self._file_end:
                self._enter(at)
            piece = entries[: self._file_end - at]
            self._buffer[at - self._file_start : at - self._file_start + len(piece)] = piece
            at, entries = at + len(piece), entries[len(piece) :]

    def _enter(self, at: int) -> None:
        """Make the file of byte `at` the one in use."""
        file = self._segments.file_at(at)
        assert file is not None, (
            f"{self.topic}:{self.queue_id} has no file for entry {at // ENTRY_SIZE}"
        )
        file.require_whole()
        self._buffer, self._require_file = file.buffer, file.require_whole
        self._file_start = at - at % self._file_size
        self._file_end = self._file_start + self._file_size

    def _leave_file(self) -> None:
        """Use no file until the next `make_room`."""
        self._file_start = self._file_end = self.room_to = self._reserved_to = 0

    def entries(self, offset: int, count_max: int) -> Iterator[tuple[int, int, int]]:
        """Physical offset, size and tag code of at most `count_max` entries of one file."""
        return self._entries(offset, min(self.max_offset, offset + count_max))

    def _entries(self, offset: int, end: int) -> Iterator[tuple[int, int, int]]:
        return ENTRY.iter_unpack(self._segments.read(offset * ENTRY_SIZE, end * ENTRY_SIZE))

    def columns(self, offset: int, count_max: int) -> npt.NDArray[np.void]:
        """`entries` as rows of `ENTRIES`."""
        end = min(self.max_offset, offset + count_max)
        return np.frombuffer(self._segments.read(offset * ENTRY_SIZE, end * ENTRY_SIZE), ENTRIES)

    def places_and_sizes(
        self, offset: int, count_max: int
    ) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Physical offsets and record sizes of `entries`, as two tuples."""
        at = offset * ENTRY_SIZE
        file = self._segments.file_at(at)
        if file is None:
            return (), ()
        index = at % self._file_size
        count = min(count_max, self.max_offset - offset, (self._file_size - index) // ENTRY_SIZE)
        values = _entries_struct(count).unpack(file.read(index, count * ENTRY_SIZE))
        return values[::2], values[1::2]

    def entry(self, offset: int) -> tuple[int, int, int] | None:
        """The entry at a queue offset, None if there is none."""
        if not self.min_offset <= offset < self.max_offset:
            return None
        return next(self.entries(offset, 1), None)

    def end_before(self, log_end: int) -> int:
        """The queue offset after the last entry of a record before `log_end`; 0 if none is."""
        end = self.max_offset * ENTRY_SIZE
        for start in reversed(self._segments.starts):
            count = self._first_false(start, end, lambda at, size: at < log_end)
            if count:
                return start // ENTRY_SIZE + count
        return 0

    def filter_bits(self, _offset: int) -> tuple[int, bytes] | None:
        """Store time (ms) and filter bits of an entry's message; None if it has no filter bits."""
        return None

    def last_within(self, spans: Sequence[tuple[int, int]]) -> tuple[int, int] | None:
        """Queue offset and physical offset of the last record within one of the `spans`, if any.

        :param spans: start and end of parts of the log, ascending.
        """
        per_file = self._file_size // ENTRY_SIZE
        end = self.max_offset
        while end > self.min_offset:
            begin = max(self.min_offset, (end - 1) // per_file * per_file)
            entries = self.columns(begin, end - begin)
            physical, ends = (
                entries["physical"].astype(np.int64),
                entries["physical"] + entries["size"].astype(np.int64),
            )
            is_within = np.zeros(len(entries), bool)
            for first, last in spans:
                is_within |= (physical >= first) & (ends <= last) & (entries["size"] >= SIZE_MIN)
            found = np.flatnonzero(is_within)
            if len(found):
                return begin + int(found[-1]), int(physical[found[-1]])
            if int(physical[0]) < spans[0][0]:
                return None
            end = begin
        return None

    @property
    def end_max(self) -> int:
        """The greatest next offset that the files have room for; also if they cannot be read."""
        return self._segments.capacity_end // ENTRY_SIZE if self._segments.starts else 0

    @property
    def has_bytes_behind(self) -> bool:
        """Whether the place of the next entry is not zero: damage, after a clean stop."""
        at = self.max_offset * ENTRY_SIZE
        return any(self._segments.read(at, at + ENTRY_SIZE))

    def next_file(self, offset: int) -> int:
        """The first queue offset of the file after the one that holds `offset`."""
        per_file = self._file_size // ENTRY_SIZE
        return (offset // per_file + 1) * per_file

    def truncate(self, log_end: int) -> None:
        """Keep the entries of records before physical offset `log_end`, which must be there all.

        Later entries may be garbage after a crash, in any file, so each file is searched from the
        last one back. A later entry may look like an earlier one, but then none after it does.
        """
        for start in reversed(self._segments.starts):
            kept = self._first_false(
                start, self.max_offset * ENTRY_SIZE, lambda at, size: size > 0 and 0 <= at < log_end
            )
            if kept:
                self._end_at(start // ENTRY_SIZE + kept)
                self._erase_rest()
                return
        self.delete_newest_first()

    def drop_last(self) -> None:
        """Drop the last entry."""
        self._end_at(self.max_offset - 1)
        self._erase_rest()

    def _erase_rest(self) -> None:
        """Zero the bytes after the last entry in its file.

        The next checkpoint syncs that file even if they were zeros already: the process that wrote
        the zeros may have been killed before its sync. Until then a recovery truncates the queue at
        the same offset or an earlier one.
        """
        self._segments.erase(self.max_offset * ENTRY_SIZE)
        self._durable = self._durable.truncated((self.max_offset - 1) * ENTRY_SIZE)

    def _end_at(self, offset: int) -> None:
        """End the queue before `offset`; if only leading blanks are left, empty it."""
        segments = self._segments
        last = (
            next(self._entries(offset - 1, offset), None)
            if offset * ENTRY_SIZE > segments.start
            else None
        )
        if last is None or _is_leading_blank(last[0], last[1]):
            self.delete_newest_first()
            return
        segments.delete_from(offset * ENTRY_SIZE)
        self.max_offset = offset
        self.min_offset = min(self.min_offset, offset)
        self.written_from = min(self.written_from, offset)
        self.log_end = record_end(last[0], last[1])
        self._durable = self._durable.truncated(offset * ENTRY_SIZE)
        self._leave_file()

    def first_at(self, log_at: int) -> int:
        """The first queue offset whose record is not before `log_at` in the log, or the end."""
        end = self.max_offset * ENTRY_SIZE
        for start in self._segments.starts:
            before = self._first_false(
                start, end, lambda at, size: at < log_at or _is_leading_blank(at, size)
            )
            if start + before * ENTRY_SIZE < min(end, start + self._file_size):
                return start // ENTRY_SIZE + before
        return self.max_offset

    @property
    def first_in_files(self) -> tuple[int, int] | None:
        """Queue offset and physical offset of the first entry in the files.

        None if there is no entry, or if the files have the queue's beginning: offset 0 or blanks.

        :raises UnreadableFile: the entry cannot be read.
        """
        offset = self._segments.start // ENTRY_SIZE
        first = (
            next(self._entries(offset, offset + 1), None)
            if offset and self.max_offset > offset
            else None
        )
        return (
            None if first is None or _is_leading_blank(first[0], first[1]) else (offset, first[0])
        )

    def correct_min_offset(self, log_start: int) -> None:
        """Set `min_offset` to the first entry whose record is at or after `log_start`."""
        self.min_offset = self.first_at(log_start)
        assert self.min_offset <= self.max_offset, f"{self.name} begins after its end"

    def trim(self, log_start: int) -> list[Deletion]:
        """Forget the files whose entries all point before `log_start`; returns their deletions.

        The file of the last entry stays, since it has the queue's next offset. Files with entries
        that are not durable stay, too: after a crash the deleted files before them may exist again.
        """
        self.correct_min_offset(log_start)
        needless = min(self.min_offset, self.max_offset - 1) * ENTRY_SIZE
        return self._segments.forget_before(min(needless, self._durable.end))

    def offset_at_time(self, timestamp_ms: int, store_time: Callable[[int], int]) -> int:
        """The queue offset of the record stored at `timestamp_ms`, else of the nearer neighbour.

        On a tie it is the earlier one. This is Apache's search without the use of files'
        modification times. In place of an entry whose store time is not known, the next entry with
        a known one is compared.

        :param store_time: store time (ms) of the record at a queue offset; below 0 if it is not
            known.
        """
        low, high = self.min_offset, self.max_offset
        while low < high:
            middle = (low + high) // 2
            dated, stored_ms = self._next_dated(middle, high, store_time)
            if 0 <= stored_ms < timestamp_ms:
                low = dated + 1
            else:
                high = middle
        found, stored_ms = self._next_dated(low, self.max_offset, store_time)
        if low > self.min_offset:  # the search has moved `low` past an entry with a store time
            before = timestamp_ms - store_time(low - 1)
            if found == self.max_offset or before <= stored_ms - timestamp_ms != 0:
                return low - 1
        return found if found < self.max_offset else low

    def _next_dated(
        self, offset: int, end: int, store_time: Callable[[int], int]
    ) -> tuple[int, int]:
        """The first queue offset in a range whose store time is known, and that time.

        :param end: exclusive.
        :returns: `end` and -1 if there is none.
        """
        while offset < end:
            stored_ms = store_time(offset)
            if stored_ms >= 0:
                return offset, stored_ms
            offset = self._after_blanks(offset + 1, end)
        return end, -1

    def _after_blanks(self, offset: int, end: int) -> int:
        """The first queue offset from `offset` on whose entry is no blank, `end` at most."""
        while offset < end:
            sizes = self.columns(offset, min(end - offset, _LOOKED_AT_ONCE))["size"]
            others = np.flatnonzero(sizes != BLANK_RECORD_SIZE)
            if len(others):
                return offset + int(others[0])
            offset = offset + len(sizes) if len(sizes) else self.next_file(offset)
        return end

    @property
    def durable_before(self) -> int:
        """The physical offset before which all records' entries in this queue are durable."""
        if self.is_lost:
            return 0
        durable = self._durable.end // ENTRY_SIZE
        # Physical offsets ascend: the first entry that is not durable has the lowest of them.
        try:
            entry = self.entry(max(durable, self.min_offset)) if durable < self.max_offset else None
        except UnreadableFile:
            return 0
        return LONG_MAX if entry is None else entry[0]

    def sync_work(self) -> Callable[[], None] | None:
        """A function that makes the present entries durable, also off the loop, or None."""
        end = self.max_offset * ENTRY_SIZE
        return self._segments.sync_work(self._durable, end) if end > self._durable.end else None

    @property
    def name(self) -> tuple[str, int]:
        return self.topic, self.queue_id

    @property
    def is_whole(self) -> bool:
        """Whether all files of the queue exist and have their size."""
        return self._segments.is_whole

    @property
    def has_whole_file(self) -> bool:
        """Whether any of the queue's files has the configured size."""
        return self._segments.has_whole_file

    def lose(self) -> None:
        """Return and accept no entries, since files were truncated or deleted.

        `adopt` or `delete_oldest_first` ends that.
        """
        self.is_lost = True
        self._leave_file()

    def replace_lost(self, fresh: ConsumeQueue) -> None:
        """Delete the files that are left of a lost queue; its offsets stay.

        :param fresh: an empty queue of this name, the `replacement` from now on.
        :raises OSError: a file could not be deleted; to be called again.
        """
        kept = self.min_offset, self.max_offset, self.log_end
        try:
            self.delete_newest_first()
        finally:
            # An empty queue would set groups back, and give offsets to a second message.
            self.min_offset, self.max_offset, self.log_end = kept
        self._segments = self._segments.lost()
        self.replacement = fresh

    def adopt(self) -> None:
        """Take over files and offsets of the `replacement`: the queue is not lost any more."""
        for name in self._STATE:
            setattr(self, name, getattr(self.replacement, name))
        self.replacement, self.is_lost = None, False

    def blank_to(self, offset: int, log_at: int) -> None:
        """Write blanks up to queue offset `offset`, unless more than a file of entries is missing.

        :param log_at: the physical offset in the blanks if no entry precedes them; not 0.
        :raises OSError: there is no room for them.
        """
        while self.max_offset < offset and self.can_go_on_at(offset - 1):
            end = min(offset, self.next_file(self.max_offset)) if self._segments.starts else offset
            self.make_room(1, end - 1)
            self.log_end = self.log_end or log_at
            self.skip_to(end)

    def delete_oldest_first(self) -> None:
        """Delete all entries, which are not needed any more.

        The queue is empty then. The writer gives the next message offset 0; dispatch may begin the
        queue at any offset.

        The first file is deleted first. If a deletion fails or the process is killed, the end of
        the queue is left and the queue continues there, as on the slaves: no message gets an offset
        that another message has on a slave.

        A lost queue is not lost any more: it needs no entry.

        :raises OSError: a file could not be deleted; the queue begins with it, or is still lost.
        """
        if self.replacement is not None:
            self.replacement.delete_oldest_first()
            self.adopt()
        self._leave_file()
        try:
            self._segments.delete_oldest_first()
        finally:
            if self._segments.starts:
                self.min_offset = min(
                    self.max_offset, max(self.min_offset, self._segments.start // ENTRY_SIZE)
                )
            else:
                self._end_with_files()
        self.is_lost = False

    def delete_newest_first(self) -> None:
        """Delete all entries, which are wrong; dispatch may begin the queue at any offset.

        The last file is deleted first. If the process is killed during a recovery, the next
        recovery sees that entries at the end are missing.

        :raises OSError: a file could not be deleted; the queue ends with the files that are left.
        """
        self._leave_file()
        try:
            self._segments.delete_newest_first()
        finally:
            self._end_with_files()

    def _end_with_files(self) -> None:
        """Set the offsets to those of the files that are left."""
        segments = self._segments
        left = segments.capacity_end // ENTRY_SIZE if segments.starts else 0
        if left:
            self.max_offset = min(self.max_offset, left)
            self.min_offset = min(self.min_offset, self.max_offset)
        else:
            self.min_offset = self.max_offset = 0
        last = next(self._entries(self.max_offset - 1, self.max_offset), None) if left else None
        self.log_end = last[0] + last[1] if last is not None and last[1] != BLANK_RECORD_SIZE else 0
        self._durable = self._durable.truncated(self.max_offset * ENTRY_SIZE)
        self.written_from = min(self.written_from, self.max_offset)

    def close(self) -> None:
        if self.replacement is not None:
            self.replacement.close()
        self._segments.close()
