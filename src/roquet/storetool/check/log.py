"""Checks the files and records of the commit log."""

from __future__ import annotations

from dataclasses import dataclass

from roquet.storetool.check.findings import Findings, Kind
from roquet.storetool.files import StoreFiles
from roquet.storetool.read.log_scan import LogScan, RecordColumns


@dataclass(slots=True)
class LogCheck:
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
            at = int(rows.at[row])
            owner = f"{rows.topics[int(rows.topic[row])]} {rows.queue_id[row]}"
            text = f"the body at physical offset {at} does not match its checksum"
            self._add(Kind.BODY, at, f"{text} ({owner}, queue offset {rows.queue_offset[row]})")

    def finish(self, scan: LogScan) -> None:
        """Report wrong and missing files, and ranges without valid records."""
        for stray in self.files.log.strays:
            self.findings.add(Kind.LOG_FILE, self.files.name(stray.path), None, stray.text)
        for start, end in self.files.log.gaps:
            path = self.files.log.place(start)[0]
            text = f"is missing: no file has the physical offsets from {start} to {end - 1}"
            self.findings.add(Kind.LOG_FILE, self.files.name(path), None, text)
        gaps = {start for start, _ in self.files.log.gaps}
        for damage in scan.damages:
            if damage.start not in gaps and not self._is_cut_short(damage.start):
                where = f"from physical offset {damage.start} to {damage.end - 1}"
                text = f"no valid record {where}: {damage.reason}"
                self._add(Kind.RECORD, damage.start, text)
        if scan.behind:
            self.findings.remarks.append(f"the log ends at {scan.end}; after it: {scan.behind}")

    def _is_cut_short(self, at: int) -> bool:
        """Whether the segment of a physical offset ends before it; that is reported already."""
        path, index = self.files.log.place(at)
        return (
            any(stray.path == path for stray in self.files.log.strays)
            and index >= path.stat().st_size
        )

    def _add(self, kind: Kind, at: int, text: str) -> None:
        path, index = self.files.log.place(at)
        self.findings.add(kind, self.files.name(path), index, text)
