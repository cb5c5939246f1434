"""Compares consume queues with the log, in both directions, during one walk through the log.

A queue's records come in the order of their queue offsets. So the check only keeps, per queue, the
next queue offset and the few records that did not match their entries. These records are compared
again at the end of the walk, because a running broker may not have written their entries yet.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from roquet.protocol.records.columns import Ints
from roquet.storage.log.dispatch_request import DispatchRequest
from roquet.storage.queues.consume_queue import BLANK_RECORD_SIZE, ENTRY_SIZE
from roquet.storage.queues.ext import ADDRESS_MAX
from roquet.storetool.check.findings import FindingKind, Findings
from roquet.storetool.check.queue_walk import QueueRecords, QueueWalk, records_of
from roquet.storetool.files import StoreFiles
from roquet.storetool.read.column_scan import ColumnScan, RecordColumns
from roquet.storetool.read.log_scanner import record_at
from roquet.storetool.read.queue_entries import Entries, entries_of

_LIGHT_QUEUE: Final = "%LMQ%"
"""Prefix of light message queues (5.x): topics whose entries point to records of other topics."""


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

    def finish(self, scan: ColumnScan) -> None:
        """Report records that still do not match their entries, and entries without a record."""
        claimed: set[int] = set()
        reports: list[_QueueReport] = []
        for (topic, queue_id), walk in sorted(self.walks.items()):
            if self._is_deleted(topic):
                self._findings.remarks.append(
                    f"{topic} {queue_id}: its records are of a deleted topic"
                )
                continue
            report = _QueueReport(
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


@dataclass(slots=True)
class _QueueReport:
    """Reports the records and entries of one queue that did not match in the walk.

    :param redone_from: records from this physical offset on need no entries: a broker dispatches
        them at its next start.
    """

    files: StoreFiles
    findings: Findings
    scan: ColumnScan
    redone_from: int
    claimed: set[int]
    """Physical offsets of records that wrong entries (of any queue) point to.

    They are reported with the entry, and not again as records without an entry.
    """
    topic: str
    queue_id: int
    walk: QueueWalk

    @property
    def _name(self) -> str:
        return f"{self.topic} {self.queue_id}"

    def report_entries(self) -> None:
        """Report wrong files, and entries that belong to no record."""
        self._report_files()
        self._report_unmatched()
        for first, end, at in self.walk.jumps:
            entries = self.walk.entries.slots(first, end - first)
            strange = self._report_strangers(first, entries)
            if not strange and not self._are_of_damage(entries, at):
                offsets = f"from queue offset {first - 1} to {end}"
                text = f"{self._name} goes {offsets} at physical offset {at}"
                self._add(FindingKind.OFFSET, self.files.log.place(at), text)

    def report_records(self) -> None:
        """Report records without a matching entry."""
        for offset, at, said in self.walk.misnumbered:
            place = self.files.log.place(at)
            text = (
                f"the record at physical offset {at} says queue offset {said} of {self._name}, "
                f"its entry is at {offset}"
            )
            self._add(FindingKind.OFFSET, place, text)
        if self.walk.suspects:
            self.walk.entries.files.look_again()
        wrong = [records[~self.walk.fits(records)] for records in self.walk.suspects]
        if wrong:
            self._report_suspects(np.concatenate(wrong))

    def _add(self, kind: FindingKind, place: tuple[Any, int], text: str) -> None:
        self.findings.add(kind, self.files.name(place[0]), place[1], text)

    def _report_files(self) -> None:
        found = self.walk.entries.files
        for stray in found.strays:
            self.findings.add(FindingKind.QUEUE_FILE, self.files.name(stray.path), None, stray.text)
        for start, end in found.gaps:
            offsets = f"{start // ENTRY_SIZE} to {end // ENTRY_SIZE - 1}"
            text = f"is missing: {self._name} has no entries {offsets}"
            self.findings.add(
                FindingKind.QUEUE_FILE, self.files.name(found.place(start)[0]), None, text
            )

    def _are_of_damage(self, entries: Entries, at: int) -> bool:
        """Whether all these entries belong to damaged records before the record at `at`.

        They point into a damaged range, or they are blanks, which have the physical offset at which
        the last valid record before that range ends.
        """
        places = entries["physical"]
        is_blank = entries["size"] == BLANK_RECORD_SIZE
        found = np.zeros(len(entries), bool)
        for damage in self.scan.damages:
            found |= (places >= damage.start) & (places < damage.end)
            found |= is_blank & (places <= damage.start) & (damage.end <= at)
        return bool((found & (entries["size"] > 0)).all())

    def _report_suspects(self, records: QueueRecords) -> None:
        records = records[~np.isin(records["at"], list(self.claimed))]
        entries = self.walk.entries
        missing: list[Any] = []
        for record in records:
            offset = int(record["offset"])
            entry = entries.read(offset, 1)
            if len(entry) and entry["size"][0] > 0:
                # A record with a damaged body should have a blank as its entry.
                if (
                    entry["size"][0] != BLANK_RECORD_SIZE
                    or int(record["at"]) not in self.scan.bad_bodies
                ):
                    self._report_entry(record, entry[0])
                continue
            if missing and int(missing[-1]["offset"]) + 1 != offset:
                self._report_missing(missing)
                missing = []
            missing.append(record)
        if missing:
            self._report_missing(missing)

    def _report_entry(self, record: Any, entry: Any) -> None:
        offset = int(record["offset"])
        at = int(record["at"])
        place = self.walk.entries.files.place(offset * ENTRY_SIZE)
        what = f"the entry of queue offset {offset} of {self._name}"
        its = f"its record at physical offset {at}"
        if int(entry["physical"]) != at:
            text = f"{what} points to physical offset {entry['physical']}, its record is at {at}"
        elif int(entry["size"]) != int(record["size"]):
            text = f"{what} says {entry['size']} bytes, {its} has {record['size']}"
        elif int(entry["tag_code"]) <= ADDRESS_MAX:
            why = self.walk.wrong_unit(int(entry["tag_code"]), record)
            self._add(FindingKind.EXT_UNIT, place, f"{what}: {why}")
            return
        elif record["is_delayed"]:
            stored_ms = record["store_ms"]
            text = f"{what} is due at {entry['tag_code']}, before it was stored at {stored_ms}"
        else:
            text = f"{what} has tag code {entry['tag_code']}, {its} has {record['tag_code']}"
        self._add(FindingKind.ENTRY, place, text)

    def _report_missing(self, records: list[Any]) -> None:
        first, last = records[0], records[-1]
        found = self.walk.entries.files
        at = int(first["offset"]) * ENTRY_SIZE
        what = f"queue offsets {first['offset']} to {last['offset']} of {self._name}"
        if len(records) == 1:
            what = f"queue offset {first['offset']} of {self._name}"
        where = f"records from physical offset {first['at']} to {last['at']}"
        if any(start <= at < end for start, end in found.gaps):
            return
        if int(first["at"]) >= self.redone_from:
            self.findings.remarks.append(f"{what}: records are not dispatched yet ({where})")
            return
        has_file = found.file_at(at) is not None
        why = "there is no entry" if has_file else "there is no such file"
        path, index = found.place(at)
        self._add(FindingKind.ENTRY_MISSING, (path, index), f"{what}: {why} ({where})")

    def _report_unmatched(self) -> None:
        """Report entries before the first and after the last record of this queue in the log."""
        walk = self.walk
        entries = self.walk.entries
        if self.topic.startswith(_LIGHT_QUEUE):
            return
        end = entries.end()
        ranges = [(entries.first, end)]
        if walk.next is not None:
            ranges = [(entries.first, min(walk.first, end)), (walk.next, end)]
        for first, last in ranges:
            for offset, found in entries.walk(first, last):
                self._report_strangers(offset, found)

    def _report_strangers(self, first: int, found: Entries) -> int:
        """Report entries that do not point to a record of this queue and queue offset.

        :param first: the queue offset of the first entry.
        :returns: how many were reported.
        """
        log_start = self.files.log.start
        is_strange = (
            (found["size"] > 0)
            & (found["size"] != BLANK_RECORD_SIZE)
            & (found["physical"] >= log_start)
        )
        for damage in self.scan.damages:
            is_strange &= (found["physical"] < damage.start) | (found["physical"] >= damage.end)
        wrong = 0
        beyond = np.zeros(len(found), bool)
        for index in np.flatnonzero(is_strange).tolist():
            at = int(found["physical"][index])
            record = record_at(self.files.log, at)
            if isinstance(record, str) and at >= self.scan.end:
                beyond[index] = True
            elif self._is_stranger(first + index, found[index], record):
                wrong += 1
        return wrong + self._report_beyond(first, found, np.flatnonzero(beyond))

    def _report_beyond(self, first: int, found: Entries, places: Ints) -> int:
        """Report entries that point beyond the log's end; neighbours make one finding.

        :param first: the queue offset of the first entry of `found`.
        :param places: which entries of `found`.
        :returns: the number of findings.
        """
        count = self.findings.count
        if not len(places):
            return 0
        for run in np.split(places, np.flatnonzero(np.diff(places) != 1) + 1):
            offset = first + int(run[0])
            last = first + int(run[-1])
            at = int(found["physical"][run[0]])
            what = f"the entries of queue offsets {offset} to {last} of {self._name} point"
            if len(run) == 1:
                what = f"the entry of queue offset {offset} of {self._name} points"
            what += f" beyond the log's end at {self.scan.end} (to {at})"
            if at >= self.redone_from:
                self.findings.remarks.append(f"{what}: the next start truncates the queue")
            else:
                self._add(
                    FindingKind.ENTRY, self.walk.entries.files.place(offset * ENTRY_SIZE), what
                )
        return self.findings.count - count

    def _is_stranger(self, offset: int, entry: Any, record: DispatchRequest | str) -> bool:
        """Report an entry that no record of the walk matched, unless it is right after all.

        The entry is right if its record was stored after the walk had passed.

        :param record: the record that the entry points to, or what is wrong with it.
        :returns: whether the entry is wrong.
        """
        at = int(entry["physical"])
        size = int(entry["size"])
        why = f"and {record}"
        if not isinstance(record, str):
            said = (record.topic, record.queue_id, record.queue_offset)
            if (*said, record.size) == (self.topic, self.queue_id, offset, size):
                return False
            self.claimed.add(at)
            owner = f"queue offset {said[2]} of {said[0]} {said[1]}"
            why = f"where a record says {owner} ({record.size} bytes)"
        what = f"the entry of queue offset {offset} of {self._name} points to physical offset {at}"
        self._add(
            FindingKind.ENTRY, self.walk.entries.files.place(offset * ENTRY_SIZE), f"{what}, {why}"
        )
        return True
