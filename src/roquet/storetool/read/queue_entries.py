"""Entries of one consume queue as columns, read anew at each call (docs/storage/consume-queue.md)."""

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
from roquet.storage.queues.ext import ADDRESS_OF_FIRST, NOTE_SIZE_MAX, ExtUnit, read_note
from roquet.storetool.files import QUEUE_FILE_SIZE, DataFile, SegmentFiles, StoreFiles, series

Entries = npt.NDArray[Any]
_AT_ONCE: Final = 50_000
_FIRST_LOOK: Final = 512
_PLACE: Final = Struct(">qi")
_ENDLESS: Final = 1 << 62


class QueueEntries:
    """One queue's entries and notes.

    Keeps: an entry of size 0 or less is none; the queue ends before the first such one in the last file that has any.
    """

    def __init__(self, files: SegmentFiles, notes: SegmentFiles) -> None:
        self.files = files
        self._notes = notes

    @property
    def first(self) -> int:
        """Queue offset of the first entry there is room for."""
        return self.files.start // ENTRY_SIZE

    def end(self) -> int:
        """Queue offset behind the last entry."""
        for file in reversed(self.files.files):
            start = file.start // ENTRY_SIZE
            end = self._end_in(start, start + self.files.file_size // ENTRY_SIZE)
            if end > start:
                return end
        return self.first

    def _end_in(self, start: int, stop: int) -> int:
        """Queue offset behind the entries that follow each other from `start` on; most of a last file has none."""
        end, count = start, _FIRST_LOOK
        while end < stop and len(sizes := self.read(end, min(count, stop - end))["size"]):
            bad = np.flatnonzero(sizes <= 0)
            if len(bad):
                return end + int(bad[0])
            end, count = end + len(sizes), min(2 * count, _AT_ONCE)
        return end

    def between(self, at: int, end: int) -> Entries:
        """The entries of records from physical offset `at` up to `end`; some of them where entries do not ascend."""
        pieces: list[Entries] = []
        for file in reversed(self.files.files):
            first, stop = _places_between(file, at, end)
            pieces.append(self.read(file.start // ENTRY_SIZE + first, stop - first))
            if first:
                break
        return np.concatenate(pieces[::-1]) if pieces else np.empty(0, ENTRIES)

    def read(self, offset: int, count: int) -> Entries:
        """Up to `count` entries from `offset` on; fewer where files end."""
        pieces: list[Entries] = []
        while count > 0:
            data = self.files.read(offset * ENTRY_SIZE, count * ENTRY_SIZE)
            found: Entries = np.frombuffer(data, ENTRIES, len(data) // ENTRY_SIZE)
            if not len(found):
                break
            pieces.append(found)
            offset, count = offset + len(found), count - len(found)
        if len(pieces) == 1:
            return pieces[0]
        return np.concatenate(pieces) if pieces else np.empty(0, ENTRIES)

    def slots(self, offset: int, count: int) -> Entries:
        """The entries of `count` queue offsets from `offset` on, zero where there is none."""
        found: Entries = np.zeros(count, ENTRIES)
        for file in self.files.files:
            start = max(offset, file.start // ENTRY_SIZE)
            stop = min(offset + count, (file.start + self.files.file_size) // ENTRY_SIZE)
            if start < stop:
                read = self.read(start, stop - start)
                found[start - offset : start - offset + len(read)] = read
        return found

    def walk(self, offset: int, end: int) -> Iterator[tuple[int, Entries]]:
        """The entries from `offset` up to `end` in pieces: queue offset of the first, and the entries."""
        while offset < end:
            found = self.read(offset, min(_AT_ONCE, end - offset))
            if not len(found):
                return
            yield offset, found
            offset += len(found)

    def log_end(self) -> int:
        """Where in the log the last entry's record ends, 0 without entries; what a blank says, if that is the last."""
        last = self.read(self.end() - 1, 1) if self.files.files else np.empty(0, ENTRIES)
        if not len(last) or last[0]["size"] <= 0:
            return 0
        size = int(last[0]["size"])
        return int(last[0]["physical"]) + (size if size != BLANK_RECORD_SIZE else 0)

    def note(self, address: int) -> ExtUnit | None:
        """The note at an address that an entry holds in place of its tag code, None where there is none."""
        return (
            read_note(self._notes.read(address - ADDRESS_OF_FIRST, NOTE_SIZE_MAX))
            if self._notes.files
            else None
        )


def entries_of(files: StoreFiles, topic: str, queue_id: int) -> QueueEntries:
    """The entries of a queue; of none at all where the store has no such queue."""
    place = Path(topic, str(queue_id))
    folder = files.root / "consumequeue" / place
    found = files.queues.get((topic, queue_id)) or series(
        [folder], files.queue_file_size or QUEUE_FILE_SIZE
    )
    return QueueEntries(found, series([files.root / "consumequeue_ext" / place]))


def _places_between(file: DataFile, at: int, end: int) -> tuple[int, int]:
    """Numbers of a file's entries: the first one that points to `at` or behind, and the first to `end` or behind."""
    try:
        with file.path.open("rb", buffering=0) as opened:
            numbers, place = range(file.size // ENTRY_SIZE), partial(_physical, opened)
            first = bisect_left(numbers, at, key=place)
            return first, bisect_left(numbers, end, lo=first, key=place)
    except FileNotFoundError:
        return 0, 0


def _physical(opened: FileIO, number: int) -> int:
    """Where an entry points to; in front of all where none ever was, behind all where none is yet."""
    opened.seek(number * ENTRY_SIZE)
    data = opened.read(_PLACE.size)
    place, size = _PLACE.unpack(data) if len(data) == _PLACE.size else (0, 0)
    return -1 if size == BLANK_RECORD_SIZE else place if size > 0 else _ENDLESS
