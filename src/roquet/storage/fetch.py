"""Fetches the records of a pull: from a queue offset on, filtered, within limits.

See docs/storage/fetch.md.
"""

from __future__ import annotations

import mmap
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from enum import Enum

from roquet.errors import UnreadableFile
from roquet.protocol.filters.tags import Filter, Stages
from roquet.protocol.records.layout import MAGIC, SIZE_MIN, fields_struct, fixed_fields
from roquet.storage.log.commit_log import CommitLog
from roquet.storage.queues.consume_queue import BLANK_RECORD_SIZE, ENTRY_SIZE, ConsumeQueue


class FetchStatus(Enum):
    """The outcome of a fetch; the names are Apache's and are the remarks of responses."""

    FOUND = "FOUND"
    NO_MATCHED_MESSAGE = "NO_MATCHED_MESSAGE"
    MESSAGE_WAS_REMOVING = "MESSAGE_WAS_REMOVING"
    OFFSET_FOUND_NULL = "OFFSET_FOUND_NULL"
    OFFSET_OVERFLOW_BADLY = "OFFSET_OVERFLOW_BADLY"
    OFFSET_OVERFLOW_ONE = "OFFSET_OVERFLOW_ONE"
    OFFSET_TOO_SMALL = "OFFSET_TOO_SMALL"
    NO_MATCHED_LOGIC_QUEUE = "NO_MATCHED_LOGIC_QUEUE"
    NO_MESSAGE_IN_QUEUE = "NO_MESSAGE_IN_QUEUE"


@dataclass(frozen=True, slots=True)
class FetchLimits:
    """Limits of one fetch: counts and bytes, as Apache's settings give them.

    A pull has a limit of its own besides, `COUNT_MAX` of the broker's pull handler.

    Records within `memory_bytes` of the log's end count as being in memory.
    """

    memory_bytes: int
    count_in_memory: int = 32
    count_on_disk: int = 8
    size_in_memory: int = 256 * 1024
    size_on_disk: int = 64 * 1024


@dataclass(slots=True)
class Fetched:
    """The result of a fetch: status, records, and the offset at which to fetch next.

    `records` are whole records in order; an element has one record, or several that are adjacent in
    the log. `count` and `size` (bytes) are their totals. `lag`: bytes of the log from the last
    record that was looked at to the log's end.
    """

    status: FetchStatus
    next_offset: int
    min_offset: int
    max_offset: int
    records: list[bytes | bytearray] = field(default_factory=list)
    lag: int = 0
    count: int = 0
    size: int = 0


_SCAN_BYTES = 16000
"""Bytes of queue entries that one scan looks at: Apache's limit, 800 entries."""
_HEAD = fields_struct("size", "magic", "queue_id", "queue_offset", "physical_offset", "sys_flag")
_EVERYTHING = Stages()
_AHEAD_MIN = 4096
_AHEAD_MAX = 64 * 1024
"""Bounds of the read-ahead of a scan, in bytes."""
_UNWANTED = 1 << 64
"""Stands for the tag code of a message that the filter bits exclude; beyond any real tag code."""
_DROPPED_MAX = 4 * 1024 * 1024
"""Bytes of records that one fetch reads and the filter then drops. Without a limit a fetch that
drops 800 records of 4 MiB would block the event loop for seconds."""


def fetch(
    log: CommitLog,
    queue: ConsumeQueue | None,
    offset: int,
    count_max: int,
    wanted: Filter,
    limits: FetchLimits,
    visible_end: int,
) -> Fetched:
    """Fetch at most `count_max` records of `queue` from queue offset `offset` on.

    :param visible_end: physical offset; records at or after it are not returned.
    """
    if queue is None:
        return Fetched(FetchStatus.NO_MATCHED_LOGIC_QUEUE, 0, 0, 0)
    low, high = queue.min_offset, queue.max_offset
    if high == 0:
        return Fetched(FetchStatus.NO_MESSAGE_IN_QUEUE, 0, low, high)
    if offset < low:
        return Fetched(FetchStatus.OFFSET_TOO_SMALL, low, low, high)
    if offset == high:
        return Fetched(FetchStatus.OFFSET_OVERFLOW_ONE, offset, low, high)
    if offset > high:
        return Fetched(FetchStatus.OFFSET_OVERFLOW_BADLY, high, low, high)
    stages = wanted.stages
    fetched = (
        _fetch_next(log, queue, offset, count_max, limits, visible_end) if stages is None else None
    )
    return fetched or _scan(
        log, queue, offset, count_max, stages or _EVERYTHING, limits, visible_end
    )


