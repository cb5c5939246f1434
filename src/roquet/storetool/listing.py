"""Lists the topics and queues of a store, and sums it up in a few numbers."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np

from roquet.protocol.records.columns import Bools
from roquet.storage.checkpoint import CheckpointMark
from roquet.storage.queues.consume_queue import BLANK_RECORD_SIZE
from roquet.storetool.files import StoreFiles
from roquet.storetool.read.column_scan import ColumnScan
from roquet.storetool.read.index_files import read_header
from roquet.storetool.read.log_scanner import record_at
from roquet.storetool.read.queue_entries import Entries, QueueEntries, entries_of
from roquet.storetool.state import disk_used, mark_of_this_log, read_state

_AFTER_THE_LAST: Final = 1 << 62


@dataclass(frozen=True, slots=True)
class QueueListing:
    """One queue of a store.

    :param min_offset: queue offset of the first message.
    :param max_offset: the queue offset after the last message.
    :param file_bytes: bytes of the queue's files.
    :param first_ms: store time of the first message (ms since the epoch), None without messages;
        `last_ms` that of the last one.
    """

    topic: str
    queue_id: int
    min_offset: int
    max_offset: int
    file_bytes: int
    first_ms: int | None
    last_ms: int | None

    @property
    def messages(self) -> int:
        """The number of messages from `min_offset` to `max_offset`."""
        return self.max_offset - self.min_offset


def list_queues(files: StoreFiles, topics: frozenset[str] = frozenset()) -> Iterator[QueueListing]:
    """List all queues, or those of some topics, by topic and queue id."""
    for topic, queue_id in sorted(files.queues):
        if not topics or topic in topics:
            yield _listing(files, topic, queue_id)


def _listing(files: StoreFiles, topic: str, queue_id: int) -> QueueListing:
    entries = entries_of(files, topic, queue_id)
    end = entries.end()
    first = first_readable(entries, files.log.start, end)
    size = sum(file.size for file in entries.files.files)
    first_ms = last_ms = None
    if first < end:
        first_ms, last_ms = _store_ms(files, entries, first), _store_ms(files, entries, end - 1)
    return QueueListing(topic, queue_id, first, end, size, first_ms, last_ms)


def first_readable(entries: QueueEntries, log_start: int, end: int) -> int:
    """Return the queue offset of the first entry whose record is not deleted.

    :param log_start: the log's first physical offset.
    :param end: the queue offset to stop at; returned if there is no such entry.
    """
    for offset, found in entries.walk(entries.first, end):
        good = np.flatnonzero(_are_readable(found, log_start))
        if len(good):
            return offset + int(good[0])
    return end


def _are_readable(entries: Entries, log_start: int) -> Bools:
    """Return which of these entries have a record that is not deleted."""
    readable: Bools = (entries["physical"] >= log_start) & (entries["size"] != BLANK_RECORD_SIZE)
    return readable


def _store_ms(files: StoreFiles, entries: QueueEntries, offset: int) -> int | None:
    """Return the store time of the record at a queue offset, or None if it cannot be read."""
    found = entries.read(offset, 1)
    record = record_at(files.log, int(found["physical"][0])) if len(found) else ""
    return None if isinstance(record, str) else record.store_ms


@dataclass(frozen=True, slots=True)
class Stat:
    """Numbers of a store: sizes in bytes, times in ms since the epoch, 0 if there is none.

    :param is_locked: whether a broker runs; None if the system does not say.
    :param has_abort: whether a broker runs, or did not stop cleanly.
    :param log_ms: up to which store time the log is durable, by the checkpoint; `queues_ms` and
        `index_ms` likewise.
    :param is_mark_valid: whether the checkpoint mark fits this log.
    """

    log_files: int
    log_file_size: int
    log_start: int
    log_end: int
    topics: int
    queues: int
    queue_files: int
    queue_file_size: int
    messages: int
    index_files: int
    keys: int
    disk_used: int
    oldest_ms: int
    newest_ms: int
    is_locked: bool | None
    has_abort: bool
    log_ms: int
    queues_ms: int
    index_ms: int
    mark: CheckpointMark | None
    is_mark_valid: bool


def stat(files: StoreFiles) -> Stat:
    """Return the numbers of a store. Only the log after the last dispatched record is read."""
    state = read_state(files.root)
    queues = [entries_of(files, *key) for key in files.queues]
    newest_ms, end = _log_end(files, queues)
    oldest = record_at(files.log, files.log.start)
    return Stat(
        len(files.log.files),
        files.log.file_size,
        files.log.start,
        end,
        len({topic for topic, _ in files.queues}),
        len(files.queues),
        sum(len(each.files) for each in files.queues.values()),
        files.queue_file_size,
        sum(_messages(queue, files.log.start) for queue in queues),
        len(files.index),
        sum(read_header(path).count - 1 for path in files.index),
        disk_used({files.root, *files.log.folders}),
        0 if isinstance(oldest, str) else oldest.store_ms,
        newest_ms,
        state.is_locked,
        state.has_abort,
        state.checkpoint.log_ms,
        state.checkpoint.queues_ms,
        state.checkpoint.index_ms,
        state.checkpoint.mark,
        mark_of_this_log(files, state.checkpoint) is not None,
    )


def _log_end(files: StoreFiles, queues: list[QueueEntries]) -> tuple[int, int]:
    """Return the last record's store time, and the physical offset at which the log ends."""
    ends = [queue.log_end() for queue in queues]
    dispatched = max(ends, default=0)
    scan = ColumnScan(files.log, _AFTER_THE_LAST, verify=False)
    scan.end = max(files.log.start, min(dispatched, files.log.end))
    newest_ms = 0
    for rows in scan:
        newest_ms = int(rows.store_ms.max())
    if not newest_ms:
        # No record follows the dispatched ones: the newest record is one that a queue's last entry
        # points to.
        last = [queue for queue, end in zip(queues, ends, strict=True) if end == dispatched]
        newest_ms = max((_store_ms(files, each, each.end() - 1) or 0 for each in last), default=0)
    return newest_ms, scan.end


def _messages(queue: QueueEntries, log_start: int) -> int:
    """Count the queue's entries whose records are not deleted."""
    pieces = queue.walk(queue.first, queue.end())
    return sum(int(np.count_nonzero(_are_readable(found, log_start))) for _, found in pieces)
