"""Reads index files in large pieces (docs/storage/index.md)."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from struct import Struct
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from roquet.storage.index.layout import ENTRY, HEADER, SLOT, entry_at, slot_at
from roquet.storetool.files import data_pieces, read_at

USED_SLOTS_AT: Final = 32
COUNT_AT: Final = 36
PREVIOUS_AT: Final = 16
_AT_IN_ENTRY: Final = 4
_LONG: Final = Struct(">q")
SLOTS_DEFAULT: Final = 5_000_000
ENTRIES_DEFAULT: Final = 20_000_000
Entries = npt.NDArray[Any]
Slots = npt.NDArray[Any]


@dataclass(frozen=True, slots=True)
class IndexHeader:
    """The header of an index file.

    :param begin_at: physical offset of the first record with an entry; `end_at` that of the last.
    :param used_slots: the number of hash slots that are not empty.
    :param count: the number of the next entry; entries are counted from 1.
    """

    begin_at: int
    end_at: int
    used_slots: int
    count: int


def read_header(path: Path) -> IndexHeader:
    """Read the header of an index file; that of an empty file if it has been deleted."""
    data = read_at(path, 0, HEADER.size)
    _, _, begin_at, end_at, used, count = HEADER.unpack(data.ljust(HEADER.size, b"\0"))
    return IndexHeader(begin_at, end_at, used, max(count, 1))


@dataclass(frozen=True, slots=True)
class Shape:
    """The number of hash slots and of entries (one more than fit) in each index file."""

    slots: int = SLOTS_DEFAULT
    entries: int = ENTRIES_DEFAULT

    @property
    def file_size(self) -> int:
        """Bytes of an index file."""
        return self.entry_at(self.entries)

    def entry_at(self, number: int) -> int:
        """Return the byte in the file at which an entry begins."""
        return entry_at(self.slots, number)


def shape_of(path: Path) -> Shape | None:
    """Find out how many slots and entries an index file has; None if it cannot be found out.

    The physical offset in the header is that of the newest entry's record, so the newest entry is
    found by searching the file for that offset. From its place follows the number of slots. A
    candidate counts if the slot of the newest entry has that entry's number.
    """
    header = read_header(path)
    size = path.stat().st_size
    wanted = _LONG.pack(header.end_at)
    if header.count < 2 or not header.end_at:
        return None
    for start, data in data_pieces(path, HEADER.size):
        place = data.find(wanted)
        while place >= 0:
            slots, odd = divmod(
                start + place - _AT_IN_ENTRY - ENTRY.itemsize * (header.count - 1) - HEADER.size, 4
            )
            entries, more = divmod(size - HEADER.size - 4 * slots, ENTRY.itemsize)
            shape = Shape(slots, entries)
            if (
                slots > 0
                and entries >= header.count
                and not odd
                and not more
                and _is_shape(path, shape, header.count)
            ):
                return shape
            place = data.find(wanted, place + 1)
    return None


def _is_shape(path: Path, shape: Shape, count: int) -> bool:
    newest = np.frombuffer(read_at(path, shape.entry_at(count - 1), ENTRY.itemsize), ENTRY)
    if not len(newest) or newest["hash"][0] < 0:
        return False
    slot = read_at(path, slot_at(int(newest["hash"][0]) % shape.slots), SLOT.itemsize)
    return int.from_bytes(slot, "big") == count - 1


@dataclass(frozen=True, slots=True)
class IndexReader:
    """Reads one index file. Nothing is cached, because a broker may be writing to it."""

    path: Path
    shape: Shape

    def header(self) -> IndexHeader:
        """Return the header as it is now."""
        return read_header(self.path)

    def slots(self) -> Slots:
        """Return all hash slots: the number of the newest entry of each chain, or 0."""
        data = read_at(self.path, slot_at(0), SLOT.itemsize * self.shape.slots)
        return np.frombuffer(data, SLOT, len(data) // SLOT.itemsize)

    def entries(self, number: int, count: int) -> Entries:
        """Return up to `count` entries from entry `number` on."""
        data = read_at(self.path, self.shape.entry_at(number), ENTRY.itemsize * count)
        return np.frombuffer(data, ENTRY, len(data) // ENTRY.itemsize)
