"""Holes: damaged bytes in the middle of a log, and the walk that steps over them (decision 0024).

All brokers that have the same bytes must build the same queues, so the end of a hole depends on the
bytes only. If a valid record or a blank begins where the damaged record's own size leads, the hole
ends there. Otherwise it ends at the first later offset where one begins. A record found by that
search must contain its own physical offset, and its body must match its checksum.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from enum import Enum
from typing import Final

from roquet.errors import CorruptRecord
from roquet.protocol.records.block import RecordBlock
from roquet.protocol.records.layout import (
    BLANK_MAGIC,
    BLANK_SIZE,
    RECORD_MAGICS,
    SIZE_MIN,
    fields_struct,
    find_heads,
    is_record_head,
    size_and_magic,
)
from roquet.protocol.records.record import BAD_CHECKSUM, check
from roquet.storage.log.commit_log import CommitLog
from roquet.storage.log.dispatch_request import DispatchRequest, read_dispatch_request

SEARCHED_AT_ONCE: Final = 64 * 1024 * 1024
"""Bytes searched at once: a slave searches on the event loop, and 64 MiB take some 50 ms."""
_PIECE: Final = 1024 * 1024
_PHYSICAL_OFFSET: Final = fields_struct("physical_offset")
_COLUMNS_FROM: Final = 8
"""Fewer records are checked one by one, since columns would cost more."""

SECTOR: Final = 512
"""Bytes that a drive writes as a whole or not at all."""
_ZEROS: Final = 32
"""Zeros at the end of a sector by which a lost write is recognized; a record's header never has so
many in a row."""
_ZEROS_AT_END: Final = 3
"""Zeros at the end of a hole that no record can end with: a record without properties ends with its
topic and two zeros."""
_JUDGED_MAX: Final = 64 * 1024 * 1024
"""A larger hole is not read into memory, but taken for a lost write."""


@dataclass(frozen=True, slots=True)
class Hole:
    """Bytes of the log without a valid record; the next valid record or blank begins at `end`.

    `request`: the dispatch request of the record at `start`, if only its body is damaged.
    """

    start: int
    end: int
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
    """Finds the ends of holes in one log.

    `is_done` is False while the last search has stopped before the log's end; the next `find`
    resumes it. The caller sets `is_whole` if no more bytes will follow the log's end that complete
    its last record.

    :param at_once: bytes that one `find` searches at most.
    """

    def __init__(self, log: CommitLog, at_once: int = SEARCHED_AT_ONCE) -> None:
        self._log = log
        self._at_once = at_once
        self._hole = -1
        self._searched_to = 0
        self.is_done = True
        self.is_whole = False

    def find(self, physical: int) -> int | None:
        """The end of the hole that begins at `physical`; None if nothing valid follows yet."""
        self.is_done = True
        size, magic = self._head(physical)
        next_at = physical + size
        if is_record_head(size, magic, self._log.next_file(physical) - physical - BLANK_SIZE):
            if next_at + BLANK_SIZE <= self._log.readable_to:
                # not verified: if the next record's body is damaged, it is a hole of its own
                found = self._judge(next_at, verify=False)
            else:
                found = self._unfinished
            if found is not _Found.NOTHING:
                return next_at if found is _Found.VALID else None
        return self._search(physical)

    @property
    def _unfinished(self) -> _Found:
        """The verdict on a record that reaches beyond the log's end."""
        return _Found.NOTHING if self.is_whole else _Found.UNFINISHED

    def _head(self, at: int) -> tuple[int, int]:
        """Size and magic number at `at`."""
        data = self._log.read(at, BLANK_SIZE)
        return size_and_magic(data, 0) if len(data) == BLANK_SIZE else (0, 0)

    def _search(self, hole: int) -> int | None:
        """Try each offset after `hole` at which a magic number indicates a record or a blank."""
        if self._hole != hole:
            self._hole, self._searched_to = hole, hole + 1
        left = self._at_once
        end = self._log.readable_to
        at = self._log.next_data(self._searched_to)
        while at < end:
            if left <= 0:
                self.is_done = False
                return None
            data = self._log.read(at, _PIECE + BLANK_SIZE)
            for place in find_heads(data):
                found = (
                    self._judge(at + place, verify=True)
                    if place >= 0 and at + place > hole
                    else _Found.NOTHING
                )
                if found is not _Found.NOTHING:
                    return (at + place) if found is _Found.VALID else None
            # a magic number may lie across the piece's end, but not across the file's
            if at + len(data) < self._log.next_file(at):
                if len(data) <= BLANK_SIZE:
                    return None
                self._searched_to = at + len(data) - BLANK_SIZE
            else:
                self._searched_to = self._log.next_file(at)
            left -= len(data)
            at = self._log.next_data(self._searched_to)
        return None

    def _judge(self, physical: int, *, verify: bool) -> _Found:
        """What begins at `physical`; with `verify` a record's body must match its checksum."""
        size, magic = self._head(physical)
        room = self._log.next_file(physical) - physical
        if magic == BLANK_MAGIC and size == room:
            return _Found.VALID
        if not is_record_head(size, magic, room):
            return _Found.NOTHING
        head = self._log.read(physical, _PHYSICAL_OFFSET.size)
        if len(head) < _PHYSICAL_OFFSET.size:
            return self._unfinished
        # checked before the whole record is read: a body may be full of bytes that look like heads
        if _PHYSICAL_OFFSET.unpack(head)[0] != physical:
            return _Found.NOTHING
        data = self._log.read(physical, size)
        if len(data) < size:
            return self._unfinished
        try:
            check(memoryview(data), physical, verify=verify)
        except CorruptRecord:
            return _Found.NOTHING
        return _Found.VALID


