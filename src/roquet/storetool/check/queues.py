"""Consume queues against the log, both ways, while the log is walked once.

A queue's records come in the order of their queue offsets, so what has to be kept of each queue is where it stands, and
the few records whose entries did not fit. Those are looked at again when the walk is over: a broker may have been about
to write their entries.
"""

from __future__ import annotations

from roquet.storetool.check.findings import Findings
from roquet.storetool.check.queue_report import QueueReport
from roquet.storetool.check.queue_walk import QueueScan, slots_of
from roquet.storetool.files import StoreFiles
from roquet.storetool.read.columns import Rows
from roquet.storetool.read.log_scan import LogScan
from roquet.storetool.read.queue_entries import entries_of


class QueueCheck:
    """Takes the log's records, and says at the end what is wrong with the queues.

    :param kept_topics: the topics of the broker's table; records of others are of deleted topics. None: not known.
    :param redone_from: what stands in the log from this physical offset on is dispatched at the broker's next start.
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
        self.walks: dict[tuple[str, int], QueueScan] = {
            key: QueueScan(entries_of(files, *key)) for key in files.queues
        }
        self.entries = 0

    def take(self, rows: Rows) -> None:
        """Compare records with their entries."""
        for key, group in rows.by_queue():
            walk = self.walks.get(key)
            if walk is None:
                walk = self.walks[key] = QueueScan(entries_of(self._files, *key))
            walk.take(slots_of(rows, group))

    def finish(self, scan: LogScan) -> None:
        """Look again at what did not fit, and at the entries that no record asked for."""
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