def _fetch_next(
    log: CommitLog,
    queue: ConsumeQueue,
    offset: int,
    count_max: int,
    limits: FetchLimits,
    visible_end: int,
) -> Fetched | None:
    """The fast path of a fetch: no filter, and all records are in memory and in one file.

    These are as many records as the limits allow. It relies on the physical offsets of a queue's
    entries ascending.

    :returns: None if `_scan` has to fetch the records.
    """
    places, sizes = queue.places_and_sizes(offset, min(limits.count_in_memory, count_max))
    total = sum(sizes)
    if not places or total > limits.size_in_memory:
        return None
    is_ours = offset >= queue.written_from
    if not is_ours and any(
        size < SIZE_MIN or before + size > after
        for before, size, after in zip(places, sizes, places[1:], strict=False)
    ):
        return None
    at, last = places[0], places[-1]
    end = last + sizes[-1]
    file_start = at - at % log.file_size
    if (
        at < log.end - limits.memory_bytes
        or last >= visible_end
        or end - file_start > log.file_size
    ):
        return None
    if at >= log.mapped_from:
        buffer = log.mapped(at)
        if not buffer:
            return None
        records = _slices(buffer, file_start, places, sizes, total)
    elif at >= log.start:
        records = _runs(log, places, sizes, total)
    else:
        return None
    if not is_ours and not _match_entries(records, queue, offset, places, sizes):
        return None
    next_offset = offset + len(places)
    return Fetched(
        FetchStatus.FOUND,
        next_offset,
        queue.min_offset,
        queue.max_offset,
        records,
        log.end - last,
        len(places),
        total,
    )


def _slices(
    buffer: mmap.mmap | bytearray,
    start: int,
    places: tuple[int, ...],
    sizes: tuple[int, ...],
    total: int,
) -> list[bytes | bytearray]:
    """Copy records from the buffer of the file that begins at physical offset `start`.

    If all are adjacent, they are copied as one piece. A fetch of 32 such messages of 1 KB takes 6
    us, of messages of 8 queues in turn 16 us. Finding the adjacent ones among others would take
    longer than copying each.
    """
    at, end = places[0] - start, places[-1] + sizes[-1] - start
    if end - at == total:
        return [buffer[at:end]]
    return [
        buffer[(at := place - start) : at + size] for place, size in zip(places, sizes, strict=True)
    ]


def _runs(
    log: CommitLog, places: tuple[int, ...], sizes: tuple[int, ...], total: int
) -> list[bytes | bytearray]:
    """Read records from the log's file, adjacent ones as one piece."""
    at, end = places[0], places[-1] + sizes[-1]
    firsts, ends = [at], [end]
    if end - at != total:
        for before, size, after in zip(places, sizes, places[1:], strict=False):
            if before + size != after:
                firsts.append(after)
                ends.insert(-1, before + size)
    return [*log.runs(firsts, ends)]


def _match_entries(
    records: Sequence[bytes | bytearray],
    queue: ConsumeQueue,
    offset: int,
    places: Sequence[int],
    sizes: Sequence[int],
) -> bool:
    """Whether all records belong to this queue and have consecutive offsets from `offset` on.

    It is checked for entries that another process wrote: they may be damaged.
    """
    data, index = b"".join(records), 0
    for number, (at, size) in enumerate(zip(places, sizes, strict=True), offset):
        if not _matches_entry(data, index, size, queue, number, at):
            return False
        index += size
    return True


def _matches_entry(
    buffer: bytes | bytearray | mmap.mmap,
    index: int,
    size: int,
    queue: ConsumeQueue,
    offset: int,
    at: int,
) -> bool:
    """Whether the record at `index` has this size, queue, queue offset and physical offset."""
    if index < 0 or size < SIZE_MIN or index + size > len(buffer):
        return False
    said_size, magic, queue_id, queue_offset, physical, sys_flag = _HEAD.unpack_from(buffer, index)
    if (said_size, queue_id, queue_offset, physical) != (size, queue.queue_id, offset, at):
        return False
    body_at = fixed_fields(sys_flag).size
    topic_at = body_at + int.from_bytes(buffer[index + body_at - 4 : index + body_at], "big")
    topic_at += 1 if magic == MAGIC else 2
    topic_end = topic_at + len(queue.topic_bytes)
    return (
        topic_end + 2 <= size and buffer[index + topic_at : index + topic_end] == queue.topic_bytes
    )


