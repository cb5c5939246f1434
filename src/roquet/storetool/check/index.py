"""Compares the index with the log, in both directions, during one walk through the log.

Index entries are in the order of their records. So the keys of each piece of the log are compared
with the next entries. Entries and keys that do not match are kept and examined one by one at the
end of the walk.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np

from roquet.protocol.records.columns import Bools, Ints
from roquet.storage.index.layout import ENTRY, key_hash
from roquet.storetool.check.findings import FindingKind, Findings
from roquet.storetool.check.index_chains import ChainCheck
from roquet.storetool.files import StoreFiles
from roquet.storetool.read.column_scan import ColumnScan, RecordColumns
from roquet.storetool.read.index_files import Entries, IndexReader, Shape
from roquet.storetool.read.log_scanner import record_at

_MORE: Final = 4096
"""How many entries may be between those of two neighbouring keys before keys count as missing."""
_NEAR: Final = 8
"""Missing keys that are at most so many keys apart make one finding."""
_TO_THE_END: Final = 1 << 20
"""Entries of one read, once the log has been walked."""


@dataclass(frozen=True, slots=True)
class _Stray:
    """An index entry that no key matched.

    :param file: number of the index file among the readers.
    :param number: number of the entry in that file.
    :param at: the physical offset that it points to.
    """

    file: int
    number: int
    at: int
    key_hash: int


class IndexCheck:
    """Compares the keys of the log's records with the index and reports findings at the end.

    Invariant: all entries before entry `_number` of file `_file` have been compared.

    :param shape: slots and entries of an index file; if None, the index is not checked.
    :param is_growing: whether a broker may be adding the newest keys.
    """

    def __init__(
        self, files: StoreFiles, findings: Findings, shape: Shape | None, *, is_growing: bool
    ) -> None:
        self._files = files
        self._findings = findings
        self._is_growing = is_growing
        self._readers: list[IndexReader] = []
        self._file = 0
        self._number = 1
        self._strays: list[_Stray] = []
        self._missing: list[tuple[Ints, Ints, Ints]] = []
        """Keys without an entry: their numbers among all keys, physical offsets, hashes."""
        self.keys = 0
        if shape is None:
            findings.remarks.append(
                "the index was not checked: its files do not have the default size; "
                "name it with -c broker.conf, or --index-slots and --index-entries"
            )
        else:
            for path in files.index:
                self._open(path, shape)

    def _open(self, path: Path, shape: Shape) -> None:
        size = path.stat().st_size
        if size == shape.file_size:
            self._readers.append(IndexReader(path, shape))
            return
        text = f"has {size} bytes, index files have {shape.file_size}: no broker uses it"
        self._findings.add(FindingKind.INDEX_FILE, self._files.name(path), None, text)

    def take(self, rows: RecordColumns) -> None:
        """Compare the keys of the next records with the next entries."""
        if not self._readers:
            return
        base, end = int(rows.physical[0]), rows.end
        expected = _sorted_set(((rows.key_physical - base) << 32) | rows.key_hash)
        places, entries = self._window(len(rows.key_physical) + _MORE)
        at = entries["at"].astype(np.int64)
        inside = (at >= base) & (at < end)
        found = np.where(inside, ((at - base) << 32) | entries["hash"], -1)
        fits, is_found = _meet(found, expected)
        # Compared are the entries up to the last one that matched; without a match those that point
        # before these records.
        taken = int(np.flatnonzero(fits)[-1]) + 1 if fits.any() else _head_before(at, base)
        self._keep_strays(places[:taken][~fits[:taken]], entries[:taken][~fits[:taken]])
        self._go_on(places, taken)
        if not is_found.all():
            lost = np.flatnonzero(~is_found)
            self._missing.append(
                (lost + self.keys, (expected[lost] >> 32) + base, expected[lost] & 0xFFFFFFFF)
            )
        self.keys += len(expected)

    def _window(self, count: int) -> tuple[Ints, Entries]:
        """Return file and number of each of the next `count` entries, and the entries."""
        places: list[Ints] = []
        found: list[Entries] = [np.empty(0, ENTRY)]
        number = self._number
        for file in range(self._file, len(self._readers)):
            reader = self._readers[file]
            entries = reader.entries(number, max(0, min(count, reader.header().count - number)))
            numbers = np.arange(number, number + len(entries))
            places.append(np.stack((np.full(len(entries), file), numbers), axis=1))
            found.append(entries)
            count -= len(entries)
            number = 1
            if count <= 0:
                break
        return (np.concatenate(places) if places else np.empty((0, 2), np.int64)), np.concatenate(
            found
        )

    def _go_on(self, places: Ints, taken: int) -> None:
        if taken:
            self._file = int(places[taken - 1][0])
            self._number = int(places[taken - 1][1]) + 1

    def _keep_strays(self, places: Ints, entries: Entries) -> None:
        start = self._files.log.start
        for (file, number), at, hashed in zip(
            places.tolist(), entries["at"].tolist(), entries["hash"].tolist(), strict=True
        ):
            if at >= start:  # the records of other entries have been deleted
                self._strays.append(_Stray(file, number, at, hashed))

    def finish(self, scan: ColumnScan) -> None:
        """Report the entries and keys that did not match, and faults of the hash chains."""
        # Read before the last entries: a broker may add some meanwhile, and every key up to here
        # must have its entry among those read below.
        reach = self._reach()
        while True:
            places, entries = self._window(_TO_THE_END)
            if not len(entries):
                break
            self._keep_strays(places, entries)
            self._go_on(places, len(entries))
        wrong = [stray for stray in self._strays if self._is_wrong(stray, scan)]
        beyond = [stray for stray in wrong if stray.at >= scan.end]
        for stray in wrong:
            if stray.at < scan.end:
                self._report_stray(stray)
        self._report_beyond(beyond, scan)
        self._report_missing(wrong, scan.bad_bodies, *reach)
        for file, reader in enumerate(self._readers):
            known = {stray.number for stray in wrong if stray.file == file}
            name = self._files.name(reader.path)
            ChainCheck(reader, name, self._findings, known, is_growing=self._is_growing).check()

    def _is_wrong(self, stray: _Stray, scan: ColumnScan) -> bool:
        """Whether the record that an entry points to has no such key; the record is read again."""
        if any(damage.start <= stray.at < damage.end for damage in scan.damages):
            return False
        record = record_at(self._files.log, stray.at)
        if isinstance(record, str):
            return not (self._is_growing and stray.at >= scan.end)
        return stray.key_hash not in {key_hash(record.topic, key.decode()) for key in record.keys}

    def _report_stray(self, stray: _Stray) -> None:
        record = record_at(self._files.log, stray.at)
        why = record if isinstance(record, str) else "that record has no key with this hash"
        what = f"entry {stray.number} (hash {stray.key_hash})"
        self._add(stray, f"{what} points to physical offset {stray.at}: {why}")

    def _report_beyond(self, beyond: list[_Stray], scan: ColumnScan) -> None:
        """Report entries that point beyond the log's end, with one finding per index file."""
        for file in sorted({stray.file for stray in beyond}):
            strays = [stray for stray in beyond if stray.file == file]
            first = strays[0]
            what = f"{len(strays)} entries point"
            if len(strays) == 1:
                what = f"entry {first.number} points"
            self._add(first, f"{what} beyond the log's end at {scan.end} (to {first.at})")

    def _add(self, stray: _Stray, text: str) -> None:
        reader = self._readers[stray.file]
        at = reader.shape.entry_at(stray.number)
        self._findings.add(FindingKind.INDEX_ENTRY, self._files.name(reader.path), at, text)

    def _report_missing(
        self, wrong: list[_Stray], bad_bodies: set[int], begin: int, end: int
    ) -> None:
        """Report keys without an entry; neighbouring ones make one finding.

        Left out are keys whose entry is wrong, because that is reported already, and keys of
        records with damaged bodies, which are not indexed.

        :param begin: physical offset of the oldest entry's record; `end` that of the newest.
        """
        if not self._missing:
            return
        numbers, places, hashes = (
            np.concatenate(column) for column in zip(*self._missing, strict=True)
        )
        kept = ~np.isin(places, [stray.at for stray in wrong]) & ~np.isin(
            hashes, [stray.key_hash for stray in wrong]
        )
        kept &= ~np.isin(places, list(bad_bodies))
        late = {(stray.at, stray.key_hash) for stray in self._strays}
        pairs = zip(places.tolist(), hashes.tolist(), strict=True)
        kept &= np.array([pair not in late for pair in pairs])
        before = kept & (places < begin)
        after = kept & (places > end)
        if before.any():
            self._findings.remarks.append(
                f"the index begins at physical offset {begin}: "
                f"{before.sum()} older keys are not indexed"
            )
        if self._is_growing and after.any():
            self._findings.remarks.append(
                f"{after.sum()} keys after physical offset {end} are still to be indexed"
            )
            kept &= ~after
        rows = np.flatnonzero(kept & ~before)
        if len(rows):
            for run in np.split(rows, np.flatnonzero(np.diff(numbers[rows]) > _NEAR) + 1):
                self._report_run(places[run])

    def _reach(self) -> tuple[int, int]:
        """Return the physical offsets of the first and the last record with an entry."""
        headers = [reader.header() for reader in self._readers]
        if not headers:
            return 0, 0
        return headers[0].begin_at, max(header.end_at for header in headers)

    def _report_run(self, places: Ints) -> None:
        first, last = int(places[0]), int(places[-1])
        path, index = self._files.log.place(first)
        what = "a key" if len(places) == 1 else f"{len(places)} keys"
        where = f"the records from {first} to {last}"
        if first == last:
            where = f"the record at physical offset {first}"
        text = f"{what} of {where} cannot be found: no index entry"
        self._findings.add(FindingKind.INDEX_MISSING, self._files.name(path), index, text)


def _sorted_set(values: Ints) -> Ints:
    """Return what `np.unique` returns; faster for values that are nearly sorted."""
    values = np.sort(values, kind="stable")
    found: Ints = values[np.append(True, values[1:] != values[:-1])[: len(values)]]
    return found


def _meet(found: Ints, expected: Ints) -> tuple[Bools, Bools]:
    """Return which of `found` are in `expected` (sorted), and which of `expected` in `found`."""
    if not len(expected):
        return np.zeros(len(found), bool), np.zeros(0, bool)
    places = np.minimum(np.searchsorted(expected, found), len(expected) - 1)
    fits: Bools = expected[places] == found
    is_found = np.zeros(len(expected), bool)
    is_found[places[fits]] = True
    return fits, is_found


def _head_before(at: Ints, base: int) -> int:
    """Return how many of the first entries point before physical offset `base`."""
    later = np.flatnonzero(at >= base)
    return int(later[0]) if len(later) else len(at)