def pieces(
    log: CommitLog,
    physical: int,
    ends: HoleScanner,
    *,
    verify: bool = False,
    known: Collection[int] = (),
) -> Iterator[RecordBlock | Hole]:
    """Walk the log from `physical` to its end: blocks of sound records, and the holes between them.

    It ends at a record whose bytes are not all in the log yet.

    :param ends: finds the ends of holes.
    :param verify: a record whose body does not match its checksum is a hole, too.
    :param known: starts of holes that an earlier walk with `verify` found.
    :raises CorruptRecord: neither a record nor a blank begins there, and nothing valid after it is
        known.
    """
    while True:
        error: CorruptRecord | None = None
        try:
            for block in log.blocks(physical, is_whole=ends.is_whole):
                count, error = _sound_count(block, verify=verify, known=known)
                if count:
                    yield block.first(count)
                    physical = block.at + int(block.ends[count - 1])
                if error is not None:
                    break
            else:
                return
        except CorruptRecord as damaged:
            error = damaged
        assert error is not None
        physical = error.at
        end = ends.find(physical)
        if end is None:
            raise error
        yield Hole(physical, end, error.reason, _request_of_damaged(log, physical, end))
        physical = end


def records(log: CommitLog, physical: int) -> Iterator[tuple[int, memoryview]]:
    """Each sound record from `physical` on, with its physical offset."""
    try:
        for piece in pieces(log, physical, HoleScanner(log, at_once=log.file_size)):
            if not isinstance(piece, Hole):
                yield from piece.records()
    except CorruptRecord:
        return


def _sound_count(
    block: RecordBlock, *, verify: bool, known: Collection[int]
) -> tuple[int, CorruptRecord | None]:
    """How many records from the first on are sound, and the error of the next one, if any."""
    count = block.sound_count(verify=verify) if len(block) >= _COLUMNS_FROM else 0
    if known:
        places = block.physical.tolist()
        count = min([count, *(number for number, at in enumerate(places) if at in known)])
    starts, end_of_data = block.starts[count:].tolist(), block.ends[count:].tolist()
    view = memoryview(block.data)
    for start, end in zip(starts, end_of_data, strict=True):
        at = block.at + start
        if at in known:
            return count, CorruptRecord(at, BAD_CHECKSUM)
        try:
            check(view[start:end], at, verify=verify)
        except CorruptRecord as error:
            return count, error
        count += 1
    return count, None


def _request_of_damaged(log: CommitLog, physical: int, end: int) -> DispatchRequest | None:
    """The dispatch request of a record whose body alone is damaged; None if more of it is."""
    head = log.read(physical, BLANK_SIZE)
    size = size_and_magic(head, 0)[0] if len(head) == BLANK_SIZE else 0
    data = log.read(physical, size) if SIZE_MIN <= size <= end - physical else b""
    if len(data) < SIZE_MIN:
        return None
    try:
        check(memoryview(data), physical, verify=False)
    except CorruptRecord:
        return None
    return read_dispatch_request(physical, memoryview(data))


def is_lost_write(log: CommitLog, hole: Hole) -> bool:
    """Whether a hole may be bytes that were written but did not reach the drive before a crash.

    If so, they were not synced, nor was anything that was written after them. Such bytes read as
    zeros up to the end of a sector.

    Zeros right before the next record, in the sector where it begins, are no lost write: that
    sector reached the drive after the record was written, with all bytes written before. That is
    not so if the sector has only zeros of the record, the first bytes of its size: a lost sector
    has the same.
    """
    if hole.size > _JUDGED_MAX:
        return True
    data = b"".join(log.copies(hole.start, hole.end))
    of_next = log.read(hole.end, -hole.end % SECTOR)
    if any(of_next) and hole.end % SECTOR >= _ZEROS_AT_END and not any(data[-_ZEROS_AT_END:]):
        return False
    size, magic = size_and_magic(data.ljust(BLANK_SIZE, b"\0"), 0)
    head = BLANK_SIZE if magic in RECORD_MAGICS and size == len(data) else 0
    """Bytes of the header that lead to the next record, so they are as they were written."""
    if not any(of_next):
        data += of_next
    first = hole.start - hole.start % SECTOR + SECTOR - hole.start
    for end in range(first, len(data) + 1, SECTOR):
        zeros = data[max(0, end - _ZEROS) : end]
        if end > head and not any(zeros):
            return True
    return False