def _scan(
    log: CommitLog,
    queue: ConsumeQueue,
    offset: int,
    count_max: int,
    stages: Stages,
    limits: FetchLimits,
    visible_end: int,
) -> Fetched:
    """The slow path of a fetch: reads entry by entry, filters, and reads records from files."""
    records: list[bytes | bytearray] = []
    memory_start = log.end - limits.memory_bytes
    is_in_memory = False
    count_limit, size_limit = min(limits.count_on_disk, count_max), limits.size_on_disk
    ahead = _ReadAhead(log)
    by_code, by_record = stages.by_code, stages.by_record
    count = size_taken = scanned = last_at = dropped = 0
    was_removed = False
    scan_max = max(_SCAN_BYTES // ENTRY_SIZE, count_max)
    entries = queue.entries(offset, max(1, scan_max // stages.cost))
    if stages.by_filter_bits is not None:
        entries = _filtered_by_bits(queue, offset, entries, stages.by_filter_bits)
        by_code = _UNWANTED.__ne__
    for number, (at, size, code) in enumerate(entries, offset):
        if not is_in_memory and at >= memory_start:
            is_in_memory = True
            count_limit, size_limit = min(limits.count_in_memory, count_max), limits.size_in_memory
        if count >= count_limit or (count and size_taken + size > size_limit):
            break
        if at >= visible_end:
            if not scanned:
                return Fetched(
                    FetchStatus.OFFSET_OVERFLOW_ONE, offset, queue.min_offset, queue.max_offset
                )
            break
        scanned += 1
        last_at = at
        if by_code is not None and not by_code(code):
            continue
        record = ahead.read(at, size) if 0 < size < BLANK_RECORD_SIZE else b""
        if len(record) < size or not record:
            was_removed = True
            continue
        if number < queue.written_from and not _matches_entry(record, 0, size, queue, number, at):
            was_removed = True
            continue
        if by_record is not None and not by_record(record):
            dropped += size
            if dropped >= _DROPPED_MAX:
                break
            continue
        records.append(record)
        count += 1
        size_taken += size
    if not scanned:
        return Fetched(
            FetchStatus.OFFSET_FOUND_NULL,
            queue.next_file(offset),
            queue.min_offset,
            queue.max_offset,
        )
    status = FetchStatus.FOUND
    if not records:
        status = FetchStatus.MESSAGE_WAS_REMOVING if was_removed else FetchStatus.NO_MATCHED_MESSAGE
    lag = log.end - last_at
    return Fetched(
        status,
        offset + scanned,
        queue.min_offset,
        queue.max_offset,
        records,
        lag,
        count,
        size_taken,
    )


class _ReadAhead:
    """Reads records at ascending physical offsets, with read-ahead.

    While the records are at most 4 KiB apart, the read-ahead doubles from 4 KiB up to 64 KiB.
    """

    def __init__(self, log: CommitLog) -> None:
        self._log = log
        self._start = self._end = 0
        self._data = b""
        self._more = 0

    def read(self, at: int, size: int) -> bytes:
        """The `size` bytes at `at`; fewer, or none, if the file ends there or is deleted.

        :raises UnreadableFile: the file was truncated, or the drive cannot read the bytes.
        """
        index = at - self._start
        if index < 0 or at + size > self._end:
            self._more = (
                min(2 * self._more + _AHEAD_MIN, _AHEAD_MAX)
                if 0 <= at - self._end <= _AHEAD_MIN
                else 0
            )
            try:
                self._data = self._log.stored(at, size + self._more)
            except UnreadableFile:
                self._data = self._log.stored(at, size)
            self._start, self._end, index = at, at + len(self._data), 0
        return self._data[index : index + size]


def _filtered_by_bits(
    queue: ConsumeQueue,
    offset: int,
    entries: Iterator[tuple[int, int, int]],
    by_filter_bits: Callable[[int, bytes], bool],
) -> Iterator[tuple[int, int, int]]:
    """The entries with the tag code `_UNWANTED` for messages that their filter bits exclude.

    :param offset: queue offset of the first entry.
    """
    for number, (at, size, code) in enumerate(entries, offset):
        bits = queue.filter_bits(number)
        yield at, size, code if bits is None or by_filter_bits(*bits) else _UNWANTED
