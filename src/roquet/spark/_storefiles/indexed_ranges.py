"""Finds the bytes of a log that must be read, by the entries of its consume queues.

The entries of all queues say to which topic each record belongs. Records that only unwanted queues
claim are not read. Bytes that no queue claims are read: they may be records that are not in their
queue yet, or whose queue was deleted, lost a file or is damaged.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np

from roquet.protocol.records.columns import Bools, Ints
from roquet.protocol.records.layout import SIZE_MIN
from roquet.storage.queues.consume_queue import BLANK_RECORD_SIZE, ENTRIES
from roquet.storetool.files import SegmentFiles, StoreFiles
from roquet.storetool.read.queue_entries import QueueEntries

HOLE_MIN: Final = 16 << 10
"""Bytes of the smallest gap that is skipped: a separate read costs as much as reading them."""
READ_AT_ONCE: Final = 4 << 20
"""Bytes of records that are read and decoded together."""
_SAMPLE: Final = 1000
"""How many of a queue's entries are read to estimate the size of its records."""

Wants = Callable[[str, int], bool]
"""(topic, queue id) -> whether messages of the queue are wanted."""
Queues = Mapping[tuple[str, int], SegmentFiles]


class QueuesDisagree(Exception):  # noqa: N818
    """Consume queues and log differ, so the log must be read entirely. Internal to the package."""


@dataclass(frozen=True)
class Claims:
    """The records that queue entries claim: physical offset, size in bytes, and whether wanted.

    Invariant: claims are in the order of the log, do not overlap, and are within the part of the
    log.
    """

    at: Ints
    size: Ints
    is_wanted: Bools

    @classmethod
    def of(cls, queues: Queues, start: int, end: int, wants: Wants) -> Claims:
        """The claims of the queues on the log at physical offsets [start, end).

        :raises QueuesDisagree: two claims overlap, or one ends after `end`.
        """
        found = [
            (key, QueueEntries(files, _NO_EXTENSION).between(start, end))
            for key, files in queues.items()
        ]
        entries = np.concatenate([np.empty(0, ENTRIES), *(each for _, each in found)])
        at, size = entries["physical"].astype(np.int64), entries["size"].astype(np.int64)
        is_wanted = np.repeat(
            np.array([wants(*key) for key, _ in found], np.bool_), [len(each) for _, each in found]
        )
        order = np.argsort(at, kind="stable")
        return cls(at[order], size[order], is_wanted[order])._once()._checked(start, end)

    @property
    def ends(self) -> Ints:
        return self.at + self.size

    def _once(self) -> Claims:
        """The claims without duplicates.

        A record may be in several queues: light message queues point to records of other topics.
        """
        is_first = np.concatenate(([True], (np.diff(self.at) != 0) | (np.diff(self.size) != 0)))[
            : len(self.at)
        ]
        if is_first.all():
            return self
        firsts = np.flatnonzero(is_first)
        return Claims(
            self.at[firsts], self.size[firsts], np.logical_or.reduceat(self.is_wanted, firsts)
        )

    def _checked(self, start: int, end: int) -> Claims:
        edges = np.concatenate(([start], self.ends))
        wrong = (self.at < edges[:-1]) | (self.size < SIZE_MIN) | (self.ends > end)
        if wrong.any():
            raise QueuesDisagree(
                f"an entry claims {int(self.size[wrong][0])} bytes at {int(self.at[wrong][0])}"
            )
        return self


@dataclass(frozen=True)
class Unclaimed:
    """Bytes of the log at physical offsets [start, end) that no queue claims."""

    start: int
    end: int


@dataclass(frozen=True)
class Claimed:
    """Records to read together: physical offsets and sizes, in the order of the log."""

    at: Ints
    size: Ints

    @property
    def spans(self) -> list[tuple[int, int]]:
        """The physical offsets [start, end) of adjacent records."""
        begins = np.concatenate(([True], self.at[1:] != (self.at + self.size)[:-1]))
        firsts = np.flatnonzero(begins)
        ends = (self.at + self.size)[np.append(firsts[1:] - 1, len(self.at) - 1)]
        return list(zip(self.at[firsts].tolist(), ends.tolist(), strict=True))


def to_read(claims: Claims, start: int, end: int) -> list[Claimed | Unclaimed]:
    """The pieces to read at physical offsets [start, end), in the order of the log."""
    gaps = _gaps(claims, start, end)
    chosen = _chosen(claims)
    at, size = claims.at[chosen], claims.size[chosen]
    gaps_before = np.searchsorted(np.array([gap.start for gap in gaps], np.int64), at)
    number = (np.cumsum(size) - size) // READ_AT_ONCE
    breaks = np.flatnonzero((np.diff(number) != 0) | (np.diff(gaps_before) != 0)) + 1
    records = [
        Claimed(*each)
        for each in zip(np.split(at, breaks), np.split(size, breaks), strict=True)
        if len(each[0])
    ]
    return sorted([*records, *gaps], key=_start)


def _start(piece: Claimed | Unclaimed) -> int:
    return piece.start if isinstance(piece, Unclaimed) else int(piece.at[0])


def _gaps(claims: Claims, start: int, end: int) -> list[Unclaimed]:
    begins, ends = np.append(claims.at, end), np.concatenate(([start], claims.ends))
    return [Unclaimed(int(ends[each]), int(begins[each])) for each in np.flatnonzero(ends < begins)]


def _chosen(claims: Claims) -> Ints:
    """Indices of the records to read: wanted ones, and those in small gaps between wanted ones."""
    wanted = np.flatnonzero(claims.is_wanted)
    is_near = claims.at[wanted][1:] - claims.ends[wanted][:-1] < HOLE_MIN
    steps = np.zeros(len(claims.at) + 1, np.int64)
    np.add.at(steps, wanted, 1)
    np.add.at(steps, wanted + 1, -1)
    np.add.at(steps, wanted[:-1][is_near] + 1, 1)
    np.add.at(steps, wanted[1:][is_near], -1)
    return np.flatnonzero(np.cumsum(steps[:-1]) > 0)


def wanted_share(files: StoreFiles, wants: Wants, end: int) -> float:
    """The estimated share, 0 to 1, of the log's bytes up to `end` that must be read."""
    size = end - files.log.start
    others = sum(_bytes_about(queue) for key, queue in files.queues.items() if not wants(*key))
    return min(1.0, max(0.0, 1 - others / size)) if size else 1.0


def _bytes_about(files: SegmentFiles) -> int:
    entries = QueueEntries(files, _NO_EXTENSION)
    end = entries.end()
    first = max(entries.first, end - _SAMPLE)
    sizes: Ints = entries.read(first, end - first)["size"].astype(np.int64)
    sizes = sizes[(sizes > 0) & (sizes < BLANK_RECORD_SIZE)]
    return (end - entries.first) * int(sizes.sum()) // len(sizes) if len(sizes) else 0


_NO_EXTENSION: Final = SegmentFiles((), 0)
