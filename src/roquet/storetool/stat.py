"""Sums up a store in a few numbers, without reading the whole log."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from roquet.storage.checkpoint import CheckpointMark
from roquet.storetool.files import StoreFiles
from roquet.storetool.listing import are_readable, store_ms
from roquet.storetool.read.index_files import read_header
from roquet.storetool.read.log_scan import LogScan
from roquet.storetool.read.log_scanner import record_at
from roquet.storetool.read.queue_entries import QueueEntries, entries_of
from roquet.storetool.state import disk_used, mark_of_this_log, read_state

_AFTER_THE_LAST: Final = 1 << 62


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
        files.log.file_size if files.log.files else 0,
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
    scan = LogScan(files.log, _AFTER_THE_LAST, verify=False)
    scan.end = max(files.log.start, min(dispatched, files.log.end))
    newest_ms = 0
    for rows in scan:
        newest_ms = int(rows.store_ms.max())
    if not newest_ms:
        # No record follows the dispatched ones: the newest record is one that a queue's last entry
        # points to.
        last = [queue for queue, end in zip(queues, ends, strict=True) if end == dispatched]
        newest_ms = max((store_ms(files, each, each.end() - 1) or 0 for each in last), default=0)
    return newest_ms, scan.end


def _messages(queue: QueueEntries, log_start: int) -> int:
    """Count the queue's entries whose records are not deleted."""
    pieces = queue.walk(queue.first, queue.end())
    return sum(int(np.count_nonzero(are_readable(found, log_start))) for _, found in pieces)
