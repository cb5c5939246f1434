"""PURE: which part of each queue a read covers, and how it is shared out to Spark's tasks.

Keeps: the partitions of a read cover each queue's range exactly once, and none is empty.
       Where a queue begins and ends, and that messages are gone, only its master says. A slave lags, and one that came
       late lacks what is old: what it holds can be read, what it does not hold proves nothing (decision 0030).
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from heapq import heapify, heapreplace
from itertools import pairwise
from types import MappingProxyType
from typing import TypeAlias

from roquet.errors import RoquetError
from roquet.protocol.records.message import MessageQueue
from roquet.spark._options.read import ReadOptions
from roquet.spark._options.start_end import AtTime, Offsets, Place
from roquet.spark._options.values import OptionError


class DataLoss(RoquetError):  # noqa: N818
    """Messages that were asked for are gone, or were never there; see option failOnDataLoss."""


class MasterAway(RoquetError):  # noqa: N818
    """A slave lacks what was asked for, and its master, which may have it, does not answer: nothing is known to be
    lost. Wait for the master, or promote the slave.
    """


@dataclass(frozen=True)
class Bounds:
    """What a queue holds: queue offsets from `min` up to, not including, `max`.

    `is_certain`: its master says so; else a slave does.
    """

    min: int
    max: int
    is_certain: bool = True

    def __str__(self) -> str:
        return f"min {self.min}, max {self.max}"


@dataclass(frozen=True)
class QueueRange:
    """Queue offsets from `start` up to, not including, `end`."""

    queue: MessageQueue
    start: int
    end: int

    @property
    def size(self) -> int:
        return self.end - self.start

    def __str__(self) -> str:
        return f"{self.queue}[{self.start}, {self.end})"


def none_so_young(queue: MessageQueue, ms: int) -> OptionError:
    """The error that a queue has no message from where it should be read on."""
    return OptionError(
        f"startingTimestamp: {queue} has no message stored at {ms} or later; with "
        "startingOffsetsByTimestampStrategy=latest such queues are read from their end"
    )


def lost(queue: MessageQueue, wanted: str, bounds: Bounds) -> DataLoss:
    """The error that says what is missing, in the same words wherever it is noticed."""
    return DataLoss(
        f"data loss in queue {queue}: wanted {wanted}, min {bounds.min}, max {bounds.max}. The messages were removed "
        "or the topic was created anew; set failOnDataLoss=false to read what is left"
    )


def lose(queue: MessageQueue, wanted: str, bounds: Bounds, *, fail_on_data_loss: bool) -> None:
    """Raise that error, or log it where loss is allowed."""
    loss = lost(queue, wanted, bounds)
    if fail_on_data_loss:
        raise loss
    logging.getLogger(__name__).warning("%s", loss)


def master_away(queue: MessageQueue, wanted: str, bounds: Bounds) -> MasterAway:
    """The error that only a slave was there to ask; `bounds` are the slave's."""
    return MasterAway(
        f"{queue}: wanted {wanted}, but only a slave answered, which may lag and has {bounds}. Nothing is known to be "
        "lost: wait for its master; if that is gone for good, promote the slave"
    )


def settled(
    positions: Mapping[MessageQueue, int], bounds: Mapping[MessageQueue, Bounds]
) -> tuple[dict[MessageQueue, Bounds], dict[MessageQueue, MasterAway]]:
    """What queues hold that were read up to `positions`, and those of which only their master can tell.

    These stay where they are: they seem to hold nothing more, and new ones are left out.
    """
    known: dict[MessageQueue, Bounds] = {}
    waiting: dict[MessageQueue, MasterAway] = {}
    for queue, held in bounds.items():
        at = positions.get(queue)
        begin = 0 if at is None else at  # a new queue's master may begin earlier than its slave
        if held.is_certain or held.min <= begin <= held.max:
            known[queue] = held
            continue
        waiting[queue] = master_away(queue, "earliest" if at is None else f"offset {at}", held)
        if at is not None:
            known[queue] = Bounds(at, at)
    return known, waiting


def read_on(
    queue: MessageQueue, position: int | None, held: Bounds, *, fail_on_data_loss: bool
) -> int:
    """Where a queue is read on that was read up to `position`; None: it is new, and read from its earliest message.

    A queue that ends before its position was made anew, or its master lost what was read already. It is read on at its
    end then: from its beginning would repeat, in the second case, all that it holds.

    :param held: as from `settled`.
    :raises DataLoss: messages are gone that were not read, and that is not allowed.
    """
    if position is None:
        return held.min
    if held.min <= position <= held.max:
        return position
    lose(queue, f"offset {position}", held, fail_on_data_loss=fail_on_data_loss)
    return held.min if position < held.min else held.max


def check_certain(queue: MessageQueue, place: str, bounds: Bounds, options: ReadOptions) -> None:
    """Before a place is taken that a slave's bounds tell.

    :raises MasterAway: only a slave was there to ask, and its word is not to be taken.
    """
    if bounds.is_certain:
        return
    away = master_away(queue, place, bounds)
    if not options.takes_slaves_ends:
        raise MasterAway(f"{away}. readFrom=slave reads what the slave has")
    logging.getLogger(__name__).warning("reading what the slave has: %s", away)


