"""Compares consume queues with the log, in both directions, during one walk through the log.

A queue's records come in the order of their queue offsets. So the check only keeps, per queue, the
next queue offset and the few records that did not match their entries. These records are compared
again at the end of the walk, because a running broker may not have written their entries yet.
"""

from __future__ import annotations

from roquet.storetool.check.findings import Findings
from roquet.storetool.check.queue_report import QueueReport
from roquet.storetool.check.queue_walk import QueueWalk, records_of
from roquet.storetool.files import StoreFiles
from roquet.storetool.read.log_scan import LogScan, RecordColumns
from roquet.storetool.read.queue_entries import entries_of


class QueueCheck:
    """Compares the log's records with their queues' entries and reports findings at the end.

    :param kept_topics: the topics that are not deleted; None if that is not known.
    :param redone_from: records from this physical offset on need no entries: a broker dispatches
        them at its next start.
    """

    def __init__(
        self,
        files: StoreFiles,
        findings: Findings,
        kept_topics: frozenset[str] | None,
        redone_from: int,
    ) -> None:
        self._files = files
        self._findings = findings
        self._kept_topics = kept_topics
        self.redone_from = redone_from
        self.walks: dict[tuple[str, int], QueueWalk] = {
            key: QueueWalk(entries_of(files, *key)) for key in files.queues
        }
        self.entries = 0

    def take(self, rows: RecordColumns) -> None:
        """Compare the next records with their entries."""
        for key, group in rows.by_queue():
            walk = self.walks.get(key)
            if walk is None:
                walk = self.walks[key] = QueueWalk(entries_of(self._files, *key))
            walk.take(records_of(rows, group))

    def finish(self, scan: LogScan) -> None:
        """Report records that still do not match their entries, and entries without a record."""
        claimed: set[int] = set()
        reports: list[QueueReport] = []
        for (topic, queue_id), walk in sorted(self.walks.items()):
            if self._is_deleted(topic):
                self._findings.remarks.append(
                    f"{topic} {queue_id}: its records are of a deleted topic"
                )
                continue
            report = QueueReport(
                self._files, self._findings, scan, self.redone_from, claimed, topic, queue_id, walk
            )
            report.report_entries()
            reports.append(report)
            self.entries += max(0, walk.entries.end() - walk.entries.first)
        for report in reports:
            report.report_records()

    def _is_deleted(self, topic: str) -> bool:
        folder = self._files.root / "consumequeue" / topic
        return (
            self._kept_topics is not None and topic not in self._kept_topics and not folder.is_dir()
        )
