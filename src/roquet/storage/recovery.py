"""After a stop or a crash: where valid bytes end, what to cut, where dispatch resumes.

See docs/storage/recovery.md.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass
from typing import Final

from roquet.common.units import PhysicalOffset
from roquet.errors import CorruptRecord, UnreadableFile
from roquet.protocol.records.record import BLANK_MAGIC, BLANK_SIZE, size_and_magic
from roquet.storage.checkpoint import Checkpoint, CheckpointMark
from roquet.storage.dispatch.dispatch import Dispatch
from roquet.storage.index.index import Index
from roquet.storage.log.commit_log import CommitLog
from roquet.storage.log.dispatch_request import read_dispatch_request
from roquet.storage.log.holes import Hole, HoleScanner, is_lost_write, pieces
from roquet.storage.queues.consume_queue import BLANK_RECORD_SIZE, ConsumeQueue
from roquet.storage.queues.queues import Queues

_log = logging.getLogger(__name__)

_FILES_AFTER_A_STOP: Final = 3
DISPATCH: Final = "dispatch"
INDEX: Final = "the index"
"""What may have to wait for room on the drive."""
_NO_TIME: Final = 1 << 63
_TOLD_BY: Final = 64 * 1024
"""Bytes behind the log's end by which an ordinary end is told from others: all of a file of zeros would be read at each
start."""


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
    save_tail: Callable[[PhysicalOffset], object],
    room_wanted: Callable[[str], AbstractContextManager[None]],
) -> None:
    """Let the log end behind its last valid record, and queues and index say what it says.

    After a crash that takes as long as it takes to read and dispatch what came since the checkpoint. A drive without
    room ends nothing: dispatch and index are behind then, and are completed once there is some.

    :param was_ours: nobody but this broker had the store since it erased what stood behind the log's end.
    :param completes: queues lack entries that are to be made from the whole log.
    :param save_tail: called before the log is cut, with the place: what is cut may be more than garbage.
    :param room_wanted: within it a drive without room is told of once, and what was done there is tried again later.
    """
    mark = checkpoint.mark if checkpoint.mark and _is_of_this_log(log, checkpoint.mark) else None
    lost = mark.queue_count - queues.used if mark is not None else 0
    if mark is not None and crashed:
        start = PhysicalOffset(mark.position)
    else:
        start = scan_start(log, checkpoint, queues.log_end, crashed=crashed)
    if checkpoint.mark is not None and checkpoint.mark.position > log.end:
        _log.warning(
            "commit log is shorter than its checkpoint log_end=%d checkpoint=%d: files of the log are lost, or are "
            "another log's; restore them from another broker or a backup", log.end, checkpoint.mark.position,
        )  # fmt: skip
    elif queues.log_end > log.end:
        _log.warning(
            "commit log is shorter than its consume queues log_end=%d queues_end=%d: files of the log are lost, or "
            "the broker ended while it cut its log, or a queue is damaged; if somebody has deleted files, stop the "
            "broker and restore them from another broker or a backup", log.end, queues.log_end,
        )  # fmt: skip
    if checkpoint.damage:
        _log.warning(
            "checkpoint cannot be read, the log is read from %d: %s", start, checkpoint.damage
        )
    known = _known(checkpoint, mark, queues, crashed=crashed, was_ours=was_ours)
    checkpoint.mark = mark
    end, damaged = valid_end(log, start, known, verify=verify)
    taken = _taken(queues, damaged)
    save_tail(end)
    log.truncate(end)
    log.synced_until(start)
    torn = [
        queue
        for queue in queues
        if not _cut(log, queue, start, end, crashed=crashed, has_mark=mark is not None)
    ]
    missing = mark.entry_count - queues.entry_count if mark is not None else 0
    resume = _dispatched_to(queues, start, mark, crashed=crashed)
    if crashed and index is not None:
        resume = min(resume, _cut_index(index, checkpoint, mark, end))
    if torn:
        _drop_damaged(torn)
    if (lost > 0 or missing > 0) and not completes:
        _log.warning(
            "consume queues are missing, or files of them: all are completed from the whole log queues=%d entries=%d",
            max(0, lost), max(0, missing),
        )  # fmt: skip
    if torn or lost > 0 or missing > 0 or completes:
        resume = log.start
    dispatch.position = PhysicalOffset(min(max(resume, log.start), end))
    dispatch.damaged, dispatch.taken = frozenset(hole.start for hole in damaged), taken
    dispatch.recovers, dispatch.verifies = True, verify and dispatch.position < start
    with room_wanted(DISPATCH):
        dispatch.catch_up()
        if dispatch.gaps and not dispatch.holes:
            # The log has all its records: what is missing in these queues are entries that should have been durable.
            _drop_damaged(dispatch.gaps)
            dispatch.position, dispatch.recovers, dispatch.verifies = log.start, True, verify
            dispatch.catch_up()
    if index is not None:
        with room_wanted(INDEX):
            index.flush()
    for queue in queues:
        queue.correct_min_offset(log.start)
    _log.info(
        "log from %d to %d, checked from %d, dispatched from %d%s", log.start, end, start, resume,
        ", after a crash" if crashed else "",
    )  # fmt: skip


def _taken(
    queues: Queues, damaged: Sequence[Hole]
) -> list[tuple[ConsumeQueue, int, PhysicalOffset]]:
    """Queue offsets of damaged records, by entries that were written before they were damaged, and where these records
    stand: of each queue the last one. A crash of the machine may have taken such entries, or have left wrong ones.
    """
    if not damaged:
        return []
    first, spans = damaged[0].start, [(hole.start, hole.end) for hole in damaged]
    found: list[tuple[ConsumeQueue, int, PhysicalOffset]] = []
    for queue in queues:
        with suppress(UnreadableFile):
            last = queue.last_within(spans) if queue.log_end > first else None
            if last is not None:
                found.append((queue, *last))
    return found


def _drop_damaged(queues: Collection[ConsumeQueue]) -> None:
    """Empty queues that are going to be dispatched anew."""
    _log.warning(
        "consume queues are damaged, they are rebuilt from the whole log: count=%d", len(queues)
    )
    for queue in queues:
        queue.drop_all()


def _dispatched_to(
    queues: Queues, start: int, mark: CheckpointMark | None, *, crashed: bool
) -> int:
    """Where the records end that are in their queues: a deleted topic's are not, and stay out of them."""
    if mark is not None:
        return mark.position if crashed else max(mark.position, queues.log_end)
    return min(queues.log_end, start) if crashed else queues.log_end


