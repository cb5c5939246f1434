"""Stored records as in pull answers: many records in one buffer, and the start of each."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from roquet.errors import CorruptRecord
from roquet.protocol.records.block import (
    RecordBlock,
    RecordLayouts,
    is_record_magic,
    leading_field,
    record_starts,
)
from roquet.protocol.records.columns import Bools, Ints, gather
from roquet.protocol.records.layout import MAGIC, NUMPY_TYPES, SIZE_MIN

_SIZE_AND_MAGIC: Final = np.dtype([(name, NUMPY_TYPES[name]) for name in ("size", "magic")])
LARGE: Final = 32 << 10
"""Bytes from which decoding in columns is faster than record by record."""
_IN_STEP_MAX: Final = 64
"""Records per answer up to which `_starts_in_step` is the fastest way."""


@dataclass(frozen=True)
class Records:
    """Complete records in one buffer. `starts` has the ascending starts of those that count.

    Invariant: at each start, the size of a record that ends in the buffer and a record's magic were
    found. `shape`: their layouts, if they have been validated already; otherwise None.
    """

    data: bytes = field(repr=False)  # asyncio and logs show task results, these are megabytes
    starts: Ints
    shape: RecordLayouts | None = field(default=None, repr=False)

    @classmethod
    def of_block(cls, block: RecordBlock, rows: Ints) -> Records:
        """The records of a block at ascending indices. A block has only valid records."""
        return cls(block.data, block.starts[rows], block.shape.of(rows))

    @classmethod
    def walk(cls, data: bytes) -> Records:
        """Find the records of a pull answer.

        :raises CorruptRecord: not all bytes are records; `at` is the byte position in `data`.
        """
        starts = _starts_by_magic(data) if len(data) >= LARGE else None
        return cls(data, _starts_in_turn(data) if starts is None else starts)

    @classmethod
    def of_answers(cls, bodies: Sequence[bytes], count: int) -> Records:
        """Find the records of several pull answers.

        :param count: the expected count, to choose the fastest way.
        :raises CorruptRecord: not all bytes are records.
        """
        data = b"".join(bodies)
        starts = _starts_in_step(data, bodies) if count <= _IN_STEP_MAX * len(bodies) else None
        return cls.walk(data) if starts is None else cls(data, starts)

    @classmethod
    def joined(cls, parts: Iterable[Records]) -> Records:
        """The records of several answers as one."""
        kept = list(parts)
        before = np.cumsum([0, *(len(part.data) for part in kept)])
        starts = [part.starts + shift for part, shift in zip(kept, before[:-1], strict=True)]
        return cls(
            b"".join(part.data for part in kept), np.concatenate([*starts, np.empty(0, np.int64)])
        )

    def __len__(self) -> int:
        return len(self.starts)

    @property
    def queue_offsets(self) -> Ints:
        return leading_field(self.data, "queue_offset", self.starts)

    def between(self, start: int, end: int) -> Records:
        """The records with queue offsets in [start, end)."""
        offsets = self.queue_offsets
        return self.where((offsets >= start) & (offsets < end))

    def where(self, kept: Bools | Ints) -> Records:
        """The records that a mask or indices select."""
        return Records(self.data, self.starts[kept])


def _starts_by_magic(data: bytes) -> Ints | None:
    """The starts of records, from all positions of a magic number.

    :returns: None if these records are not adjacent, as when a body contains a magic number.
    """
    everything = np.frombuffer(data, np.uint8)
    places = np.flatnonzero(everything[4:-3] == MAGIC >> 24)
    starts = places[is_record_magic(leading_field(data, "magic", places))]
    ends = starts + leading_field(data, "size", starts)
    is_chain = (
        len(starts) > 0
        and np.array_equal(starts, np.concatenate(([0], ends[:-1])))
        and ends[-1] == len(data)
    )
    return starts if is_chain and (ends - starts >= SIZE_MIN).all() else None


def _starts_in_step(data: bytes, bodies: Sequence[bytes]) -> Ints | None:
    """The starts of records: of the first record in each body, then of the second, and so on.

    :returns: None if bytes are no record.
    """
    sizes = np.array([len(body) for body in bodies], np.int64)
    ends = np.cumsum(sizes)
    at, found = ends - sizes, [sizes[:0]]
    while len(at):
        if (ends - at < SIZE_MIN).any():
            return None
        heads = gather(data, _SIZE_AND_MAGIC, at)
        sizes = heads["size"].astype(np.int64)
        is_record = is_record_magic(heads["magic"]) & (sizes >= SIZE_MIN) & (at + sizes <= ends)
        if not is_record.all():
            return None
        found.append(at)
        at = at + sizes
        has_more = at < ends
        at, ends = at[has_more], ends[has_more]
    return np.sort(np.concatenate(found))


def _starts_in_turn(data: bytes) -> Ints:
    starts, end = record_starts(data)
    if end < len(data):
        raise CorruptRecord(
            end, f"the last {len(data) - end} bytes begin with no complete record of a known magic"
        )
    return np.array(starts, np.int64)
