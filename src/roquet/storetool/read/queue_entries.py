"""Reads the entries of one consume queue as columns (docs/storage/consume-queue.md)."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from functools import partial
from io import FileIO
from pathlib import Path
from struct import Struct
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from roquet.storage.queues.consume_queue import BLANK_RECORD_SIZE, ENTRIES, ENTRY_SIZE
from roquet.storage.queues.ext import ADDRESS_OF_FIRST, UNIT_SIZE_MAX, ExtUnit, read_unit
from roquet.storetool.files import QUEUE_FILE_SIZE, DataFile, SegmentFiles, StoreFiles, series

Entries = npt.NDArray[Any]
_AT_ONCE: Final = 50_000
_FIRST_LOOK: Final = 512
_PLACE: Final = Struct(">qi")
_ENDLESS: Final = 1 << 62
"""Compares as after every physical offset."""


class QueueEntries:
    """Reads one queue's entries and extension units. Nothing is cached: a broker may be writing.

    An entry whose size is 0 or less is an unused slot. The queue ends before the first unused slot
    of the last segment that has an entry.
    """

    def __init__(self, files: SegmentFiles, units: SegmentFiles) -> None:
        self.files = files
        self._units = units

    @property
    def first(self) -> int:
        """The queue offset at which the first segment begins."""
        return self.files.start // ENTRY_SIZE

    def end(self) -> int:
        """Return the queue offset after the last entry."""
        for file in reversed(self.files.files):
            start = file.start // ENTRY_SIZE
            end = self._end_in(start, start + self.files.file_size // ENTRY_SIZE)
            if end > start:
                return end
        return self.first

    def _end_in(self, start: int, stop: int) -> int:
        """Return the queue offset of the first unused slot from `start` on, at most `stop`.

        Reads begin small and double, because most slots of a last segment are unused.
        """
        end = start
        count = _FIRST_LOOK
        while end < stop and len(sizes := self.read(end, min(count, stop - end))["size"]):
            bad = np.flatnonzero(sizes <= 0)
            if len(bad):
                return end + int(bad[0])
            end += len(sizes)
            count = min(2 * count, _AT_ONCE)
        return end

    def between(self, at: int, end: int) -> Entries:
        """Return the entries of records from physical offset `at` to `end` (exclusive).

        Some are missing if physical offsets do not ascend in the queue.
        """
        pieces: list[Entries] = []
        for file in reversed(self.files.files):
            first, stop = _places_between(file, at, end)
            pieces.append(self.read(file.start // ENTRY_SIZE + first, stop - first))
            if first:
                break
        return np.concatenate(pieces[::-1]) if pieces else np.empty(0, ENTRIES)

    def read(self, offset: int, count: int) -> Entries:
        """Return up to `count` entries from queue offset `offset` on; fewer if segments end."""
        pieces: list[Entries] = []
        while count > 0:
            data = self.files.read(offset * ENTRY_SIZE, count * ENTRY_SIZE)
            found: Entries = np.frombuffer(data, ENTRIES, len(data) // ENTRY_SIZE)
            if not len(found):
                break
            pieces.append(found)
            offset += len(found)
            count -= len(found)
        if len(pieces) == 1:
            return pieces[0]
        return np.concatenate(pieces) if pieces else np.empty(0, ENTRIES)

    def slots(self, offset: int, count: int) -> Entries:
        """Return the entries of `count` queue offsets from `offset` on; zeros for missing ones."""
        found: Entries = np.zeros(count, ENTRIES)
        for file in self.files.files:
            start = max(offset, file.start // ENTRY_SIZE)
            stop = min(offset + count, (file.start + self.files.file_size) // ENTRY_SIZE)
            if start < stop:
                read = self.read(start, stop - start)
                found[start - offset : start - offset + len(read)] = read
        return found

    def walk(self, offset: int, end: int) -> Iterator[tuple[int, Entries]]:
        """Yield the entries from `offset` to `end` (exclusive) in pieces.

        Each piece is the queue offset of its first entry, and the entries.
        """
        while offset < end:
            found = self.read(offset, min(_AT_ONCE, end - offset))
            if not len(found):
                return
            yield offset, found
            offset += len(found)

    def log_end(self) -> int:
        """Return the physical offset after the last entry's record; 0 without entries.

        A blank has no record: if it is the last entry, its own physical offset is returned.
        """
        last = self.read(self.end() - 1, 1) if self.files.files else np.empty(0, ENTRIES)
        if not len(last) or last[0]["size"] <= 0:
            return 0
        size = int(last[0]["size"])
        return int(last[0]["physical"]) + (size if size != BLANK_RECORD_SIZE else 0)

    def unit(self, address: int) -> ExtUnit | None:
        """Return the extension unit at an address, or None if there is none.

        :param address: what an entry has in place of its tag code (`ADDRESS_MAX` and below).
        """
        if not self._units.files:
            return None
        return read_unit(self._units.read(address - ADDRESS_OF_FIRST, UNIT_SIZE_MAX))


def dispatched_to(files: StoreFiles) -> int:
    """Return the physical offset after the last record that a queue entry points to; 0: none."""
    return max((entries_of(files, *key).log_end() for key in files.queues), default=0)


def entries_of(files: StoreFiles, topic: str, queue_id: int) -> QueueEntries:
    """Return a reader of a queue's entries; it finds none if the store has no such queue."""
    place = Path(topic, str(queue_id))
    folder = files.root / "consumequeue" / place
    found = files.queues.get((topic, queue_id)) or series(
        [folder], files.queue_file_size or QUEUE_FILE_SIZE
    )
    return QueueEntries(found, series([files.root / "consumequeue_ext" / place]))


def _places_between(file: DataFile, at: int, end: int) -> tuple[int, int]:
    """Return the numbers of a segment's first entries that point to `at` or more, `end` or more."""
    try:
        with file.path.open("rb", buffering=0) as opened:
            numbers = range(file.size // ENTRY_SIZE)
            place = partial(_physical, opened)
            first = bisect_left(numbers, at, key=place)
            return first, bisect_left(numbers, end, lo=first, key=place)
    except FileNotFoundError:
        return 0, 0


def _physical(opened: FileIO, number: int) -> int:
    """Return the physical offset of an entry, for a binary search.

    A blank is before all entries (blanks fill a queue's beginning), an unused slot after all.
    """
    opened.seek(number * ENTRY_SIZE)
    data = opened.read(_PLACE.size)
    physical, size = _PLACE.unpack(data) if len(data) == _PLACE.size else (0, 0)
    if size == BLANK_RECORD_SIZE:
        return -1
    return physical if size > 0 else _ENDLESS
