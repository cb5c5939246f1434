"""Walks through a commit log in large pieces and finds its valid records, its damage and its end.

Where no record begins, the scanner searches for the next valid one. The bytes between are damage if
queue entries reach beyond them. Otherwise the log ends there, as a broker's recovery would decide,
and what follows are remains of older records.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

from roquet.errors import CorruptRecord
from roquet.protocol.records.block import RecordBlock, record_starts
from roquet.protocol.records.layout import (
    BLANK_MAGIC,
    BLANK_SIZE,
    SIZE_MIN,
    find_heads,
    is_record_head,
    size_and_magic,
)
from roquet.protocol.records.record import check
from roquet.storage.log.dispatch_request import DispatchRequest, read_dispatch_request
from roquet.storetool.files import DataFile, SegmentFiles, data_pieces

PIECE_SIZE: Final = 8 << 20
NO_FILE: Final = "no file has these bytes"


@dataclass(frozen=True, slots=True)
class Damage:
    """A range of physical offsets (end exclusive) without a valid record."""

    start: int
    end: int
    reason: str


class LogScanner:
    """One walk through a log, or through a part of it.

    Invariant: every byte from `start` to `end` is in a block that was returned, in a blank, or in
    `damages`.

    :param dispatched: the highest physical offset that queue entries reach; the log cannot end
        before it.
    :param progress: called with the number of bytes of the log read since the last call.
    :param start: physical offset at which the walk begins; by default the log's start.
    :param limit: physical offset, the end of a record, at which the walk stops: a running broker
        may have written only a part of what follows.
    :param piece_size: bytes of one read; more only for a record that is larger.
    """

    def __init__(
        self,
        log: SegmentFiles,
        dispatched: int,
        progress: Callable[[int], None] = lambda size: None,
        *,
        start: int | None = None,
        limit: int | None = None,
        piece_size: int | None = None,
    ) -> None:
        self._log = log
        self._limit = limit
        self._dispatched = dispatched
        self._progress = progress
        self._piece_size = piece_size or PIECE_SIZE
        self.start = self.end = log.start if start is None else start
        self.damages: list[Damage] = []
        self.behind = ""
        """What follows after the log's end; empty if only zeros do."""

    def blocks(self) -> Iterator[RecordBlock]:
        """Yield the log's valid records, from where an earlier iteration stopped."""
        while self.end < (self._log.end if self._limit is None else self._limit):
            file = self._log.file_at(self.end)
            data = self._piece(file, self.end)
            block = RecordBlock(self.end, data, *record_starts(data))
            error = CorruptRecord(self.end, "no record begins here" if file else NO_FILE)
            if len(block):
                count = block.sound_count(verify=False)
                if count:
                    sound = block.first(count)
                    self._go_to(int(sound.ends[-1]) + sound.at)
                    yield sound
                if count == len(block):
                    continue
                error = error_of(block, count)
            elif file is not None and _is_blank(data, file.start + self._log.file_size - self.end):
                self._go_to(file.start + self._log.file_size)
                continue
            if not self._pass_damage(error, is_certain=file is None):
                return

    def _go_to(self, at: int) -> None:
        self._progress(at - self.end)
        self.end = at

    def _piece(self, file: DataFile | None, at: int) -> bytes:
        """Return the bytes from `at` on: a piece, or a whole record that is larger."""
        if file is None:
            return b""
        size = self._piece_size
        data = self._log.read(at, size if self._limit is None else min(size, self._limit - at))
        if len(data) >= SIZE_MIN:
            size, magic = size_and_magic(data, 0)
            if is_record_head(size, magic, self._log.file_size) and size > len(data):
                data = self._log.read(at, size)
        return data

    def _pass_damage(self, error: CorruptRecord, *, is_certain: bool) -> bool:
        """Skip bytes that are no record; returns False if the log ends before them.

        :param is_certain: the bytes are in no file, so a running broker cannot be writing them.
        """
        found = self._next_record(self.end + 1)
        if not is_certain and not isinstance(record_at(self._log, self.end), str):
            return False  # a running broker has written the record since it was read
        if found is not None and (is_certain or not self._dispatched or found < self._dispatched):
            self.damages.append(Damage(self.end, found, error.reason))
            self._go_to(found)
            return True
        self.behind = self._left_over(error, found)
        return False

    def _left_over(self, error: CorruptRecord, found: int | None) -> str:
        file = self._log.file_at(self.end)
        if found is not None:
            return f"{error.reason}; older records follow from {found} on, no queue has them"
        pieces = data_pieces(file.path, self.end - file.start) if file is not None else iter(())
        return error.reason if any(data.strip(b"\0") for _, data in pieces) else ""

    def _next_record(self, at: int) -> int | None:
        """Return the first physical offset from `at` on at which a valid record or blank begins."""
        for file in self._log.files:
            if file.start + self._log.file_size <= at:
                continue
            for place in places_of_magic(file, max(0, at - file.start)):
                if self._is_valid(file, place, at):
                    return place
        return None

    def _is_valid(self, file: DataFile, place: int, earliest: int) -> bool:
        if place < max(earliest, file.start):
            return False
        left = file.start + self._log.file_size - place
        return _is_blank(self._log.read(place, BLANK_SIZE), left) or not isinstance(
            record_at(self._log, place), str
        )


def error_of(block: RecordBlock, number: int) -> CorruptRecord:
    """Return the error of record `number` of a block, which must be invalid."""
    at, end = int(block.starts[number]), int(block.ends[number])
    try:
        check(memoryview(block.data)[at:end], block.at + at, verify=False)
    except CorruptRecord as error:
        return error
    raise AssertionError(f"the record at physical offset {block.at + at} is valid")


def _is_blank(data: bytes, left: int) -> bool:
    """Whether `data` begins with a blank that fills the last `left` bytes of its segment."""
    return len(data) >= BLANK_SIZE and size_and_magic(data, 0) == (left, BLANK_MAGIC)


def places_of_magic(file: DataFile, at: int) -> Iterator[int]:
    """Yield the physical offsets at which a record or blank may begin, found by magic numbers.

    :param at: the byte of the file to search from.
    """
    before = b""
    expected = at
    for start, data in data_pieces(file.path, at):
        before = before if start == expected else b""
        text = before + data
        first = start - len(before)
        yield from (file.start + first + place for place in find_heads(text))
        before = text[-3:]
        expected = start + len(data)


def record_at(log: SegmentFiles, at: int) -> DispatchRequest | str:
    """Read the record at a physical offset; a text that says what is wrong if there is none."""
    data = log.read(at, SIZE_MIN)
    if len(data) < SIZE_MIN:
        return NO_FILE
    size, magic = size_and_magic(data, 0)
    if not is_record_head(size, magic, log.file_size):
        return "no record begins there"
    record = memoryview(log.read(at, size))
    try:
        if len(record) < size:
            return "its file ends within the record"
        check(record, at, verify=False)
        return read_dispatch_request(at, record)
    except CorruptRecord as error:
        return error.reason