Times: TypeAlias = Mapping[tuple[MessageQueue, int], int | None]
"""Queue and time in milliseconds -> the offset of its first message stored then or later; None where there is none."""


def times_wanted(bounds: Iterable[MessageQueue], *places: Offsets) -> set[tuple[MessageQueue, int]]:
    """What has to be looked up before `resolve` or `starts`."""
    wanted = ((queue, offsets.of(queue)) for queue in bounds for offsets in places)
    return {(queue, place.ms) for queue, place in wanted if isinstance(place, AtTime)}


def resolve(
    bounds: Mapping[MessageQueue, Bounds], options: ReadOptions, times: Times = MappingProxyType({})
) -> list[QueueRange]:
    """The range to read of each queue that exists; empty ones are left out.

    :raises DataLoss: an offset asked for lies outside its queue, and that is not allowed.
    :raises OptionError: the offsets name a queue that does not exist, or end before they start.
    """
    first = starts(bounds, options, times)
    _check_queues_exist("endingOffsets", options.ending_offsets, bounds, options)
    ranges = (
        _resolve_queue(queue, start, bounds[queue], options, times)
        for queue, start in first.items()
    )
    return [each for each in ranges if each.size > 0]


def starts(
    bounds: Mapping[MessageQueue, Bounds], options: ReadOptions, times: Times = MappingProxyType({})
) -> dict[MessageQueue, int]:
    """The offset at which each queue is read first; raises as `resolve`."""
    _check_queues_exist("startingOffsets", options.starting_offsets, bounds, options)
    return {
        queue: _number(queue, options.starting_offsets.of(queue), bounds[queue], options, times)
        for queue in sorted(bounds)
    }


def partitions(ranges: Iterable[QueueRange], options: ReadOptions) -> list[QueueRange]:
    """The ranges, split until there are `min_partitions` and none holds over `max_records_per_partition`."""
    pieces = list(ranges)
    if options.max_records_per_partition is not None:
        most = options.max_records_per_partition
        pieces = [piece for each in pieces for piece in _split(each, -(-each.size // most))]
    total = sum(each.size for each in pieces)
    wanted = min(options.min_partitions or 0, total)
    if len(pieces) < wanted:
        counts = _shares([each.size for each in pieces], wanted)
        pieces = [
            piece
            for each, count in zip(pieces, counts, strict=True)
            for piece in _split(each, count)
        ]
    return pieces


def _check_queues_exist(
    name: str, offsets: Offsets, bounds: Mapping[MessageQueue, Bounds], options: ReadOptions
) -> None:
    for queue in offsets.named:
        if queue in bounds:
            continue
        known = (
            ", ".join(str(each) for each in sorted(bounds) if each.topic == queue.topic) or "none"
        )
        words = f"{name}: there is no queue {queue}; topic {queue.topic} has {known}"
        if options.fail_on_data_loss:
            raise OptionError(words)
        logging.getLogger(__name__).warning("%s", words)


def _resolve_queue(
    queue: MessageQueue, first: int, bounds: Bounds, options: ReadOptions, times: Times
) -> QueueRange:
    start, end = options.starting_offsets.of(queue), options.ending_offsets.of(queue)
    if isinstance(start, int) and isinstance(end, int) and end < start:
        raise OptionError(f"endingOffsets: {end} of {queue} is below startingOffsets, {start}")
    return QueueRange(queue, first, max(first, _number(queue, end, bounds, options, times)))


def _number(
    queue: MessageQueue, place: Place, bounds: Bounds, options: ReadOptions, times: Times
) -> int:
    match place:
        case "earliest":
            if bounds.min > 0:
                check_certain(queue, place, bounds, options)
            return bounds.min
        case "latest":
            check_certain(queue, place, bounds, options)
            return bounds.max
        case AtTime(ms, or_latest):
            found = times[queue, ms]
            if found is None or found == bounds.min > 0:
                check_certain(queue, f"the first message stored at {ms} or later", bounds, options)
            if found is None and not or_latest:
                raise none_so_young(queue, ms)
            return bounds.max if found is None else found
        case _:
            if not bounds.min <= place <= bounds.max:
                if not bounds.is_certain:
                    raise master_away(queue, f"offset {place}", bounds)
                lose(queue, f"offset {place}", bounds, fail_on_data_loss=options.fail_on_data_loss)
            return min(max(place, bounds.min), bounds.max)


def _shares(sizes: list[int], wanted: int) -> list[int]:
    """How many pieces each range is cut into: `wanted` in all, each as large as the others where that can be."""
    counts = [1] * len(sizes)
    largest_first: list[tuple[float, int]] = [(-size, index) for index, size in enumerate(sizes)]
    heapify(largest_first)
    for _ in range(wanted - len(sizes)):
        _, index = largest_first[0]
        counts[index] += 1
        heapreplace(largest_first, (-sizes[index] / counts[index], index))
    return counts


def _split(whole: QueueRange, count: int) -> list[QueueRange]:
    edges = [whole.start + whole.size * index // count for index in range(count + 1)]
    return [QueueRange(whole.queue, start, end) for start, end in pairwise(edges)]
