"""Checks the structure of one index file: header, hash slots and chains of entries."""

from __future__ import annotations

from collections.abc import Set
from typing import Final

import numpy as np

from roquet.protocol.records.columns import Bools, Ints
from roquet.storage.index.layout import slot_at
from roquet.storetool.check.findings import FindingKind, Findings
from roquet.storetool.read.index_files import COUNT_AT, PREVIOUS_AT, USED_SLOTS_AT, IndexReader

_AT_ONCE: Final = 1 << 20
"""Entries of one read."""


class ChainCheck:
    """Checks the hash chains of an index file.

    Each slot must have the number of its newest entry, each entry the number of an older entry of
    the same slot, and each entry must be in a chain.

    A running broker writes the entry first, then its slot, then the header. So the header is read
    first, then the slots, then the entries: what is read later is never older.

    :param name: the file as findings name it.
    :param known: numbers of entries that are known to be wrong.
    :param is_growing: whether a broker may be adding entries.
    """

    def __init__(
        self,
        reader: IndexReader,
        name: str,
        findings: Findings,
        known: Set[int],
        *,
        is_growing: bool,
    ) -> None:
        self._reader = reader
        self._name = name
        self._findings = findings
        self._known = list(known)
        self._is_growing = is_growing
        self._count = reader.header().count
        """The number of the next entry, by the header."""

    def check(self) -> None:
        """Add the findings of the file."""
        room = self._reader.shape.entries
        if self._count > room:
            text = f"the header says {self._count - 1} entries, the file has room for {room - 1}"
            self._findings.add(FindingKind.INDEX_FILE, self._name, COUNT_AT, text)
            return
        self._slots: Ints = self._reader.slots().astype(np.int64)
        self._end = self._count
        if self._is_growing:
            self._end = min(room, max(self._count, int(self._slots.max(initial=0)) + 1))
        self._hashes: Ints = np.zeros(self._end, np.int64)
        self._is_named: Bools = np.zeros(self._end, bool)
        before = self._findings.count
        for first in range(1, self._end, _AT_ONCE):
            self._check_entries(first)
        self._check_slots()
        if self._findings.count == before and not self._known:
            self._check_reach()
        if self._findings.count == before:
            self._check_used()

    def _check_entries(self, first: int) -> None:
        """Check that each entry has the number of an older entry of the same slot, or 0."""
        entries = self._reader.entries(first, min(_AT_ONCE, self._end - first))
        numbers = np.arange(first, first + len(entries))
        previous = entries["previous"].astype(np.int64)
        self._hashes[numbers] = entries["hash"]
        is_back = (previous >= 0) & (previous < numbers)
        older = np.where(is_back, previous, 0)
        self._is_named[older] = True
        slots = len(self._slots)
        is_same = (older == 0) | (self._hashes[older] % slots == self._hashes[numbers] % slots)
        is_same |= np.isin(older, self._known) | np.isin(numbers, self._known)
        for row in np.flatnonzero(~is_back | ~is_same).tolist():
            why = "it is of another slot" if is_back[row] else "it is not older"
            text = f"entry {first + row} has entry {previous[row]} as the one before it: {why}"
            at = self._reader.shape.entry_at(first + row) + PREVIOUS_AT
            self._findings.add(FindingKind.INDEX_ENTRY, self._name, at, text)

    def _check_slots(self) -> None:
        """Check that each slot has the number of an entry whose hash belongs to it."""
        used = np.flatnonzero(self._slots)
        named = self._slots[used]
        exists = (named > 0) & (named < self._end)
        newest = np.where(exists, named, 0)
        self._is_named[newest] = True
        is_own = (self._hashes[newest] % len(self._slots) == used) | np.isin(newest, self._known)
        for row in np.flatnonzero(~exists | ~is_own).tolist():
            why = "which is of another slot" if exists[row] else "which does not exist"
            text = f"slot {used[row]} has entry {named[row]}, {why}"
            self._findings.add(FindingKind.INDEX_ENTRY, self._name, slot_at(int(used[row])), text)

    def _check_reach(self) -> None:
        for number in np.flatnonzero(~self._is_named[1 : self._count]).tolist():
            text = f"entry {number + 1} is in no chain: its key cannot be found"
            at = self._reader.shape.entry_at(number + 1)
            self._findings.add(FindingKind.INDEX_ENTRY, self._name, at, text)

    def _check_used(self) -> None:
        used = self._reader.header().used_slots
        counted = int(np.count_nonzero(self._slots))
        if used != counted and not self._is_growing:
            text = f"the header says that {used} slots are in use, but {counted} are"
            self._findings.add(FindingKind.INDEX_FILE, self._name, USED_SLOTS_AT, text)
