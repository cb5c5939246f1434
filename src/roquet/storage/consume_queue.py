"""Per topic and queue, fixed entries pointing into the log (store-and-ha.md 3.2)."""

from __future__ import annotations

import mmap
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from pathlib import Path
from struct import Struct
from typing import Final

import numpy as np
import numpy.typing as npt

from roquet.storage.disk import Disk
from roquet.storage.segments import Segments

ENTRY: Final = Struct(">qiq")
"""Physical offset, record size, tag code (schedule topic: delivery time)."""
ENTRY_SIZE: Final = ENTRY.size
_ENTRIES: Final = np.dtype([("physical", ">i8"), ("size", ">i4"), ("tag_code", ">i8")])
BLANK_RECORD_SIZE: Final = 0x7FFFFFFF
"""The size in an entry that points to nothing."""
BLANK_ENTRY: Final = ENTRY.pack(0, BLANK_RECORD_SIZE, 0)
"""What stands before the first entry of a queue that does not begin at a file's start."""
_RECOVERED_FILES: Final = 3


def encode_entries(physical: npt.NDArray[np.int64], size: int, tag_codes: int | Sequence[int]) -> bytes:
    """Entries of records of one size; `tag_codes` one by one, or the one that all have."""
    entries = np.empty(len(physical), _ENTRIES)
    entries["physical"] = physical
    entries["size"] = size
    entries["tag_code"] = tag_codes
    return entries.tobytes()


@lru_cache(4096)
def _entries_struct(count: int) -> Struct:
    """So many entries, without their tag codes."""
    return Struct(">" + "qi8x" * count)


