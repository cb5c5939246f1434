"""Consume queues against the log, both ways, while the log is walked once.

A queue's records come in the order of their queue offsets, so what has to be kept of each queue is where it stands, and
the few records whose entries did not fit. Those are looked at again when the walk is over: a broker may have been about
to write their entries.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from roquet.inspect.files import StoreFiles
from roquet.inspect.findings import Findings, Kind
from roquet.inspect.log_scan import LogScan, arrival_at
from roquet.inspect.queue_entries import Entries, QueueEntries, entries_of
from roquet.inspect.rows import Bools, Ints, Rows
from roquet.storage.consume_queue import BLANK_RECORD_SIZE, ENTRY_SIZE
from roquet.storage.consume_queue_ext import ADDRESS_MAX
from roquet.storage.dispatch import Arrival

_SLOTS: Final = np.dtype(
    [("offset", "i8"), ("at", "i8"), ("size", "i8"), ("tag_code", "i8"), ("store_ms", "i8"), ("is_delayed", "?")]
)
"""Records that take a slot of one queue; `offset` is the slot."""
Slots = npt.NDArray[Any]
_LIGHT_QUEUE: Final = "%LMQ%"
"""Topics of 5.x whose entries point to records of other topics."""


@dataclass(slots=True)
class QueueWalk:
    """One queue, as far as the log was walked.

    Keeps: `next` is the queue offset that the next record should have; None before the first.
    """

    entries: QueueEntries
    first: int = 0
    next: int | None = None
    has_fit: bool = False
    """Whether a record had its entry: those of an older queue of that name never have."""
    suspects: list[Slots] = field(default_factory=list)
    """Records whose entries did not fit."""
    jumps: list[tuple[int, int, int]] = field(default_factory=list)
    """From one queue offset to another, for the record at a physical offset."""
    misnumbered: list[tuple[int, int, int]] = field(default_factory=list)
    """Queue offset of an entry, physical offset of its record, and the queue offset that this says."""

    def take(self, slots: Slots) -> None:
        """Compare the next records of this queue with their entries."""
        breaks = np.flatnonzero(np.diff(slots["offset"]) != 1) + 1
        for run in np.split(slots, breaks) if len(breaks) else [slots]:
            self._take_run(run)

    def _take_run(self, run: Slots) -> None:
        """Records with consecutive queue offsets."""
        first, count = int(run["offset"][0]), len(run)
        fits = self.fits(run)
        if self.next is None:
            self.first = first
        elif first < self.next and fits[0] and not self.has_fit:
            self._begin_anew(first)
        elif first != self.next and not fits[0] and (count == 1 or first < self.next):
            behind = max(0, self.next - first)
            self._take_misplaced(run[: behind or 1])
            if 0 < behind < count:
                self._take_run(run[behind:])
            return
        elif first > self.next:
            self.jumps.append((self.next, first, int(run["at"][0])))
        self.has_fit |= bool(fits.any())
        if not fits.all():
            self.suspects.append(run[~fits].copy())
        self.next = first + count

    def _take_misplaced(self, run: Slots) -> None:
        """Records whose queue offsets are not due, and that have no entries there either."""
        assert self.next is not None
        if len(run) == 1 and self._is_numbered(run, self.next):
            self.misnumbered.append((self.next, int(run["at"][0]), int(run["offset"][0])))
            self.next += 1
        else:
            self.suspects.append(run.copy())

    def _is_numbered(self, run: Slots, offset: int) -> bool:
        """Whether the entry at `offset` is that of a record which says another queue offset."""
        entry = self.entries.read(offset, 1)
        return bool(len(entry)) and (entry["physical"][0], entry["size"][0]) == (run["at"][0], run["size"][0])

    def _begin_anew(self, first: int) -> None:
        """The topic was deleted and made again: its older records have no entries any more."""
        self.suspects.clear()
        self.jumps.clear()
        self.misnumbered.clear()
        self.first = first

    def fits(self, slots: Slots) -> Bools:
        """Whether each record's entry is as it must be. Their queue offsets ascend."""
        first = int(slots["offset"][0])
        found = self.entries.slots(first, int(slots["offset"][-1]) + 1 - first)[slots["offset"] - first]
        same: Bools = (found["physical"] == slots["at"]) & (found["size"] == slots["size"])
        late = slots["is_delayed"] & (found["tag_code"] >= slots["store_ms"])
        coded = ~slots["is_delayed"] & (found["tag_code"] == slots["tag_code"])
        noted = found["tag_code"] <= ADDRESS_MAX
        good: Bools = same & (late | coded)
        for row in np.flatnonzero(same & noted).tolist():
            good[row] = self.wrong_note(int(found["tag_code"][row]), slots[row]) == ""
        return good

    def wrong_note(self, address: int, slot: Any) -> str:
        """What is wrong with the note of an entry; nothing for a good one."""
        note = self.entries.note(address)
        if note is None:
            return "it has the address of a note, and no note stands there"
        if note.store_ms != slot["store_ms"]:
            return f"its note is of a record that was stored at {note.store_ms}, this one was at {slot['store_ms']}"
        is_right = note.tag_code >= slot["store_ms"] if slot["is_delayed"] else note.tag_code == slot["tag_code"]
        return "" if is_right else f"its note has the tag code {note.tag_code}, the record's is {slot['tag_code']}"


