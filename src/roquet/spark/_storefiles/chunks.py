"""One part of a store's log in pieces: sound records, and what is none."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import numpy as np

from roquet.protocol.records.block import RecordBlock
from roquet.protocol.records.columns import Ints
from roquet.protocol.records.record import MAGIC, MAGIC_V2
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
"""Bytes read at once, all of whose records make one batch: whole columns pay, and a core's caches hold much of it."""
_UNCLAIMED_MAX: Final = 64
"""Of a part with more pieces than this of which no queue tells, all is read."""


@dataclass(frozen=True)
class QueuePlace:
    """Where the queues of a store are: its root, and the size of their files in bytes."""

    root: Path
    file_size: int


@dataclass(frozen=True)
class StorePart:
    """The records of one store that begin from physical offset `start` up to, not including, `end`.

    A record begins at `start`, and one ends at `end`, as far as the planner could see. `log` has the files between
    them; `damages` are told of beside those that are met on the way. `queues` say which records need not be read;
    without them all are.
    """

    broker_name: str
    log: SegmentFiles
    start: int
    end: int
    damages: tuple[Damage, ...] = ()
    queues: QueuePlace | None = None


def pieces(part: StorePart, wants: Wants) -> Iterator[RecordBlock | Damage]:
    """What the part holds, or that of it which may be wanted, in the order of the log."""
    return _walked(part) if part.queues is None else _by_queues(part, part.queues, wants)


def _walked(part: StorePart) -> Iterator[RecordBlock | Damage]:
    """All there is from the part's start to its end."""
    walk, told = (
        LogScanner(part.log, part.end, start=part.start, limit=part.end, piece_size=PIECE_SIZE),
        0,
    )
    while walk.end < part.end:
        begun = walk.end
        for block in walk.blocks():
            yield from (_within(part, damage) for damage in walk.damages[told:])
            told = len(walk.damages)
            yield block
        yield from (_within(part, damage) for damage in walk.damages[told:])
        told = len(walk.damages)
        if walk.end == begun:
            yield Damage(begun, part.end, walk.behind or "zeros stand where records should")
            break
    if walk.end > part.end and not walk.damages:
        yield Damage(part.end, walk.end, "the record before reaches into another one")
    yield from part.damages


def _within(part: StorePart, damage: Damage) -> Damage:
    """What of a damage is this part's: the next one begins with a record."""
    return Damage(damage.start, min(damage.end, part.end), damage.reason)


def _by_queues(part: StorePart, place: QueuePlace, wants: Wants) -> Iterator[RecordBlock | Damage]:
    """The same without records that are in queues nobody wants.

    Where the log has something else than a queue says, all of the part from there on is read: the record before it
    ends where one begins.
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
        words = "%s: its queues do not fit its log (%s): physical offsets %d to %d are read without them"
        logging.getLogger(__name__).warning(words, place.root, reason, at, part.end)
        yield from _walked(replace(part, start=at))


def _between(part: StorePart, piece: Unclaimed) -> Iterator[RecordBlock]:
    """:raises QueuesDisagree: not all of it are records, so that it may begin or end within one."""
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
    """Records that are brought together from several places of the log: end to end in `data`, but not there."""

    def __init__(self, data: bytes, starts: Ints, end: int, physical: Ints) -> None:
        super().__init__(int(physical[0]), data, starts, end)
        self._physical = physical

    @property
    def physical(self) -> Ints:
        return self._physical


def _gathered(log: SegmentFiles, records: Claimed) -> RecordBlock:
    """:raises QueuesDisagree: there is one that is not as its entry says."""
    data = b"".join(log.read_spans(records.spans))
    ends = np.cumsum(records.size)
    if len(data) != ends[-1]:
        raise QueuesDisagree(f"bytes from {records.at[0]} on are not there")
    block = GatheredBlock(data, ends - records.size, int(ends[-1]), records.at)
    fits = (block.field(">u4", 0) == records.size) & np.isin(
        block.field(">u4", 4), (MAGIC, MAGIC_V2)
    )
    if not fits.all() or block.sound_count(verify=False) < len(block):
        raise QueuesDisagree(f"not all from {records.at[0]} to {records.at[-1]} are records")
    return block
