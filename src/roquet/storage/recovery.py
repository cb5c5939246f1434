"""Recovery at a start: finds the log's valid end, truncates, and completes queues and index.

See docs/storage/recovery.md.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from roquet.errors import CorruptRecord, StoreError, UnreadableFile
from roquet.storage.checkpoint import Checkpoint, CheckpointMark
from roquet.storage.dispatch.dispatch import Dispatch
from roquet.storage.index.index import Index
from roquet.storage.log.commit_log import CommitLog
from roquet.storage.log.dispatch_request import read_dispatch_request
from roquet.storage.log.holes import Hole, HoleScanner, is_lost_write, pieces
from roquet.storage.queues.consume_queue import BLANK_RECORD_SIZE, ConsumeQueue
from roquet.storage.queues.queues import Queues
from roquet.storage.retried_tasks import DISPATCH, INDEX

_log = logging.getLogger(__name__)

_FILES_AFTER_A_STOP: Final = 3
"""Last files that are checked at most after a clean stop, as in Apache."""
_NO_TIME: Final = 1 << 63
_CHECKED_AFTER_END: Final = 64 * 1024
"""Bytes after the log's end that are checked for zeros. Checking the rest of the file would read
all of it at each start."""


def require_durable_log(log: CommitLog, mark: CheckpointMark | None, root: Path) -> None:
    """Refuse a log that ends before the checkpoint mark.

    :raises StoreError: segments of the log are missing.
    """
    end = log.end  # before recovery: the end of the last file
    if mark is None or mark.position <= end:
        return
    folders = " or ".join(str(folder) for folder in log.folders)
    raise StoreError(
        f"files of the commit log are missing from {folders}: the last file ends at physical "
        f"offset {end}, the log was durable up to {mark.position}. Mount the volume or restore "
        "the files; or promote a slave; or, to start without the lost messages, delete "
        f"{root / 'checkpoint'}: new messages then get their queue offsets"
    )


def recover(
    log: CommitLog,
    queues: Queues,
    index: Index | None,
    checkpoint: Checkpoint,
    dispatch: Dispatch,
    *,
    crashed: bool,
    was_ours: bool,
    completes: bool,
    verify: bool,
    save_tail: Callable[[int], object],
    attempt: Callable[[str], AbstractContextManager[None]],
) -> None:
    """Truncate the log after its last valid record, and make queues and index agree with the log.

    After a crash the duration depends on what was written since the checkpoint, which is read and
    dispatched. A full drive does not fail a start: dispatch and index lag then, and are completed
    once there is room.

    :param was_ours: no broker of another kind has used the store since a broker of ours erased the
        bytes after the log's end.
    :param completes: some queues lack entries that are to be rebuilt from the whole log.
    :param save_tail: called with the log's new end before the log is truncated, to save the bytes
        after it.
    :param attempt: `RetriedTasks.attempt`.
    """
    # the mark of another log says nothing about this one
    mark = checkpoint.mark if checkpoint.mark and _is_of_this_log(log, checkpoint.mark) else None
    lost = mark.queue_count - queues.used if mark is not None else 0
    if mark is not None and crashed:
        start = mark.position
    else:
        start = scan_start(log, checkpoint, queues.log_end, crashed=crashed)
    if checkpoint.mark is not None and checkpoint.mark.position > log.end:
        _log.warning(
            "commit log is shorter than its checkpoint: log_end=%d checkpoint=%d; files of the log "
            "are lost or belong to another log, restore them from another broker or a backup",
            log.end, checkpoint.mark.position,
        )  # fmt: skip
    elif queues.log_end > log.end:
        _log.warning(
            "commit log is shorter than its consume queues: log_end=%d queues_end=%d; files of the "
            "log are lost, or the broker ended while it truncated its log, or a queue is damaged. "
            "If files were deleted, stop the broker and restore them from another one or a backup",
            log.end, queues.log_end,
        )  # fmt: skip
    if checkpoint.damage:
        _log.warning(
            "checkpoint cannot be read, more of the log is checked: checked_from=%d reason=%s",
            start, checkpoint.damage,
        )  # fmt: skip
    known = _known(checkpoint, mark, queues, crashed=crashed, was_ours=was_ours)
    checkpoint.mark = mark
    end, damaged = valid_end(log, start, known, verify=verify)
    taken = _taken(queues, damaged)  # before the entries of damaged records are dropped
    save_tail(end)
    log.truncate(end)
    log.reset_flushed_to(start)  # the bytes after it were written, but maybe never synced
    # The whole log is dispatched again for queues that are `torn` (damaged or unreadable entries),
    # for `lost` ones and `missing` entries (the mark counted more), and for those to rebuild.
    torn = [
        queue
        for queue in queues
        if not _truncate_queue(log, queue, start, end, crashed=crashed, has_mark=mark is not None)
    ]
    missing = mark.entry_count - queues.entry_count if mark is not None else 0
    resume = _dispatched_to(queues, start, mark, crashed=crashed)
    if crashed and index is not None:
        resume = min(resume, _truncate_index(index, checkpoint, mark, end))
    if torn:
        _drop_damaged(torn)
    if (lost > 0 or missing > 0) and not completes:
        _log.warning(
            "consume queues or files of them are missing, all are completed from the whole log: "
            "queues=%d entries=%d", max(0, lost), max(0, missing),
        )  # fmt: skip
    if torn or lost > 0 or missing > 0 or completes:
        resume = log.start  # nothing says which records the missing entries belong to
    dispatch.position = min(max(resume, log.start), end)
    dispatch.damaged = frozenset(hole.start for hole in damaged)
    dispatch.taken = taken
    dispatch.log_is_complete = True
    dispatch.verifies = verify and dispatch.position < start
    with attempt(DISPATCH):
        dispatch.catch_up()
        if dispatch.gaps and not dispatch.holes:
            # The log has all its records: these queues lack entries that should have been durable.
            _drop_damaged(dispatch.gaps)
            dispatch.position = log.start
            dispatch.log_is_complete = True
            dispatch.verifies = verify
            dispatch.catch_up()
    if index is not None:
        with attempt(INDEX):
            index.flush()
    for queue in queues:
        queue.correct_min_offset(log.start)
    _log.info(
        "commit log recovered: start=%d end=%d checked_from=%d dispatched_from=%d crashed=%s",
        log.start, end, start, resume, crashed,
    )  # fmt: skip


def _taken(queues: Queues, damaged: Sequence[Hole]) -> list[tuple[ConsumeQueue, int, int]]:
    """The last damaged record of each queue: queue, queue offset and physical offset.

    They are found by entries that were written before the records were damaged. A crash of the
    machine may have taken such entries, or have left wrong ones.
    """
    if not damaged:
        return []
    first = damaged[0].start
    spans = [(hole.start, hole.end) for hole in damaged]
    found: list[tuple[ConsumeQueue, int, int]] = []
    for queue in queues:
        with suppress(UnreadableFile):
            last = queue.last_within(spans) if queue.log_end > first else None
            if last is not None:
                found.append((queue, *last))
    return found


def _drop_damaged(queues: Collection[ConsumeQueue]) -> None:
    """Empty queues that will be dispatched again from the log's start."""
    _log.warning(
        "consume queues are damaged, they are rebuilt from the whole log: count=%d", len(queues)
    )
    for queue in queues:
        queue.delete_newest_first()


