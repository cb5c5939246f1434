"""Damaged records in the middle of a log, and the walk that goes on behind them (decision 0024).

Every broker that has the same bytes must come to the same queues, so the place where a walk goes on follows from the
bytes alone: where the damaged record's own size leads, if a valid record or a blank stands there, else at the first
place behind where one does. A record is valid there only if it says its own physical offset and its checksum holds.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from enum import Enum
from typing import Final

from roquet.common.units import PhysicalOffset
from roquet.errors import CorruptRecord
from roquet.protocol.records.block import RecordBlock
from roquet.protocol.records.record import (
    BLANK_MAGIC,
    BLANK_SIZE,
    MAGIC,
    MAGIC_V2,
    SIZE_MIN,
    check,
    size_and_magic,
)
from roquet.storage.log.commit_log import CommitLog
from roquet.storage.log.dispatch_request import DispatchRequest, read_dispatch_request

SEARCHED_AT_ONCE: Final = 64 * 1024 * 1024
"""Bytes: a slave searches on the event loop, this takes some 50 ms."""
_PIECE: Final = 1024 * 1024
_BEFORE_MAGIC: Final = 4
_PHYSICAL_AT: Final = 28
_PHYSICAL_END: Final = 36
_COLUMNS_FROM: Final = 8
"""Fewer records are checked one by one: columns would cost more."""
_RECORD_MAGICS: Final = (MAGIC, MAGIC_V2)
_MAGICS: Final = tuple(magic.to_bytes(4, "big") for magic in (MAGIC, MAGIC_V2, BLANK_MAGIC))

SECTOR: Final = 512
"""What a drive writes in whole or not at all."""
_ZEROS: Final = 32
"""A sector that was never written ends with zeros; the header of a record never has so many of them in a row."""
_ZEROS_AT_END: Final = 3
"""A record without properties ends with two zeros, which a topic is in front of; no record ends with more."""
_JUDGED_MAX: Final = 64 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Hole:
    """Bytes of the log in which no valid record is; `end` is where the next valid record or blank begins.

    `request`: of the record that begins it, if only its body is damaged, so that its queue and offset are known.
    """

    start: PhysicalOffset
    end: PhysicalOffset
    reason: str
    request: DispatchRequest | None = None

    @property
    def size(self) -> int:
        return self.end - self.start


class _Found(Enum):
    VALID = "a record or a blank"
    NOTHING = "neither"
    UNFINISHED = "a record that is not all here yet"


class HoleScanner:
    """Finds where holes of one log end.

    Keeps: `is_done` is false only while the last search has stopped before the log's end, to go on when asked again.
    `is_whole`: nothing is going to come behind the log's end that belongs to what stands before it.
    """

    def __init__(self, log: CommitLog, at_once: int = SEARCHED_AT_ONCE) -> None:
        self._log = log
        self._at_once = at_once
        self._hole = -1
        self._searched_to = 0
        self.is_done = True
        self.is_whole = False

    def find(self, at: PhysicalOffset) -> PhysicalOffset | None:
        """Where the hole that begins at `at` ends; None: nothing valid is known behind it, so far."""
        self.is_done = True
        size, magic = self._head(at)
        behind = PhysicalOffset(at + size)
        if (
            magic in _RECORD_MAGICS
            and size >= SIZE_MIN
            and behind + BLANK_SIZE <= self._log.next_file(at)
        ):
            if behind + BLANK_SIZE <= self._log.readable_to:
                found = self._judge(
                    behind, verify=False
                )  # if only its body is damaged, that is a hole of its own
            else:
                found = self._unfinished
            if found is not _Found.NOTHING:
                return behind if found is _Found.VALID else None
        return self._search(at)

    @property
    def _unfinished(self) -> _Found:
        """What something is that would reach beyond the log's end."""
        return _Found.NOTHING if self.is_whole else _Found.UNFINISHED

    def _head(self, at: int) -> tuple[int, int]:
        data = self._log.read(PhysicalOffset(at), BLANK_SIZE)
        return size_and_magic(data, 0) if len(data) == BLANK_SIZE else (0, 0)

    def _search(self, hole: PhysicalOffset) -> PhysicalOffset | None:
        """Look at each place behind `hole` where a magic number stands."""
        if self._hole != hole:
            self._hole, self._searched_to = hole, hole + 1
        left, end = self._at_once, self._log.readable_to
        at = self._log.next_data(PhysicalOffset(self._searched_to))
        while at < end:
            if left <= 0:
                self.is_done = False
                return None
            data = self._log.read(at, _PIECE + BLANK_SIZE)
            for place in _places_of_magic(data):
                found = (
                    self._judge(PhysicalOffset(at + place), verify=True)
                    if at + place > hole
                    else _Found.NOTHING
                )
                if found is not _Found.NOTHING:
                    return PhysicalOffset(at + place) if found is _Found.VALID else None
            if at + len(data) < self._log.next_file(
                at
            ):  # a magic number may lie across the piece's end
                if len(data) <= BLANK_SIZE:
                    return None
                self._searched_to = at + len(data) - BLANK_SIZE
            else:
                self._searched_to = self._log.next_file(at)
            left -= len(data)
            at = self._log.next_data(PhysicalOffset(self._searched_to))
        return None

    def _judge(self, at: PhysicalOffset, *, verify: bool) -> _Found:
        size, magic = self._head(at)
        room = self._log.next_file(at) - at
        if magic == BLANK_MAGIC and size == room:
            return _Found.VALID
        if magic not in _RECORD_MAGICS or not SIZE_MIN <= size <= room:
            return _Found.NOTHING
        head = self._log.read(at, _PHYSICAL_END)
        if len(head) < _PHYSICAL_END:
            return self._unfinished
        if (
            int.from_bytes(head[_PHYSICAL_AT:], "big") != at
        ):  # before all of it is read: bodies may be full of such heads
            return _Found.NOTHING
        data = self._log.read(at, size)
        if len(data) < size:
            return self._unfinished
        try:
            check(memoryview(data), at, verify=verify)
        except CorruptRecord:
            return _Found.NOTHING
        return _Found.VALID


