"""PURE: resolves the queue offsets that a read covers, and splits them into Spark partitions.

Invariant: the partitions of a read cover each queue's range exactly once, and none is empty.

Only a queue's master decides where the queue begins and ends, and whether messages are lost. A
slave may lag, and a slave that was added late lacks old messages. So messages that a slave has can
be read, but messages that it lacks are not known to be lost
(docs/decisions/0030-queue-bounds-come-from-masters.md).
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from heapq import heapify, heapreplace
from itertools import pairwise
from types import MappingProxyType
from typing import TypeAlias

from roquet.errors import OptionError, RoquetError
from roquet.protocol.records.message import MessageQueue
from roquet.spark._options.read import ReadOptions
from roquet.spark._options.start_end import AtTime, Offsets, OffsetSpec


class DataLoss(RoquetError):  # noqa: N818
    """Requested messages do not exist on the master (any more); see the option failOnDataLoss."""


class MasterAway(RoquetError):  # noqa: N818
    """Only a slave answers, and it lacks requested messages that its master may have.

    Nothing is known to be lost. Wait for the master, or promote the slave.
    """


@dataclass(frozen=True)
class Bounds:
    """The queue offsets that a queue has, from `min` to `max` (exclusive).

    `is_certain`: True if the master reported them, False if a slave did.
    """

    min: int
    max: int
    is_certain: bool = True

    def __str__(self) -> str:
        return f"min {self.min}, max {self.max}"


@dataclass(frozen=True)
class QueueRange:
    """Queue offsets of one queue from `start` to `end` (exclusive)."""

    queue: MessageQueue
    start: int
    end: int

    @property
    def size(self) -> int:
        return self.end - self.start

    def __str__(self) -> str:
        return f"{self.queue}[{self.start}, {self.end})"


def none_so_young(queue: MessageQueue, ms: int) -> OptionError:
    """The error for a queue whose messages are all older than the time at which to start (`ms`)."""
    return OptionError(
        f"startingTimestamp: {queue} has no message stored at {ms} or later; "
        "set startingOffsetsByTimestampStrategy=latest to read such queues from their end"
    )


def lost(queue: MessageQueue, wanted: str, bounds: Bounds) -> DataLoss:
    """The error for messages that are lost.

    :param wanted: what was to be read, such as "offset 5".
    :param bounds: what the queue has now.
    """
    return DataLoss(
        f"data loss in queue {queue}: wanted {wanted}, min {bounds.min}, max {bounds.max}. "
        "The messages were deleted or the topic was recreated; "
        "set failOnDataLoss=false to read the remaining messages"
    )


def lose(queue: MessageQueue, wanted: str, bounds: Bounds, *, fail_on_data_loss: bool) -> None:
    """Raise the error of `lost`, or log it.

    :raises DataLoss: `fail_on_data_loss` is True.
    """
    loss = lost(queue, wanted, bounds)
    if fail_on_data_loss:
        raise loss
    logging.getLogger(__name__).warning("%s", loss)


def master_away(queue: MessageQueue, wanted: str, bounds: Bounds) -> MasterAway:
    """The error for messages that a slave lacks while its master does not answer.

    :param wanted: what was to be read, such as "offset 5".
    :param bounds: what the slave has.
    """
    return MasterAway(
        f"{queue}: wanted {wanted}, but only a slave answered, which may lag and has {bounds}. "
        "Nothing is known to be lost: wait for the master; if the master is gone for good, "
        "promote the slave"
    )


def usable_bounds(
    positions: Mapping[MessageQueue, int], bounds: Mapping[MessageQueue, Bounds]
) -> tuple[dict[MessageQueue, Bounds], dict[MessageQueue, MasterAway]]:
    """The bounds that a stream may use, and an error for each queue that must wait for its master.

    A waiting queue keeps its position: its bounds are empty, at that position. A new queue that
    waits has no bounds.

    :param positions: the next offset to read of each queue; new queues are missing.
    :param bounds: what masters or slaves reported.
    """
    known: dict[MessageQueue, Bounds] = {}
    waiting: dict[MessageQueue, MasterAway] = {}
    for queue, held in bounds.items():
        at = positions.get(queue)
        begin = 0 if at is None else at  # the master of a new queue may have earlier messages
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
    """The offset at which a stream continues to read a queue.

    If a queue ends before its position, its topic was recreated, or its master lost messages that
    were read already. The queue is then read from its end: reading from its beginning would, in the
    second case, repeat all of its messages.

    :param position: the next offset to read; None for a new queue, which is read from its
        beginning.
    :param held: the bounds from `usable_bounds`.
    :raises DataLoss: unread messages are lost, and `fail_on_data_loss` is True.
    """
    if position is None:
        return held.min
    if held.min <= position <= held.max:
        return position
    lose(queue, f"offset {position}", held, fail_on_data_loss=fail_on_data_loss)
    return held.min if position < held.min else held.max


def check_certain(queue: MessageQueue, place: str, bounds: Bounds, options: ReadOptions) -> None:
    """Check that a read may use these bounds to resolve `place`; log it if they are a slave's.

    :raises MasterAway: they are a slave's, and the options do not accept a slave's bounds.
    """
    if bounds.is_certain:
        return
    away = master_away(queue, place, bounds)
    if not options.takes_slaves_ends:
        raise MasterAway(f"{away}. readFrom=slave reads what the slave has")
    logging.getLogger(__name__).warning("reading only what the slave has: %s", away)


Times: TypeAlias = Mapping[tuple[MessageQueue, int], int | None]
"""(queue, store time in ms) -> offset of the first message stored then or later, or None."""


def times_wanted(bounds: Iterable[MessageQueue], *places: Offsets) -> set[tuple[MessageQueue, int]]:
    """The keys of the `Times` that `resolve` and `starts` need."""
    wanted = ((queue, offsets.of(queue)) for queue in bounds for offsets in places)
    return {(queue, place.ms) for queue, place in wanted if isinstance(place, AtTime)}


def resolve(
    bounds: Mapping[MessageQueue, Bounds], options: ReadOptions, times: Times = MappingProxyType({})
) -> list[QueueRange]:
    """The range to read of each existing queue; empty ranges are left out.

    :param times: the offsets of all `times_wanted`.
    :raises DataLoss: a requested offset is outside its queue, and failOnDataLoss is true.
    :raises OptionError: the options name a queue that does not exist, or an end before its start.
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
    """The offset at which the read of each queue starts. Raises as `resolve` does."""
    _check_queues_exist("startingOffsets", options.starting_offsets, bounds, options)
    return {
        queue: _number(queue, options.starting_offsets.of(queue), bounds[queue], options, times)
        for queue in sorted(bounds)
    }


def partitions(ranges: Iterable[QueueRange], options: ReadOptions) -> list[QueueRange]:
    """The ranges, split as the options minPartitions and maxRecordsPerPartition demand."""
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
    start = options.starting_offsets.of(queue)
    end = options.ending_offsets.of(queue)
    if isinstance(start, int) and isinstance(end, int) and end < start:
        raise OptionError(f"endingOffsets: {end} of {queue} is below startingOffsets, {start}")
    return QueueRange(queue, first, max(first, _number(queue, end, bounds, options, times)))


def _number(
    queue: MessageQueue, place: OffsetSpec, bounds: Bounds, options: ReadOptions, times: Times
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
    """The number of pieces of each range: `wanted` in total, of sizes as equal as possible."""
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