class ConsumeQueue:
    """One queue.

    Keeps: `min_offset <= max_offset`; the entry of queue offset n stands at byte n * 20;
           `log_end` is where in the log the last entry's record ends.
    """

    __slots__ = (
        "_buffer",
        "_file_end",
        "_file_size",
        "_file_start",
        "_flushed_to",
        "_segments",
        "log_end",
        "max_offset",
        "min_offset",
        "queue_id",
        "room_to",
        "topic",
        "topic_bytes",
        "waiting",
    )

    def __init__(self, disk: Disk, folder: Path, file_size: int, topic: str, queue_id: int) -> None:
        self.topic = topic
        self.queue_id = queue_id
        self.topic_bytes = topic.encode()
        self._segments = Segments(disk, folder, file_size)
        self._file_size = file_size
        self.min_offset = 0
        self.max_offset = 0
        self.log_end = 0
        self._flushed_to = 0
        self._buffer: mmap.mmap | bytearray = bytearray()
        self._file_start = 0
        self._file_end = 0
        self.room_to = 0
        """Queue offset up to which the file in use takes the next entries, 0 while none is in use."""
        self.waiting: list[object] | None = None
        """Pulls held until this queue grows; the broker's arrivals keep them here, where an append sees them."""

    def load(self) -> None:
        """Open the files and find the last valid entry in the last three of them.

        :raises StoreError: a file that does not belong here.
        """
        segments = self._segments
        segments.load()
        if not segments.starts:
            return
        end = log_end = 0
        first = at = segments.starts[-_RECOVERED_FILES:][0]
        while at < segments.capacity_end:
            data = segments.read(at, segments.capacity_end)
            valid = 0
            for physical, size, _ in ENTRY.iter_unpack(data[: len(data) - len(data) % ENTRY_SIZE]):
                if physical < 0 or size <= 0:
                    break
                valid += 1
                log_end = physical + size if size != BLANK_RECORD_SIZE else log_end
            at += valid * ENTRY_SIZE
            end = at
            if valid * ENTRY_SIZE < len(data):
                break
        if first == segments.start and not log_end:
            self.drop_all()  # not one entry came through a crash: the next may have any offset
            return
        segments.drop_after(max(end, segments.start + 1))
        self.max_offset = end // ENTRY_SIZE
        self.min_offset = segments.start // ENTRY_SIZE
        self.log_end = log_end
        self._flushed_to = end

    def make_room(self, count: int) -> None:
        """See to it that the next `count` entries have their files; on a full drive this fails before they are due."""
        at = self.max_offset * ENTRY_SIZE
        if not self._file_start <= at < self._file_end:
            self._enter(at)
        last = at + (count - 1) * ENTRY_SIZE
        if last >= self._file_end:
            self._enter(last)

    def put(self, offset: int, physical: int, size: int, tag_code: int) -> None:
        """Write the entry of queue offset `offset`, which is the next one (or the first, anywhere)."""
        at = offset * ENTRY_SIZE
        if not self._file_start <= at < self._file_end:
            self._enter(at)
        ENTRY.pack_into(self._buffer, at - self._file_start, physical, size, tag_code)
        self.max_offset = offset + 1
        self.log_end = physical + size

    def put_many(self, entries: bytes, log_end: int) -> None:
        """Write the next entries, encoded by `encode_entries`; the record of the last one ends at `log_end`."""
        at = self.max_offset * ENTRY_SIZE
        end = at + len(entries)
        if not self._file_start <= at < end <= self._file_end:
            for offset, entry in enumerate(ENTRY.iter_unpack(entries), self.max_offset):
                self.put(offset, *entry)
            return
        self._buffer[at - self._file_start : end - self._file_start] = entries
        self.max_offset = end // ENTRY_SIZE
        self.log_end = log_end

    def _enter(self, at: int) -> None:
        """Make the file of byte `at` the one in use; the first file is filled with blanks up to `at`."""
        segments = self._segments
        if not segments.starts:
            buffer = segments.grow(at).buffer
            blanks = at % self._file_size // ENTRY_SIZE
            buffer[: blanks * ENTRY_SIZE] = BLANK_ENTRY * blanks
            self.min_offset = at // ENTRY_SIZE
        while at >= segments.capacity_end:
            segments.grow()
        file = segments.file_at(at)
        assert file is not None, f"{self.topic}:{self.queue_id} has no file for entry {at // ENTRY_SIZE}"
        self._buffer = file.buffer
        self._file_start = at - at % self._file_size
        self._file_end = self._file_start + self._file_size
        self.room_to = self._file_end // ENTRY_SIZE

    def entries(self, offset: int, count_max: int) -> Iterator[tuple[int, int, int]]:
        """(physical offset, size, tag code) from `offset`, at most `count_max`, of one file only."""
        end = min(self.max_offset, offset + count_max) * ENTRY_SIZE
        return ENTRY.iter_unpack(self._segments.read(offset * ENTRY_SIZE, end))

    def places_and_sizes(self, offset: int, count_max: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Physical offsets and record sizes of the entries that `entries` gives."""
        at = offset * ENTRY_SIZE
        file = self._segments.file_at(at)
        if file is None:
            return (), ()
        index = at % self._file_size
        count = min(count_max, self.max_offset - offset, (self._file_size - index) // ENTRY_SIZE)
        values = _entries_struct(count).unpack_from(file.buffer, index)
        return values[::2], values[1::2]

    def entry(self, offset: int) -> tuple[int, int, int] | None:
        """One entry, None where there is none."""
        if not self.min_offset <= offset < self.max_offset:
            return None
        return next(self.entries(offset, 1), None)

    def next_file(self, offset: int) -> int:
        """The first queue offset of the file after the one that holds `offset`."""
        per_file = self._file_size // ENTRY_SIZE
        return (offset // per_file + 1) * per_file

    def truncate(self, log_end: int) -> None:
        """Drop the first entry of a record at or behind physical offset `log_end`, and every entry after it.

        An entry that was never written counts as one of these: a crash may leave such in any file.
        """
        for start in reversed(self._segments.starts):
            kept = self._kept_in_file(start, log_end)
            if kept:
                self._end_at(start // ENTRY_SIZE + kept)
                return
        self.drop_all()

    def _kept_in_file(self, start: int, log_end: int) -> int:
        """How many entries of a file, from its first on, are there and of records before `log_end`."""
        entries = np.frombuffer(self._segments.read(start, self.max_offset * ENTRY_SIZE), _ENTRIES)
        is_kept = (entries["size"] > 0) & (entries["physical"] >= 0) & (entries["physical"] < log_end)
        return len(is_kept) if is_kept.all() else int(is_kept.argmin())

    def drop_last(self) -> None:
        """Drop the last entry."""
        self._end_at(self.max_offset - 1)

    def _end_at(self, offset: int) -> None:
        """Let the queue end before `offset`; what stood behind it is zeroed, lest the next load takes it for valid.

        Blanks that nothing follows any more go, too.
        """
        segments = self._segments
        last = next(self.entries(offset - 1, 1), None) if offset * ENTRY_SIZE > segments.start else None
        if last is None or last[1] == BLANK_RECORD_SIZE:
            self.drop_all()
            return
        segments.drop_after(offset * ENTRY_SIZE)
        segments.erase(offset * ENTRY_SIZE)
        self.max_offset = offset
        self.min_offset = min(self.min_offset, offset)
        self.log_end = last[0] + last[1]
        self._flushed_to = min(self._flushed_to, offset * ENTRY_SIZE)
        self._file_start = self._file_end = self.room_to = 0

    def correct_min_offset(self, log_start: int) -> None:
        """Let the queue begin at its first entry that points at or behind `log_start`."""
        for start in self._segments.starts:
            data = self._segments.read(start, self.max_offset * ENTRY_SIZE)
            for index, (physical, size, _) in enumerate(ENTRY.iter_unpack(data)):
                if physical >= log_start and size != BLANK_RECORD_SIZE:
                    self.min_offset = start // ENTRY_SIZE + index
                    return
        self.min_offset = self.max_offset

    def offset_at_time(self, timestamp_ms: int, store_time: Callable[[int], int]) -> int:
        """The entry whose record was stored at `timestamp_ms`, else the nearer neighbour, the earlier on a tie.

        Apache's search (store-and-ha.md 3.6), without its detour over the files' modification times.
        """
        low, high = self.min_offset, self.max_offset
        while low < high:
            middle = (low + high) // 2
            if store_time(middle) < timestamp_ms:
                low = middle + 1
            else:
                high = middle
        if low > self.min_offset:
            before = timestamp_ms - store_time(low - 1)
            if low == self.max_offset or before <= store_time(low) - timestamp_ms != 0:
                return low - 1
        return low

    def sync(self) -> None:
        """Make all entries durable."""
        end = self.max_offset * ENTRY_SIZE
        if end > self._flushed_to:
            self._segments.sync(self._flushed_to, end)
            self._flushed_to = end

    def drop_all(self) -> None:
        """Forget every entry; the next one may have any offset."""
        self._segments.drop_all()
        self.min_offset = self.max_offset = 0
        self.log_end = self._flushed_to = 0
        self._file_start = self._file_end = self.room_to = 0

    def close(self) -> None:
        self._segments.close()
