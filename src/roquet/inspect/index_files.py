"""Index files, read in large pieces (docs/formats/index-file.md)."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from struct import Struct
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from roquet.inspect.files import read_at

HEADER: Final = Struct(">qqqqii")
ENTRY: Final = np.dtype([("hash", ">i4"), ("at", ">i8"), ("seconds", ">i4"), ("previous", ">i4")])
USED_SLOTS_AT: Final = 32
COUNT_AT: Final = 36
PREVIOUS_AT: Final = 16
SLOTS_DEFAULT: Final = 5_000_000
ENTRIES_DEFAULT: Final = 20_000_000
Entries = npt.NDArray[Any]
Slots = npt.NDArray[Any]


@dataclass(frozen=True, slots=True)
class Header:
    """Times in ms, places as physical offsets; `count` is the number of the next entry."""

    begin_ms: int
    end_ms: int
    begin_at: int
    end_at: int
    used_slots: int
    count: int


def read_header(path: Path) -> Header:
    """All zeros, but for a count of 1, where the file is gone."""
    data = read_at(path, 0, HEADER.size)
    begin_ms, end_ms, begin_at, end_at, used, count = HEADER.unpack(data.ljust(HEADER.size, b"\0"))
    return Header(begin_ms, end_ms, begin_at, end_at, used, max(count, 1))


@dataclass(frozen=True, slots=True)
class Shape:
    """How many slots and entries each file has."""

    slots: int = SLOTS_DEFAULT
    entries: int = ENTRIES_DEFAULT

    @property
    def file_size(self) -> int:
        return HEADER.size + 4 * self.slots + ENTRY.itemsize * self.entries

    def entry_at(self, number: int) -> int:
        """The byte in the file where an entry begins."""
        return HEADER.size + 4 * self.slots + ENTRY.itemsize * number


@dataclass(frozen=True, slots=True)
class IndexReader:
    """One index file, read anew at each call."""

    path: Path
    shape: Shape

    def header(self) -> Header:
        return read_header(self.path)

    def slots(self) -> Slots:
        data = read_at(self.path, HEADER.size, 4 * self.shape.slots)
        return np.frombuffer(data, ">i4", len(data) // 4)

    def entries(self, number: int, count: int) -> Entries:
        """Up to `count` entries from `number` on."""
        data = read_at(self.path, self.shape.entry_at(number), ENTRY.itemsize * count)
        return np.frombuffer(data, ENTRY, len(data) // ENTRY.itemsize)
