"""Compares one consume queue with its records, in the order of the log."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from roquet.protocol.records.columns import Bools, Ints
from roquet.storage.queues.ext import ADDRESS_MAX
from roquet.storetool.read.column_scan import RecordColumns
from roquet.storetool.read.queue_entries import QueueEntries

_RECORD: Final = np.dtype(
    [
        ("offset", "i8"),
        ("at", "i8"),
        ("size", "i8"),
        ("tag_code", "i8"),
        ("store_ms", "i8"),
        ("is_delayed", "?"),
    ]
)
"""Columns of the records of one queue; `offset` is the queue offset, `at` the physical offset."""
QueueRecords = npt.NDArray[Any]


def records_of(rows: RecordColumns, group: Ints) -> QueueRecords:
    """Return the columns of some rows, which must be of one queue.

    :param group: row numbers.
    """
    records = np.empty(len(group), _RECORD)
    records["offset"] = rows.queue_offset[group]
    records["at"] = rows.physical[group]
    records["size"] = rows.size[group]
    records["tag_code"] = rows.tag_code[group]
    records["store_ms"] = rows.store_ms[group]
    records["is_delayed"] = rows.is_delayed[group]
    return records


@dataclass(slots=True)
class QueueWalk:
    """Compares the records of one queue with its entries, as the walk through the log goes on.

    Invariant: `next` is the queue offset that the queue's next record should have; None before the
    first record.

    :param first: the queue offset of the first record.
    """

    entries: QueueEntries
    first: int = 0
    next: int | None = None
    has_fit: bool = False
    """Whether any record matched its entry; those of an earlier, deleted topic do not."""
    suspects: list[QueueRecords] = field(default_factory=list)
    """Records that did not match their entries."""
    jumps: list[tuple[int, int, int]] = field(default_factory=list)
    """Gaps: the expected queue offset, the one that the record has, its physical offset."""
    misnumbered: list[tuple[int, int, int]] = field(default_factory=list)
    """Queue offset of an entry, physical offset of its record, and the record's queue offset."""

    def take(self, records: QueueRecords) -> None:
        """Compare the queue's next records with their entries."""
        breaks = np.flatnonzero(np.diff(records["offset"]) != 1) + 1
        for run in np.split(records, breaks) if len(breaks) else [records]:
            self._take_run(run)

    def _take_run(self, run: QueueRecords) -> None:
        """Compare records with consecutive queue offsets."""
        first = int(run["offset"][0])
        count = len(run)
        fits = self.fits(run)
        if self.next is None:
            self.first = first
        elif first < self.next and fits[0] and not self.has_fit:
            # No record so far had an entry, and this one with a lower queue offset has.
            self._restart(first)
        elif first != self.next and not fits[0] and (count == 1 or first < self.next):
            # One record with a wrong queue offset, or records that repeat queue offsets.
            repeated = max(0, self.next - first)
            self._take_misplaced(run[: repeated or 1])
            if 0 < repeated < count:
                self._take_run(run[repeated:])
            return
        elif first > self.next:
            self.jumps.append((self.next, first, int(run["at"][0])))
        self.has_fit |= bool(fits.any())
        if not fits.all():
            self.suspects.append(run[~fits].copy())
        self.next = first + count

    def _take_misplaced(self, run: QueueRecords) -> None:
        """Keep records whose queue offsets are not the next ones and do not match entries."""
        assert self.next is not None
        if len(run) == 1 and self._is_numbered(run, self.next):
            self.misnumbered.append((self.next, int(run["at"][0]), int(run["offset"][0])))
            self.next += 1
        else:
            self.suspects.append(run.copy())

    def _is_numbered(self, run: QueueRecords, offset: int) -> bool:
        """Whether the entry at queue offset `offset` points to the record in `run`."""
        entry = self.entries.read(offset, 1)
        return bool(len(entry)) and (entry["physical"][0], entry["size"][0]) == (
            run["at"][0],
            run["size"][0],
        )

    def _restart(self, first: int) -> None:
        """Forget all records so far: the topic was deleted and created again after them."""
        self.suspects.clear()
        self.jumps.clear()
        self.misnumbered.clear()
        self.first = first

    def fits(self, records: QueueRecords) -> Bools:
        """Return whether each record matches its entry.

        :param records: records in the order of their queue offsets.
        """
        first = int(records["offset"][0])
        found = self.entries.slots(first, int(records["offset"][-1]) + 1 - first)[
            records["offset"] - first
        ]
        same: Bools = (found["physical"] == records["at"]) & (found["size"] == records["size"])
        late = records["is_delayed"] & (found["tag_code"] >= records["store_ms"])
        coded = ~records["is_delayed"] & (found["tag_code"] == records["tag_code"])
        has_unit = found["tag_code"] <= ADDRESS_MAX
        good: Bools = same & (late | coded)
        for row in np.flatnonzero(same & has_unit).tolist():
            good[row] = self.wrong_unit(int(found["tag_code"][row]), records[row]) == ""
        return good

    def wrong_unit(self, address: int, record: Any) -> str:
        """Return what is wrong with an entry's extension unit, or an empty text.

        :param address: what the entry has in place of its tag code.
        """
        unit = self.entries.unit(address)
        if unit is None:
            return "it has the address of an extension unit, but there is none"
        if unit.store_ms != record["store_ms"]:
            stored = f"stored at {unit.store_ms}, this one at {record['store_ms']}"
            return f"its extension unit is of a record that was {stored}"
        # A delayed record's entry has the delivery time in place of the tag code.
        code = unit.tag_code
        is_right = code == record["tag_code"]
        if record["is_delayed"]:
            is_right = code >= record["store_ms"]
        if is_right:
            return ""
        return f"its extension unit has the tag code {code}, the record's is {record['tag_code']}"
