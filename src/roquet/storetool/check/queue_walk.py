"""One consume queue against its records, in the order in which the log has them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from roquet.protocol.records.columns import Bools, Ints
from roquet.storage.queues.ext import ADDRESS_MAX
from roquet.storetool.read.columns import Rows
from roquet.storetool.read.queue_entries import QueueEntries

_SLOTS: Final = np.dtype(
    [
        ("offset", "i8"),
        ("at", "i8"),
        ("size", "i8"),
        ("tag_code", "i8"),
        ("store_ms", "i8"),
        ("is_delayed", "?"),
    ]
)
"""Records that take a slot of one queue; `offset` is the slot."""
Slots = npt.NDArray[Any]


def slots_of(rows: Rows, group: Ints) -> Slots:
    slots = np.empty(len(group), _SLOTS)
    slots["offset"], slots["at"], slots["size"] = (
        rows.queue_offset[group],
        rows.at[group],
        rows.size[group],
    )
    slots["tag_code"], slots["store_ms"] = rows.tag_code[group], rows.store_ms[group]
    slots["is_delayed"] = rows.is_delayed[group]
    return slots


@dataclass(slots=True)
class QueueScan:
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
        return bool(len(entry)) and (entry["physical"][0], entry["size"][0]) == (
            run["at"][0],
            run["size"][0],
        )

    def _begin_anew(self, first: int) -> None:
        """The topic was deleted and made again: its older records have no entries any more."""
        self.suspects.clear()
        self.jumps.clear()
        self.misnumbered.clear()
        self.first = first

    def fits(self, slots: Slots) -> Bools:
        """Whether each record's entry is as it must be. Their queue offsets ascend."""
        first = int(slots["offset"][0])
        found = self.entries.slots(first, int(slots["offset"][-1]) + 1 - first)[
            slots["offset"] - first
        ]
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
        is_right = (
            note.tag_code >= slot["store_ms"]
            if slot["is_delayed"]
            else note.tag_code == slot["tag_code"]
        )
        return (
            ""
            if is_right
            else f"its note has the tag code {note.tag_code}, the record's is {slot['tag_code']}"
        )
