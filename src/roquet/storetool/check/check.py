"""Checks a whole store in one walk through its log; `check` is the entry point."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from roquet.storetool.check.checkpoint import check_checkpoint
from roquet.storetool.check.findings import Findings
from roquet.storetool.check.index import IndexCheck
from roquet.storetool.check.log import LogCheck
from roquet.storetool.check.queues import QueueCheck
from roquet.storetool.files import StoreFiles
from roquet.storetool.read.index_files import Shape
from roquet.storetool.read.log_scan import LogScan
from roquet.storetool.read.queue_entries import dispatched_to
from roquet.storetool.state import State, kept_topics, read_state, recovery_start

_NEVER = 1 << 63


@dataclass(frozen=True, slots=True)
class Checked:
    """The result of a check: the findings, and how much was checked (sizes in bytes).

    :param files: the number of files of log, queues and index.
    """

    findings: Findings
    files: int
    log_start: int
    log_end: int
    records: int
    record_bytes: int
    queues: int
    entries: int
    index_files: int
    keys: int


def check(
    files: StoreFiles, shape: Shape | None, progress: Callable[[int], None] = lambda size: None
) -> Checked:
    """Read a whole store and compare its parts. Nothing is changed.

    If a broker is running, the log is only read up to the newest record that had a queue entry when
    the check began.

    :param shape: slots and entries of an index file; if None, the index is not checked.
    :param progress: called with the number of bytes of the log read since the last call.
    """
    state = read_state(files.root)
    findings = Findings()
    dispatched = dispatched_to(files)
    limit = dispatched if state.is_locked and dispatched else None
    scan = LogScan(files.log, dispatched, progress, limit=limit)
    log = LogCheck(files, findings)
    queues = QueueCheck(
        files, findings, kept_topics(files.root), _redone_from(files, state, dispatched)
    )
    index = IndexCheck(files, findings, shape, is_growing=state.has_abort)
    for rows in scan:
        log.take(rows)
        queues.take(rows)
        index.take(rows)
    if state.is_locked:
        # Queue entries beyond the log's end are no fault: with transientStorePoolEnable their
        # records are still in the broker's memory.
        queues.redone_from = min(queues.redone_from, scan.end)
    log.finish(scan)
    files.log.look_again()
    queues.finish(scan)
    index.finish(scan)
    check_checkpoint(files, findings, state.checkpoint, log.last_ms)
    count = (
        len(files.log.files)
        + len(files.index)
        + sum(len(each.files) for each in files.queues.values())
    )
    return Checked(
        findings, count, scan.start, scan.end, log.records, log.size,
        len(files.queues), queues.entries, len(files.index), index.keys,
    )  # fmt: skip


def _redone_from(files: StoreFiles, state: State, dispatched: int) -> int:
    """Return the physical offset from which on records need no entries yet.

    A running broker, or recovery at the next start, will dispatch them.
    """
    if state.is_crashed:
        return recovery_start(files, state.checkpoint)
    return dispatched if state.has_abort else _NEVER