def _places_of_magic(data: bytes) -> list[int]:
    """Indexes in the data where a record or a blank may begin, by its magic number."""
    places: list[int] = []
    for magic in _MAGICS:
        index = data.find(magic, _BEFORE_MAGIC)
        while index >= 0:
            places.append(index - _BEFORE_MAGIC)
            index = data.find(magic, index + 1)
    return sorted(places)


def pieces(
    log: CommitLog,
    at: PhysicalOffset,
    ends: HoleScanner,
    *,
    verify: bool = False,
    known: Collection[int] = (),
) -> Iterator[RecordBlock | Hole]:
    """The log from `at` to its end: blocks of sound records, and the holes between them.

    A record that is not all here yet ends it.

    :param verify: a record whose body does not have its checksum is a hole, too.
    :param known: where holes begin that an earlier walk with `verify` found.
    :raises CorruptRecord: what stands there is neither a record nor a blank, and nothing valid behind it is known.
    """
    while True:
        error: CorruptRecord | None = None
        try:
            for block in log.blocks(at, is_whole=ends.is_whole):
                count, error = _sound_count(block, verify=verify, known=known)
                if count:
                    yield block.first(count)
                    at = PhysicalOffset(block.at + int(block.ends[count - 1]))
                if error is not None:
                    break
            else:
                return
        except CorruptRecord as damaged:
            error = damaged
        assert error is not None
        at = PhysicalOffset(error.at)
        end = ends.find(at)
        if end is None:
            raise error
        yield Hole(at, end, error.reason, _arrival_of_damaged(log, at, end))
        at = end


def records(log: CommitLog, at: PhysicalOffset) -> Iterator[tuple[PhysicalOffset, memoryview]]:
    """Where each sound record from `at` on stands, and its bytes; ends where nothing valid follows."""
    try:
        for piece in pieces(log, at, HoleScanner(log, at_once=log.file_size)):
            if not isinstance(piece, Hole):
                yield from piece.records()
    except CorruptRecord:
        return


def _sound_count(
    block: RecordBlock, *, verify: bool, known: Collection[int]
) -> tuple[int, CorruptRecord | None]:
    """How many records, from the first on, are sound, and what is wrong with the next one."""
    count = block.sound_count(verify=verify) if len(block) >= _COLUMNS_FROM else 0
    if known:
        places = block.physical.tolist()
        count = min([count, *(number for number, at in enumerate(places) if at in known)])
    starts, end_of_data = block.starts[count:].tolist(), block.ends[count:].tolist()
    view = memoryview(block.data)
    for start, end in zip(starts, end_of_data, strict=True):
        at = PhysicalOffset(block.at + start)
        if at in known:
            return count, CorruptRecord(at, "its body does not have the stored checksum")
        try:
            check(view[start:end], at, verify=verify)
        except CorruptRecord as error:
            return count, error
        count += 1
    return count, None


def _arrival_of_damaged(
    log: CommitLog, at: PhysicalOffset, end: PhysicalOffset
) -> DispatchRequest | None:
    """What a record says that is sound but for its body; None where no more of it can be believed."""
    head = log.read(at, BLANK_SIZE)
    size = size_and_magic(head, 0)[0] if len(head) == BLANK_SIZE else 0
    data = log.read(at, size) if SIZE_MIN <= size <= end - at else b""
    if len(data) < SIZE_MIN:
        return None
    try:
        check(memoryview(data), at, verify=False)
    except CorruptRecord:
        return None
    return read_dispatch_request(at, memoryview(data))


def is_lost_write(log: CommitLog, hole: Hole) -> bool:
    """Whether a hole may be bytes that were written but never reached the drive before the machine went down.

    Then they were not synced, nor was anything that was written after them. Such bytes come back as zeros up to the
    end of a sector. Zeros right before the next record, in its own sector, are none of these: that sector reached the
    drive after the record there was written, and with it all that was written before. A record of which that sector
    has only zeros, the first bytes of its size, shows nothing of the kind: they are the same in a lost sector.
    """
    if hole.size > _JUDGED_MAX:
        return True
    data = b"".join(log.copies(hole.start, hole.end))
    of_next = log.read(hole.end, -hole.end % SECTOR)
    if any(of_next) and hole.end % SECTOR >= _ZEROS_AT_END and not any(data[-_ZEROS_AT_END:]):
        return False
    size, magic = size_and_magic(data.ljust(BLANK_SIZE, b"\0"), 0)
    head = BLANK_SIZE if magic in _RECORD_MAGICS and size == len(data) else 0
    """These bytes lead to the next record: they are as they were written."""
    if not any(of_next):
        data += of_next
    first = hole.start - hole.start % SECTOR + SECTOR - hole.start
    for end in range(first, len(data) + 1, SECTOR):
        zeros = data[max(0, end - _ZEROS) : end]
        if end > head and not any(zeros):
            return True
    return False