def _is_of_this_log(log: CommitLog, mark: CheckpointMark) -> bool:
    """Whether the record that the mark names is the one that stood there when it was made."""
    record = log.record_at(mark.last_at)
    if record is None or mark.position > log.end:
        return False
    return read_dispatch_request(mark.last_at, memoryview(record)).store_ms == mark.last_ms


def _cut_index(index: Index, checkpoint: Checkpoint, mark: CheckpointMark | None, end: int) -> int:
    """Drop what a crash may have left half done of the index; from where on the log has to be dispatched for it."""
    if mark is not None and index.cut_to_mark(mark.index_name, mark.index_count, mark.index_end_ms):
        return end
    refill = index.cut_to_time(checkpoint.index_ms)
    return end if refill is None else refill


def _drop_stale(log: CommitLog, queue: ConsumeQueue) -> None:
    """Drop the entries at a queue's end that do not name the record they point to.

    Apache's broker leaves what it cuts off a queue in its files, and the log goes on where it points to. With a mark
    there are none: the entries in front of it were durable. One of them that names no record points to a damaged one,
    whose offset no other message may get.
    """
    while queue.max_offset > queue.min_offset and not _is_true(log, queue, queue.max_offset - 1):
        queue.drop_last()


def _cut(
    log: CommitLog, queue: ConsumeQueue, start: int, end: int, *, crashed: bool, has_mark: bool
) -> bool:
    """Drop the entries of records from where the log ends, after a crash from `start` on.

    False: what is left cannot be believed, or not be read.
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
        return True  # nobody else writes one; the ones behind the mark are cut off already
    record = log.record_at(entry[0])
    if record is None or len(record) != entry[1]:
        return entry[0] < log.start
    request = read_dispatch_request(entry[0], memoryview(record))
    return (request.topic, request.queue_id, request.queue_offset) == (
        queue.topic,
        queue.queue_id,
        offset,
    )


def scan_start(
    log: CommitLog, checkpoint: Checkpoint, dispatched: int, *, crashed: bool
) -> PhysicalOffset:
    """Where checking begins.

    After a clean stop behind the last record that a queue points to, at the earliest at the third last file; after a
    crash at the newest file that begins with a record from before the checkpoint, else at the first.

    :param dispatched: where the last record of all queues ends.
    """
    starts = log.file_starts
    if not starts:
        return PhysicalOffset(0)
    if not crashed:
        earliest = starts[-_FILES_AFTER_A_STOP:][0]
        return PhysicalOffset(dispatched if earliest <= dispatched <= log.end else earliest)
    for start in reversed(starts):
        store_ms = _first_store_ms(log, PhysicalOffset(start))
        if store_ms and store_ms <= checkpoint.safe_ms:
            return PhysicalOffset(start)
    return PhysicalOffset(starts[0])


def _first_store_ms(log: CommitLog, start: PhysicalOffset) -> int:
    """Store time of the first record of a file, 0 where it begins with none."""
    try:
        for at, data in log.walk(start):
            return read_dispatch_request(at, data).store_ms if at == start else 0
    except CorruptRecord:
        pass
    return 0


@dataclass(frozen=True, slots=True)
class Known:
    """What is known of a log before it is read.

    All before the physical offset `durable_to` was synced, and all in front of a record stored at or before
    `durable_ms`. `is_whole`: the log ended there, or before. `last_ms`: when the record in front of the place was
    stored where reading begins, 0 where that is not known. `has_old_tail`: an earlier life of the log may stand behind
    its end.
    """

    durable_to: int = 0
    durable_ms: int = 0
    is_whole: bool = False
    last_ms: int = 0
    has_old_tail: bool = True


def _known(
    checkpoint: Checkpoint,
    mark: CheckpointMark | None,
    queues: Queues,
    *,
    crashed: bool,
    was_ours: bool,
) -> Known:
    """Times go back with the clock: they count only where a broker wrote them that makes no marks."""
    if crashed and mark is not None:
        return Known(mark.position, last_ms=mark.last_ms, has_old_tail=not was_ours)
    if crashed:
        durable_ms = 0 if checkpoint.mark is not None else checkpoint.safe_ms
        return Known(durable_ms=durable_ms, has_old_tail=not was_ours)
    end = max(mark.position if mark is not None else 0, queues.log_end)
    return Known(end, checkpoint.safe_ms, is_whole=end > 0)


def valid_end(
    log: CommitLog, start: PhysicalOffset, known: Known, *, verify: bool
) -> tuple[PhysicalOffset, list[Hole]]:
    """Where the run of valid records from `start` ends, and the damaged places in it.

    A record counts when its parts add up, it says the physical offset where it stands and, with `verify`, its body
    has its checksum. Damaged ones end the run only where they may be the beginning of what a crash of the machine
    took, so that another copy of this log may go on in another way; else it goes on with the next valid one.
    """
    end, last_ms, damaged = start, known.last_ms, list[Hole]()
    try:
        for piece in pieces(log, start, HoleScanner(log, at_once=log.file_size), verify=verify):
            if not isinstance(piece, Hole):
                end, last_ms = (
                    PhysicalOffset(piece.at + int(piece.ends[-1])),
                    int(piece.store_ms[-1]),
                )
                continue
            if not _may_step_over(log, piece, last_ms, known):
                _tell_end(log, end, piece.reason)
                break
            damaged.append(piece)
    except CorruptRecord as error:
        _tell_end(log, end, str(error))
    data = log.read(end, BLANK_SIZE)
    if len(data) == BLANK_SIZE and size_and_magic(data, 0)[1] == BLANK_MAGIC:
        end = log.next_file(end)
    return end, damaged


def _tell_end(log: CommitLog, end: PhysicalOffset, reason: str) -> None:
    """Zeros behind it are the ordinary end of a log, which must not read as damage. A look at the next bytes does: what
    stands farther behind is found, saved and told when it is cut off."""
    if any(log.read(end, _TOLD_BY)):
        _log.info("valid bytes of the log end: physical_offset=%d reason=%s", end, reason)
    else:
        _log.info("the log ends at physical_offset=%d", end)


def _may_step_over(log: CommitLog, hole: Hole, last_ms: int, known: Known) -> bool:
    """Whether what follows a hole belongs to this log: it was durable, or the hole is nothing that a crash leaves.

    Apache's broker leaves what it cuts off behind the log's end. Where it had the store last, a record that was stored
    before the one in front of the hole is taken for a remnant. Else times say nothing: they go back with the clock.

    :param last_ms: when the record in front of the hole was stored, 0 where that is not known.
    """
    if hole.end <= known.durable_to:
        return True
    next_ms = _store_ms_behind(log, hole)
    if known.is_whole or (known.has_old_tail and next_ms < last_ms):
        return False
    return next_ms <= known.durable_ms or not is_lost_write(log, hole)


def _store_ms_behind(log: CommitLog, hole: Hole) -> int:
    """When the next record was stored; the end of time where a blank follows that is the log's last."""
    try:
        for at, data in log.walk(hole.end):
            return read_dispatch_request(at, data).store_ms
    except CorruptRecord:
        pass
    return _NO_TIME
