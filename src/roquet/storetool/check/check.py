"""Checks a whole store in one walk through its log; `check` is the entry point."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from roquet.storetool.check.checkpoint import check_checkpoint
from roquet.storetool.check.findings import FindingKind, Findings
from roquet.storetool.check.index import IndexCheck
from roquet.storetool.check.queues import QueueCheck
from roquet.storetool.files import StoreFiles
from roquet.storetool.read.column_scan import ColumnScan, RecordColumns
from roquet.storetool.read.index_files import Shape
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
    scan = ColumnScan(files.log, dispatched, progress, limit=limit)
    log = _LogCheck(files, findings)
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


@dataclass(slots=True)
class _LogCheck:
    """Counts the log's records and reports what is wrong with the log.

    :param records: the number of records so far; `size` their bytes.
    :param last_ms: the latest store time (ms since the epoch).
    """

    files: StoreFiles
    findings: Findings
    records: int = 0
    size: int = 0
    last_ms: int = 0

    def take(self, rows: RecordColumns) -> None:
        """Count the next records and report damaged bodies."""
        self.last_ms = max(self.last_ms, int(rows.store_ms.max()))
        self.records += len(rows)
        self.size += int(rows.size.sum())
        for row in rows.bad_bodies:
            at = int(rows.physical[row])
            owner = f"{rows.topics[int(rows.topic[row])]} {rows.queue_id[row]}"
            text = f"the body at physical offset {at} does not match its checksum"
            self._add(
                FindingKind.BODY, at, f"{text} ({owner}, queue offset {rows.queue_offset[row]})"
            )

    def finish(self, scan: ColumnScan) -> None:
        """Report wrong and missing files, and ranges without valid records."""
        for stray in self.files.log.strays:
            self.findings.add(FindingKind.LOG_FILE, self.files.name(stray.path), None, stray.text)
        for start, end in self.files.log.gaps:
            path = self.files.log.place(start)[0]
            text = f"is missing: no file has the physical offsets from {start} to {end - 1}"
            self.findings.add(FindingKind.LOG_FILE, self.files.name(path), None, text)
        gaps = {start for start, _ in self.files.log.gaps}
        for damage in scan.damages:
            if damage.start not in gaps and not self._is_cut_short(damage.start):
                where = f"from physical offset {damage.start} to {damage.end - 1}"
                text = f"no valid record {where}: {damage.reason}"
                self._add(FindingKind.RECORD, damage.start, text)
        if scan.behind:
            self.findings.remarks.append(f"the log ends at {scan.end}; after it: {scan.behind}")

    def _is_cut_short(self, at: int) -> bool:
        """Whether the segment of a physical offset ends before it; that is reported already."""
        path, index = self.files.log.place(at)
        return (
            any(stray.path == path for stray in self.files.log.strays)
            and index >= path.stat().st_size
        )

    def _add(self, kind: FindingKind, at: int, text: str) -> None:
        path, index = self.files.log.place(at)
        self.findings.add(kind, self.files.name(path), index, text)
