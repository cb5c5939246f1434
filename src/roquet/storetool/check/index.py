"""The index against the log, both ways, while the log is walked once.

Entries come in the order of their records. So of each piece of the log the keys are compared with the entries that come
next; what does not fit together is kept, and looked at one by one when the walk is over.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np

from roquet.protocol.records.columns import Bools, Ints
from roquet.storage.index.layout import ENTRY, key_hash
from roquet.storetool.check.findings import Findings, Kind
from roquet.storetool.check.index_chains import check_chains
from roquet.storetool.files import StoreFiles
from roquet.storetool.read.columns import Rows
from roquet.storetool.read.index_files import Entries, IndexReader, Shape
from roquet.storetool.read.log_scan import LogScan
from roquet.storetool.read.log_scanner import arrival_at

_MORE: Final = 4096
"""So many entries may stand between those of two neighbouring keys before they are taken for lost."""
_NEAR: Final = 8
"""Keys that are missing and stand as near as this make one finding."""
_TO_THE_END: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class _Stray:
    """An entry that is not where its key's turn was."""

    file: int
    number: int
    at: int
    key_hash: int


class IndexCheck:
    """Takes the log's records, and says at the end what is wrong with the index.

    Keeps: entries before number `_number` of file `_file` were compared with the log's keys.

    :param is_growing: a broker may be about to add the newest keys.
    """

    def __init__(
        self, files: StoreFiles, findings: Findings, shape: Shape | None, *, is_growing: bool
    ) -> None:
        self._files = files
        self._findings = findings
        self._is_growing = is_growing
        self._readers: list[IndexReader] = []
        self._file, self._number = 0, 1
        self._strays: list[_Stray] = []
        self._missing: list[tuple[Ints, Ints, Ints]] = []
        """Number among all keys, physical offset, hash."""
        self.keys = 0
        if shape is None:
            findings.remarks.append(
                "the index was not checked: its size is not the default one (-c, --index-slots)"
            )
        else:
            for path in files.index:
                self._open(path, shape)

    def _open(self, path: Path, shape: Shape) -> None:
        size = path.stat().st_size
        if size == shape.file_size:
            self._readers.append(IndexReader(path, shape))
            return
        text = f"has {size} bytes, the index's files have {shape.file_size}: no broker uses it"
        self._findings.add(Kind.INDEX_FILE, self._files.name(path), None, text)

    def take(self, rows: Rows) -> None:
        """Compare the keys of some records with the entries that come next."""
        if not self._readers:
            return
        base, end = int(rows.at[0]), rows.end
        expected = _sorted_set(((rows.key_at - base) << 32) | rows.key_hash)
        places, entries = self._window(len(rows.key_at) + _MORE)
        at = entries["at"].astype(np.int64)
        inside = (at >= base) & (at < end)
        found = np.where(inside, ((at - base) << 32) | entries["hash"], -1)
        fits, is_found = _meet(found, expected)
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
        """The next entries, and file and number of each."""
        places: list[Ints] = []
        found: list[Entries] = [np.empty(0, ENTRY)]
        number = self._number
        for file in range(self._file, len(self._readers)):
            reader = self._readers[file]
            entries = reader.entries(number, max(0, min(count, reader.header().count - number)))
            numbers = np.arange(number, number + len(entries))
            places.append(np.stack((np.full(len(entries), file), numbers), axis=1))
            found.append(entries)
            count, number = count - len(entries), 1
            if count <= 0:
                break
        return (np.concatenate(places) if places else np.empty((0, 2), np.int64)), np.concatenate(
            found
        )

    def _go_on(self, places: Ints, taken: int) -> None:
        if taken:
            self._file, self._number = int(places[taken - 1][0]), int(places[taken - 1][1]) + 1

    def _keep_strays(self, places: Ints, entries: Entries) -> None:
        start = self._files.log.start
        for (file, number), at, hashed in zip(
            places.tolist(), entries["at"].tolist(), entries["hash"].tolist(), strict=True
        ):
            if at >= start:  # the others are of records whose file is deleted
                self._strays.append(_Stray(file, number, at, hashed))

    def finish(self, scan: LogScan) -> None:
        """Look at what did not fit, and at how the entries are chained."""
        reach = self._reach()  # asked for first: of the keys up to there, each entry is read now
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
            check_chains(
                reader,
                self._files.name(reader.path),
                self._findings,
                known,
                is_growing=self._is_growing,
            )

    def _is_wrong(self, stray: _Stray, scan: LogScan) -> bool:
        """Whether an entry is not that of a key of the record it points to; the record is read anew."""
        if any(damage.start <= stray.at < damage.end for damage in scan.damages):
            return False
        record = arrival_at(self._files.log, stray.at)
        if isinstance(record, str):
            return not (self._is_growing and stray.at >= scan.end)
        return stray.key_hash not in {key_hash(record.topic, key.decode()) for key in record.keys}

    def _report_stray(self, stray: _Stray) -> None:
        reader = self._readers[stray.file]
        record = arrival_at(self._files.log, stray.at)
        why = record if isinstance(record, str) else "that record has no key with this hash"
        text = f"entry {stray.number} (hash {stray.key_hash}) points to physical offset {stray.at}: {why}"
        name = self._files.name(reader.path)
        self._findings.add(Kind.INDEX_ENTRY, name, reader.shape.entry_at(stray.number), text)

    def _report_beyond(self, beyond: list[_Stray], scan: LogScan) -> None:
        """Entries that point to where the log does not reach; those of one file make one finding."""
        for file in sorted({stray.file for stray in beyond}):
            strays = [stray for stray in beyond if stray.file == file]
            what = (
                f"entry {strays[0].number} points"
                if len(strays) == 1
                else f"{len(strays)} entries point"
            )
            reader = self._readers[file]
            text = f"{what} behind the log's end at {scan.end} (to {strays[0].at})"
            self._findings.add(
                Kind.INDEX_ENTRY,
                self._files.name(reader.path),
                reader.shape.entry_at(strays[0].number),
                text,
            )

    def _report_missing(
        self, wrong: list[_Stray], bad_bodies: set[int], begin: int, end: int
    ) -> None:
        """Keys without an entry, but for those that a wrong entry accounts for, and those of records with damaged
        bodies; neighbours make one finding."""
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
        kept &= np.array(
            [
                (at, key) not in late
                for at, key in zip(places.tolist(), hashes.tolist(), strict=True)
            ]
        )
        before, behind = kept & (places < begin), kept & (places > end)
        if before.any():
            self._findings.remarks.append(
                f"the index begins at physical offset {begin}: {before.sum()} older keys"
            )
        if self._is_growing and behind.any():
            self._findings.remarks.append(
                f"{behind.sum()} keys behind physical offset {end} are still to be indexed"
            )
            kept &= ~behind
        rows = np.flatnonzero(kept & ~before)
        for run in (
            np.split(rows, np.flatnonzero(np.diff(numbers[rows]) > _NEAR) + 1) if len(rows) else []
        ):
            self._report_run(places[run])

    def _reach(self) -> tuple[int, int]:
        """Physical offsets of the oldest and the newest entry."""
        headers = [reader.header() for reader in self._readers]
        return (
            (headers[0].begin_at, max(header.end_at for header in headers)) if headers else (0, 0)
        )

    def _report_run(self, places: Ints) -> None:
        first, last = int(places[0]), int(places[-1])
        path, index = self._files.log.place(first)
        what = "a key" if len(places) == 1 else f"{len(places)} keys"
        where = (
            f"the record at physical offset {first}"
            if first == last
            else f"the records from {first} to {last}"
        )
        text = f"{what} of {where} cannot be found: no index entry"
        self._findings.add(Kind.INDEX_MISSING, self._files.name(path), index, text)


def _sorted_set(values: Ints) -> Ints:
    """What `np.unique` gives, faster for values that are nearly in order."""
    values = np.sort(values, kind="stable")
    found: Ints = values[np.append(True, values[1:] != values[:-1])[: len(values)]]
    return found


def _meet(found: Ints, expected: Ints) -> tuple[Bools, Bools]:
    """Which of `found` are in `expected`, which is in order, and which of `expected` are in `found`."""
    if not len(expected):
        return np.zeros(len(found), bool), np.zeros(0, bool)
    places = np.minimum(np.searchsorted(expected, found), len(expected) - 1)
    fits: Bools = expected[places] == found
    is_found = np.zeros(len(expected), bool)
    is_found[places[fits]] = True
    return fits, is_found


def _head_before(at: Ints, base: int) -> int:
    """How many of the first entries are of records before `base`."""
    later = np.flatnonzero(at >= base)
    return int(later[0]) if len(later) else len(at)
