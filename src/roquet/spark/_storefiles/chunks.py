"""Reads one part of a store's log piece by piece: blocks of valid records, and damage."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import numpy as np

from roquet.protocol.records.block import RecordBlock, is_record_magic
from roquet.protocol.records.columns import Ints
from roquet.spark._storefiles.indexed_ranges import (
    Claimed,
    Claims,
    QueuesDisagree,
    Unclaimed,
    Wants,
    to_read,
)
from roquet.storetool.files import SegmentFiles, find_queues
from roquet.storetool.read.log_scanner import Damage, LogScanner

PIECE_SIZE: Final = 4 << 20
"""Bytes read at once, whose records make one batch: enough for decoding in columns to pay, and
small enough for a core's caches to have much of them.
"""
_UNCLAIMED_MAX: Final = 64
"""A part with more unclaimed pieces than this is read entirely."""


@dataclass(frozen=True)
class QueuePlace:
    """The consume queues of a store: its root, and the size of their files in bytes."""

    root: Path
    file_size: int


@dataclass(frozen=True)
class StorePart:
    """The records of one store that begin at physical offsets [start, end).

    If the planner's view was right, a record begins at `start` and one ends at `end`. `log` has the
    files between them. `damages` are reported in addition to those that the read finds. `queues`
    say which records need not be read; if None, all are read.
    """

    broker_name: str
    log: SegmentFiles
    start: int
    end: int
    damages: tuple[Damage, ...] = ()
    queues: QueuePlace | None = None


def read_blocks(part: StorePart, wants: Wants) -> Iterator[RecordBlock | Damage]:
    """The records and damage of a part in the order of the log, without records not wanted."""
    return _walked(part) if part.queues is None else _by_queues(part, part.queues, wants)


def _walked(part: StorePart) -> Iterator[RecordBlock | Damage]:
    """All records and damage of the part."""
    walk = LogScanner(part.log, part.end, start=part.start, limit=part.end, piece_size=PIECE_SIZE)
    yielded = 0
    while walk.end < part.end:
        begun = walk.end
        for block in walk.blocks():
            yield from (_within(part, damage) for damage in walk.damages[yielded:])
            yielded = len(walk.damages)
            yield block
        yield from (_within(part, damage) for damage in walk.damages[yielded:])
        yielded = len(walk.damages)
        if walk.end == begun:
            yield Damage(begun, part.end, walk.behind or "zeros stand where records should")
            break
    if walk.end > part.end and not walk.damages:
        yield Damage(part.end, walk.end, "the record before reaches into another one")
    yield from part.damages


def _within(part: StorePart, damage: Damage) -> Damage:
    """The damage up to the part's end, since the next part begins with a record."""
    return Damage(damage.start, min(damage.end, part.end), damage.reason)


def _by_queues(part: StorePart, place: QueuePlace, wants: Wants) -> Iterator[RecordBlock | Damage]:
    """The records and damage of the part, without the records of queues that are not wanted.

    If the log differs from what a queue says, all of the part is read from the end of the last
    record on.
    """
    at = part.start
    try:
        for piece in _planned(part, place, wants):
            blocks = (
                _between(part, piece)
                if isinstance(piece, Unclaimed)
                else [_gathered(part.log, piece)]
            )
            for block in blocks:
                yield block
                at = int(block.physical[-1] + block.sizes[-1])
        yield from part.damages
    except QueuesDisagree as reason:
        logging.getLogger(__name__).warning(
            "consume queues differ from the log, reading the log without them: "
            "store=%s start=%d end=%d error=%s",
            place.root,
            at,
            part.end,
            reason,
        )
        yield from _walked(replace(part, start=at))


def _between(part: StorePart, piece: Unclaimed) -> Iterator[RecordBlock]:
    """The records in bytes that no queue claims.

    :raises QueuesDisagree: not all bytes are records, so the piece may begin or end within a
        record.
    """
    for each in _walked(replace(part, start=piece.start, end=piece.end, damages=())):
        if isinstance(each, Damage):
            raise QueuesDisagree(f"not all from {each.start} to {each.end} are records")
        yield each


def _planned(part: StorePart, place: QueuePlace, wants: Wants) -> list[Claimed | Unclaimed]:
    found = to_read(
        Claims.of(find_queues(place.root, place.file_size), part.start, part.end, wants),
        part.start,
        part.end,
    )
    unclaimed = sum(isinstance(each, Unclaimed) for each in found)
    return found if unclaimed <= _UNCLAIMED_MAX else [Unclaimed(part.start, part.end)]


class GatheredBlock(RecordBlock):
    """Records that are adjacent in `data`, but at several positions in the log."""

    def __init__(self, data: bytes, starts: Ints, end: int, physical: Ints) -> None:
        super().__init__(int(physical[0]), data, starts, end)
        self._physical = physical

    @property
    def physical(self) -> Ints:
        return self._physical


def _gathered(log: SegmentFiles, records: Claimed) -> RecordBlock:
    """Read the records that queue entries claim.

    :raises QueuesDisagree: a record is not as its entry says.
    """
    data = b"".join(log.read_spans(records.spans))
    ends = np.cumsum(records.size)
    if len(data) != ends[-1]:
        raise QueuesDisagree(f"bytes at physical offset {records.at[0]} or later are missing")
    block = GatheredBlock(data, ends - records.size, int(ends[-1]), records.at)
    fits = (block.field("size") == records.size) & is_record_magic(block.field("magic"))
    if not fits.all() or block.sound_count(verify=False) < len(block):
        raise QueuesDisagree(f"not all from {records.at[0]} to {records.at[-1]} are records")
    return block
