"""PURE: which part of each queue a read covers, and how it is shared out to Spark's tasks.

Keeps: the partitions of a read cover each queue's range exactly once, and none is empty.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from heapq import heapify, heapreplace
from itertools import pairwise

from roquet.errors import RoquetError
from roquet.protocol.message import MessageQueue
from roquet.spark.option_values import OptionError
from roquet.spark.options import Edge, Offsets, ReadOptions


class DataLoss(RoquetError):  # noqa: N818
    """Messages that were asked for are gone, or were never there; see option failOnDataLoss."""


@dataclass(frozen=True)
class Bounds:
    """What a queue holds: queue offsets from `min` up to, not including, `max`."""

    min: int
    max: int


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


def lost(queue: MessageQueue, wanted: str, bounds: Bounds) -> DataLoss:
    """The error that says what is missing, in the same words wherever it is noticed."""
    return DataLoss(
        f"data loss in queue {queue}: wanted {wanted}, min {bounds.min}, max {bounds.max}. The messages were removed "
        "or the topic was created anew; set failOnDataLoss=false to read what is left"
    )


def resolve(bounds: Mapping[MessageQueue, Bounds], options: ReadOptions) -> list[QueueRange]:
    """The range to read of each queue that exists; empty ones are left out.

    :raises DataLoss: an offset asked for lies outside its queue, and that is not allowed.
    :raises OptionError: the offsets name a queue that does not exist, or end before they start.
    """
    for name, offsets in (
        ("startingOffsets", options.starting_offsets),
        ("endingOffsets", options.ending_offsets),
    ):
        _check_queues_exist(name, offsets, bounds)
    ranges = (_resolve_queue(queue, bounds[queue], options) for queue in sorted(bounds))
    return [each for each in ranges if each.size > 0]


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
        pieces = [piece for each, count in zip(pieces, counts, strict=True) for piece in _split(each, count)]
    return pieces


def _check_queues_exist(name: str, offsets: Offsets, bounds: Mapping[MessageQueue, Bounds]) -> None:
    for queue in offsets.named:
        if queue not in bounds:
            known = ", ".join(str(each) for each in sorted(bounds) if each.topic == queue.topic) or "none"
            raise OptionError(f"{name}: there is no queue {queue}; topic {queue.topic} has {known}")


def _resolve_queue(queue: MessageQueue, bounds: Bounds, options: ReadOptions) -> QueueRange:
    start, end = options.starting_offsets.of(queue), options.ending_offsets.of(queue)
    if isinstance(start, int) and isinstance(end, int) and end < start:
        raise OptionError(f"endingOffsets: {end} of {queue} is below startingOffsets, {start}")
    if options.fail_on_data_loss:
        for wanted in (start, end):
            if isinstance(wanted, int) and not bounds.min <= wanted <= bounds.max:
                raise lost(queue, f"offset {wanted}", bounds)
    first = _number(start, bounds)
    return QueueRange(queue, first, max(first, _number(end, bounds)))


def _number(place: Edge | int, bounds: Bounds) -> int:
    if isinstance(place, int):
        return min(max(place, bounds.min), bounds.max)
    return bounds.min if place == "earliest" else bounds.max


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
