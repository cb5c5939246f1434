"""Stored records as pull answers hold them: many in one buffer, and where each of them starts."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from roquet.errors import CorruptRecord
from roquet.protocol.records.block import RecordBlock, RecordLayouts, record_starts
from roquet.protocol.records.columns import Bools, Ints, gather
from roquet.protocol.records.record import MAGIC, MAGIC_V2, SIZE_MIN

LARGE: Final = 32 << 10
"""Bytes from which columns pay."""
_IN_STEP_MAX: Final = 64
"""Records in each answer up to which going through all answers in step pays."""


@dataclass(frozen=True)
class Records:
    """Whole records in one buffer, and where those that count start, in ascending order.

    `shape` is theirs where somebody has found out that they are sound.
    """

    data: bytes = field(repr=False)  # asyncio and logs show task results, these are megabytes
    starts: Ints
    shape: RecordLayouts | None = field(default=None, repr=False)

    @classmethod
    def of_block(cls, block: RecordBlock, rows: Ints) -> Records:
        """Some records of a block, by their ascending numbers; all of the block are sound."""
        return cls(block.data, block.starts[rows], block.shape.of(rows))

    @classmethod
    def walk(cls, data: bytes) -> Records:
        """The records of a pull answer.

        :raises CorruptRecord: its bytes are not all records; `at` is the index in `data`.
        """
        starts = _starts_by_magic(data) if len(data) >= LARGE else None
        return cls(data, _starts_in_turn(data) if starts is None else starts)

    @classmethod
    def of_answers(cls, bodies: Sequence[bytes], count: int) -> Records:
        """The records of several pull answers, which should be `count`.

        :raises CorruptRecord: these bytes are not all records.
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
        return gather(self.data, ">i8", self.starts + 20).astype(np.int64)

    def between(self, start: int, end: int) -> Records:
        """Those with a queue offset from `start` up to, not including, `end`."""
        offsets = self.queue_offsets
        return self.where((offsets >= start) & (offsets < end))

    def where(self, kept: Bools | Ints) -> Records:
        """Those that a mask or their numbers tell."""
        return Records(self.data, self.starts[kept])


def _starts_by_magic(data: bytes) -> Ints | None:
    """Where records start, from the places that hold a record's magic, if these follow each other from end to end.

    They do not where a body holds such bytes; then None.
    """
    everything = np.frombuffer(data, np.uint8)
    places = np.flatnonzero(everything[4:-3] == MAGIC >> 24)
    magics = gather(data, ">u4", places + 4)
    starts = places[(magics == MAGIC) | (magics == MAGIC_V2)]
    ends = starts + gather(data, ">i4", starts)
    is_chain = (
        len(starts) > 0
        and np.array_equal(starts, np.concatenate(([0], ends[:-1])))
        and ends[-1] == len(data)
    )
    return starts if is_chain and (ends - starts >= SIZE_MIN).all() else None


def _starts_in_step(data: bytes, bodies: Sequence[bytes]) -> Ints | None:
    """Where records start: the first one of each body, then the second of each, and so on; None if some are none."""
    sizes = np.array([len(body) for body in bodies], np.int64)
    ends = np.cumsum(sizes)
    at, found = ends - sizes, [sizes[:0]]
    while len(at):
        if (ends - at < SIZE_MIN).any():
            return None
        sizes = gather(data, ">i4", at).astype(np.int64)
        magics = gather(data, ">u4", at + 4)
        if (
            (sizes < SIZE_MIN) | (at + sizes > ends) | ((magics != MAGIC) & (magics != MAGIC_V2))
        ).any():
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
            end, f"the {len(data) - end} bytes left begin with no whole record of a known magic"
        )
    return np.array(starts, np.int64)