class QueueCheck:
    """Takes the log's records, and says at the end what is wrong with the queues.

    :param kept_topics: the topics of the broker's table; records of others are of deleted topics. None: not known.
    :param redone_from: what stands in the log from this physical offset on is dispatched at the broker's next start.
    """

    def __init__(
        self, files: StoreFiles, findings: Findings, kept_topics: frozenset[str] | None, redone_from: int
    ) -> None:
        self._files = files
        self._findings = findings
        self._kept_topics = kept_topics
        self._redone_from = redone_from
        self.walks: dict[tuple[str, int], QueueWalk] = {key: QueueWalk(entries_of(files, *key)) for key in files.queues}
        self.slots = 0
        self.entries = 0

    def take(self, rows: Rows) -> None:
        """Compare records with their entries."""
        taking = np.flatnonzero(rows.takes_slot)
        self.slots += len(taking)
        number = rows.topic[taking] << 32 | rows.queue_id[taking]
        order = np.argsort(number, kind="stable")
        bounds = np.flatnonzero(np.diff(number[order])) + 1
        for group in np.split(taking[order], bounds) if len(taking) else []:
            key = rows.topics[int(rows.topic[group[0]])], int(rows.queue_id[group[0]])
            walk = self.walks.get(key)
            if walk is None:
                walk = self.walks[key] = QueueWalk(entries_of(self._files, *key))
            walk.take(_slots_of(rows, group))

    def finish(self, scan: LogScan) -> None:
        """Look again at what did not fit, and at the entries that no record asked for."""
        claimed: set[int] = set()
        ends: list[_QueueEnd] = []
        for (topic, queue_id), walk in sorted(self.walks.items()):
            if self._is_deleted(topic):
                self._findings.remarks.append(f"{topic} {queue_id}: its records are of a deleted topic")
                continue
            end = _QueueEnd(self._files, self._findings, scan, self._redone_from, claimed, topic, queue_id, walk)
            end.report_entries()
            ends.append(end)
            self.entries += max(0, walk.entries.end() - walk.entries.first)
        for end in ends:
            end.report_records()

    def _is_deleted(self, topic: str) -> bool:
        folder = self._files.root / "consumequeue" / topic
        return self._kept_topics is not None and topic not in self._kept_topics and not folder.is_dir()