def _dispatched_to(
    queues: Queues, start: int, mark: CheckpointMark | None, *, crashed: bool
) -> int:
    """The physical offset up to which the log is dispatched.

    Records of deleted topics before it are not dispatched again.
    """
    if mark is not None:
        return mark.position if crashed else max(mark.position, queues.log_end)
    return min(queues.log_end, start) if crashed else queues.log_end


def _is_of_this_log(log: CommitLog, mark: CheckpointMark) -> bool:
    """Whether the log still has the record that the mark names, with the same store time."""
    record = log.record_at(mark.last_at)
    if record is None or mark.position > log.end:
        return False
    return read_dispatch_request(mark.last_at, memoryview(record)).store_ms == mark.last_ms


def _truncate_index(
    index: Index, checkpoint: Checkpoint, mark: CheckpointMark | None, end: int
) -> int:
    """Drop index entries that a crash may have left incomplete.

    :returns: the physical offset from which the log has to be dispatched to the index again.
    """
    if mark is not None and index.truncate_to_mark(
        mark.index_name, mark.index_count, mark.index_end_ms
    ):
        return end
    refill = index.truncate_to_time(checkpoint.index_ms)
    return end if refill is None else refill


def _drop_stale(log: CommitLog, queue: ConsumeQueue) -> None:
    """Drop the entries at a queue's end that do not match the record they point to.

    Apache's broker leaves truncated entries in the queue's files, and new records are written to
    the log where they point to. Not called if the checkpoint has a mark: the entries before the
    mark were durable. One that matches no record then points to a damaged record. It stays, so that
    no other message gets its queue offset.
    """
    while queue.max_offset > queue.min_offset and not _is_true(log, queue, queue.max_offset - 1):
        queue.drop_last()


def _truncate_queue(
    log: CommitLog, queue: ConsumeQueue, start: int, end: int, *, crashed: bool, has_mark: bool
) -> bool:
    """Drop a queue's entries of records after the log's `end`; after a crash, after `start`.

    :returns: False if the entries that are left are damaged or cannot be read.
    """
    try:
        is_torn = not crashed and (queue.has_bytes_behind or queue.log_end > end)
        if crashed or queue.log_end > end:
            queue.truncate(start if crashed else end)
        if crashed and not has_mark:
            _drop_stale(log, queue)
        queue.correct_min_offset(log.start)
    except UnreadableFile:
        return False
    return not is_torn


def _is_true(log: CommitLog, queue: ConsumeQueue, offset: int) -> bool:
    """Whether an entry points to a record of this queue and offset."""
    entry = queue.entry(offset)
    assert entry is not None
    if entry[1] == BLANK_RECORD_SIZE:
        return True  # only this broker writes blanks; those after the mark are dropped already
    record = log.record_at(entry[0])
    if record is None or len(record) != entry[1]:
        return entry[0] < log.start
    request = read_dispatch_request(entry[0], memoryview(record))
    return (request.topic, request.queue_id, request.queue_offset) == (
        queue.topic,
        queue.queue_id,
        offset,
    )