def _slots_of(rows: Rows, group: Ints) -> Slots:
    slots = np.empty(len(group), _SLOTS)
    slots["offset"], slots["at"], slots["size"] = rows.queue_offset[group], rows.at[group], rows.size[group]
    slots["tag_code"], slots["store_ms"] = rows.tag_code[group], rows.store_ms[group]
    slots["is_delayed"] = rows.is_delayed[group]
    return slots


@dataclass(slots=True)
class _QueueEnd:
    """What there is to say of one queue when the log is walked."""

    files: StoreFiles
    findings: Findings
    scan: LogScan
    redone_from: int
    claimed: set[int]
    """Physical offsets of records that say another queue or offset than the entry that points to them."""
    topic: str
    queue_id: int
    walk: QueueWalk

    @property
    def _name(self) -> str:
        return f"{self.topic} {self.queue_id}"

    def report_entries(self) -> None:
        """Files, and the entries that no record asked for."""
        self._report_files()
        self._report_unasked()
        for first, end, at in self.walk.jumps:
            entries = self.walk.entries.slots(first, end - first)
            strange = self._report_strangers(first, entries)
            if not strange and not self._are_in_damage(entries):
                text = f"{self._name} goes from queue offset {first - 1} to {end} at physical offset {at}"
                self._add(Kind.OFFSET, self.files.log.place(at), text)

    def report_records(self) -> None:
        """Records that did not find their entries."""
        for offset, at, said in self.walk.misnumbered:
            place = self.files.log.place(at)
            text = (
                f"the record at physical offset {at} says queue offset {said} of {self._name}, its entry is at {offset}"
            )
            self._add(Kind.OFFSET, place, text)
        if self.walk.suspects:
            self.walk.entries.files.look_again()
        wrong = [slots[~self.walk.fits(slots)] for slots in self.walk.suspects]
        if wrong:
            self._report_suspects(np.concatenate(wrong))

    def _add(self, kind: Kind, place: tuple[Any, int], text: str) -> None:
        self.findings.add(kind, self.files.name(place[0]), place[1], text)

    def _report_files(self) -> None:
        found = self.walk.entries.files
        for stray in found.strays:
            self.findings.add(Kind.QUEUE_FILE, self.files.name(stray.path), None, stray.text)
        for start, end in found.gaps:
            text = f"is missing: {self._name} has no entries {start // ENTRY_SIZE} to {end // ENTRY_SIZE - 1}"
            self.findings.add(Kind.QUEUE_FILE, self.files.name(found.place(start)[0]), None, text)

    def _are_in_damage(self, entries: Entries) -> bool:
        inside = np.zeros(len(entries), bool)
        for damage in self.scan.damages:
            inside |= (entries["physical"] >= damage.start) & (entries["physical"] < damage.end)
        return bool((inside & (entries["size"] > 0)).all())

    def _report_suspects(self, slots: Slots) -> None:
        slots = slots[~np.isin(slots["at"], list(self.claimed))]
        entries = self.walk.entries
        missing: list[Any] = []
        for slot in slots:
            offset = int(slot["offset"])
            entry = entries.read(offset, 1)
            if len(entry) and entry["size"][0] > 0:
                self._report_entry(slot, entry[0])
                continue
            if missing and int(missing[-1]["offset"]) + 1 != offset:
                self._report_missing(missing)
                missing = []
            missing.append(slot)
        if missing:
            self._report_missing(missing)

    def _report_entry(self, slot: Any, entry: Any) -> None:
        offset, at = int(slot["offset"]), int(slot["at"])
        place = self.walk.entries.files.place(offset * ENTRY_SIZE)
        what = f"the entry of queue offset {offset} of {self._name}"
        if int(entry["physical"]) != at:
            text = f"{what} points to physical offset {entry['physical']}, its record stands at {at}"
        elif int(entry["size"]) != int(slot["size"]):
            text = f"{what} says {entry['size']} bytes, its record at physical offset {at} has {slot['size']}"
        elif int(entry["tag_code"]) <= ADDRESS_MAX:
            self._add(Kind.NOTE, place, f"{what}: {self.walk.wrong_note(int(entry['tag_code']), slot)}")
            return
        elif slot["is_delayed"]:
            text = f"{what} is due at {entry['tag_code']}, before it was stored at {slot['store_ms']}"
        else:
            text = f"{what} has tag code {entry['tag_code']}, its record at physical offset {at} has {slot['tag_code']}"
        self._add(Kind.ENTRY, place, text)

    def _report_missing(self, slots: list[Any]) -> None:
        first, last = slots[0], slots[-1]
        found, at = self.walk.entries.files, int(first["offset"]) * ENTRY_SIZE
        what = f"queue offsets {first['offset']} to {last['offset']} of {self._name}"
        if len(slots) == 1:
            what = f"queue offset {first['offset']} of {self._name}"
        where = f"records from physical offset {first['at']} to {last['at']}"
        if any(start <= at < end for start, end in found.gaps):
            return
        if int(first["at"]) >= self.redone_from:
            self.findings.remarks.append(f"{what}: entries are still to be made ({where})")
            return
        has_file = found.file_at(at) is not None
        why = "no entry stands here" if has_file else "there is no such file"
        path, index = found.place(at)
        self._add(Kind.ENTRY_MISSING, (path, index), f"{what}: {why} ({where})")

    def _report_unasked(self) -> None:
        """Entries that none of the log's records has."""
        walk, entries = self.walk, self.walk.entries
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
        """How many of these entries point to something else than a record of theirs."""
        log_start = self.files.log.start
        is_strange = (found["size"] > 0) & (found["size"] != BLANK_RECORD_SIZE) & (found["physical"] >= log_start)
        for damage in self.scan.damages:
            is_strange &= (found["physical"] < damage.start) | (found["physical"] >= damage.end)
        wrong, beyond = 0, np.zeros(len(found), bool)
        for index in np.flatnonzero(is_strange).tolist():
            at = int(found["physical"][index])
            record = arrival_at(self.files.log, at)
            if isinstance(record, str) and at >= self.scan.end:
                beyond[index] = True
            elif self._is_stranger(first + index, found[index], record):
                wrong += 1
        return wrong + self._report_beyond(first, found, np.flatnonzero(beyond))

    def _report_beyond(self, first: int, found: Entries, places: Ints) -> int:
        """Entries that point to where the log does not reach; neighbours make one finding."""
        count = self.findings.count
        for run in np.split(places, np.flatnonzero(np.diff(places) != 1) + 1) if len(places) else []:
            offset, last, at = first + int(run[0]), first + int(run[-1]), int(found["physical"][run[0]])
            what = f"the entries of queue offsets {offset} to {last} of {self._name} point"
            if len(run) == 1:
                what = f"the entry of queue offset {offset} of {self._name} points"
            what += f" behind the log's end at {self.scan.end} (to {at})"
            if at >= self.redone_from:
                self.findings.remarks.append(f"{what}: the next start cuts this")
            else:
                self._add(Kind.ENTRY, self.walk.entries.files.place(offset * ENTRY_SIZE), what)
        return self.findings.count - count

    def _is_stranger(self, offset: int, entry: Any, record: Arrival | str) -> bool:
        """Whether an entry, none of a record that was walked, is wrong; it may be that of a newer one."""
        at, size = int(entry["physical"]), int(entry["size"])
        why = f"and {record}"
        if not isinstance(record, str):
            said = (record.topic, record.queue_id, record.queue_offset)
            if (*said, record.size) == (self.topic, self.queue_id, offset, size):
                return False
            self.claimed.add(at)
            why = f"where a record says queue offset {said[2]} of {said[0]} {said[1]} ({record.size} bytes)"
        what = f"the entry of queue offset {offset} of {self._name} points to physical offset {at}"
        self._add(Kind.ENTRY, self.walk.entries.files.place(offset * ENTRY_SIZE), f"{what}, {why}")
        return True