def scan_start(log: CommitLog, checkpoint: Checkpoint, dispatched: int, *, crashed: bool) -> int:
    """The physical offset from which the log is checked, if there is no mark or no crash.

    After a clean stop: the end of the last record that a queue points to, but not before the third
    last file. After a crash: the newest file that begins with a record from before the checkpoint's
    times, else the first file.

    :param dispatched: the end of the last record that a queue points to.
    """
    starts = log.file_starts
    if not starts:
        return 0
    if not crashed:
        earliest = starts[-_FILES_AFTER_A_STOP:][0]
        return dispatched if earliest <= dispatched <= log.end else earliest
    for start in reversed(starts):
        # after a blank that is the time of a later file's first record, which was too late
        if 0 != _next_ms(log, start) <= checkpoint.safe_ms:
            return start
    return starts[0]


def _next_ms(log: CommitLog, physical: int) -> int:
    """Store time of the first record from `physical` on.

    `_NO_TIME` if none begins there, or after a blank there.
    """
    with suppress(CorruptRecord):
        for at, data in log.walk(physical):
            return read_dispatch_request(at, data).store_ms
    return _NO_TIME


@dataclass(frozen=True, slots=True)
class Known:
    """What checkpoint and queues say about a log before it is read."""

    durable_to: int = 0
    """The log was durable up to this physical offset."""
    durable_ms: int = 0
    """All records before one stored at this time or earlier were durable, too."""
    is_whole: bool = False
    """Whether the log ended at `durable_to` or before it."""
    last_ms: int = 0
    """Store time of the record before the first one that is checked, 0 if it is not known."""
    has_old_tail: bool = True
    """Whether records from before an earlier truncation may follow the log's end."""


def _known(
    checkpoint: Checkpoint,
    mark: CheckpointMark | None,
    queues: Queues,
    *,
    crashed: bool,
    was_ours: bool,
) -> Known:
    """Collect what checkpoint and queues say about the log.

    After a crash the checkpoint's times count only if it has no mark, that is, if Apache's broker
    wrote it: store times go back with the clock.
    """
    if crashed and mark is not None:
        return Known(mark.position, last_ms=mark.last_ms, has_old_tail=not was_ours)
    if crashed:
        durable_ms = 0 if checkpoint.mark is not None else checkpoint.safe_ms
        return Known(durable_ms=durable_ms, has_old_tail=not was_ours)
    end = max(mark.position if mark is not None else 0, queues.log_end)
    return Known(end, checkpoint.safe_ms, is_whole=end > 0)


def valid_end(log: CommitLog, start: int, known: Known, *, verify: bool) -> tuple[int, list[Hole]]:
    """Find the end of the valid records from `start` on, and the holes between them.

    A record is valid if its parts add up, it contains its own physical offset and, with `verify`,
    its body matches its checksum. A damaged record ends the log if it may be the first of the
    records that a crash of the machine lost: other copies of this log may have other records there.
    Otherwise the log goes on with the next valid record.
    """
    end = start
    last_ms = known.last_ms
    damaged: list[Hole] = []
    try:
        for piece in pieces(log, start, HoleScanner(log, at_once=log.file_size), verify=verify):
            if not isinstance(piece, Hole):
                end = piece.at + int(piece.ends[-1])
                last_ms = int(piece.store_ms[-1])
                continue
            if not _may_step_over(log, piece, last_ms, known):
                _report_end(log, end, piece.reason)
                break
            damaged.append(piece)
    except CorruptRecord as error:
        _report_end(log, end, str(error))
    if log.is_closed_at(end):
        end = log.next_file(end)
    return end, damaged


def _report_end(log: CommitLog, end: int, reason: str) -> None:
    """Log where the log ends. If only zeros follow, that is normal and gets no reason.

    Only the next bytes are checked; `save_tail` finds and logs anything farther.
    """
    if any(log.read(end, _CHECKED_AFTER_END)):
        _log.info("commit log ends before invalid bytes: physical_offset=%d reason=%s", end, reason)
    else:
        _log.info("commit log ends: physical_offset=%d", end)


def _may_step_over(log: CommitLog, hole: Hole, last_ms: int, known: Known) -> bool:
    """Whether the records after a hole belong to this log.

    They do if they were durable, or if the hole does not look like writes that a crash lost. After
    a clean stop nothing after `known.durable_to` belongs to the log. Apache's broker leaves
    truncated records in the log's file: if it used the store last, a record stored before the one
    in front of the hole counts as such a remnant. Otherwise store times are not compared: they go
    back with the clock.

    :param last_ms: store time of the record in front of the hole, 0 if it is not known.
    """
    if hole.end <= known.durable_to:
        return True
    next_ms = _next_ms(log, hole.end)
    if known.is_whole or (known.has_old_tail and next_ms < last_ms):
        return False
    return next_ms <= known.durable_ms or not is_lost_write(log, hole)
