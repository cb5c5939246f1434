"""Ranges: what is read of each queue, and that partitions cover it exactly."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from roquet.errors import OptionError
from roquet.protocol.records.message import MessageQueue
from roquet.spark._options.ranges import Bounds, DataLoss, QueueRange, partitions, resolve
from roquet.spark._options.read import ReadOptions
from roquet.spark._options.selection import Selection
from roquet.spark._options.start_end import Edge, Offsets, OffsetSpec

QUEUE_0, QUEUE_1 = MessageQueue("orders", "broker-a", 0), MessageQueue("orders", "broker-a", 1)
BOUNDS = {QUEUE_0: Bounds(10, 30), QUEUE_1: Bounds(0, 5)}


def options(
    start: Mapping[MessageQueue, OffsetSpec] | None = None,
    end: Mapping[MessageQueue, OffsetSpec] | None = None,
) -> ReadOptions:
    return ReadOptions(
        "ns:1",
        Selection(("orders",)),
        Offsets("earliest", start or {}),
        Offsets("latest", end or {}),
    )


def test_without_offsets_each_queue_is_read_as_far_as_it_goes() -> None:
    assert resolve(BOUNDS, options()) == [QueueRange(QUEUE_0, 10, 30), QueueRange(QUEUE_1, 0, 5)]


def test_named_offsets_count_and_empty_ranges_are_left_out() -> None:
    assert resolve(BOUNDS, options({QUEUE_0: 12}, {QUEUE_0: 15, QUEUE_1: 0})) == [
        QueueRange(QUEUE_0, 12, 15)
    ]


@pytest.mark.parametrize(
    ("start", "end"), [(9, "latest"), (31, "latest"), ("earliest", 9), ("earliest", 31)]
)
def test_an_offset_outside_its_queue_is_data_loss(start: Edge | int, end: Edge | int) -> None:
    wanted = options({QUEUE_0: start}, {QUEUE_0: end})
    with pytest.raises(DataLoss, match=r"orders@broker-a:0: wanted offset (9|31), min 10, max 30"):
        resolve(BOUNDS, wanted)
    whole = resolve({QUEUE_0: BOUNDS[QUEUE_0]}, replace(wanted, fail_on_data_loss=False))
    assert all(10 <= each.start < each.end <= 30 for each in whole)


def test_a_queue_that_does_not_exist_is_named_with_those_that_do() -> None:
    stranger = MessageQueue("orders", "broker-b", 0)
    with pytest.raises(
        OptionError, match="no queue orders@broker-b:0; topic orders has orders@broker-a:0, "
    ):
        resolve(BOUNDS, options({stranger: 0}))


def test_an_end_below_its_start_is_refused() -> None:
    with pytest.raises(OptionError, match="12 of orders@broker-a:0 is below startingOffsets, 20"):
        resolve(BOUNDS, options({QUEUE_0: 20}, {QUEUE_0: 12}))


RANGES = st.lists(st.integers(1, 300), max_size=8).map(
    lambda sizes: [
        QueueRange(MessageQueue("orders", "broker-a", index), 7 * index, 7 * index + size)
        for index, size in enumerate(sizes)
    ]
)


@given(RANGES, st.none() | st.integers(1, 40), st.none() | st.integers(1, 100))
def test_partitions_cover_every_range_exactly_once(
    ranges: list[QueueRange], min_partitions: int | None, max_records: int | None
) -> None:
    wanted = replace(
        options(), min_partitions=min_partitions, max_records_per_partition=max_records
    )
    pieces = partitions(ranges, wanted)
    covered = [
        (piece.queue, offset) for piece in pieces for offset in range(piece.start, piece.end)
    ]
    assert covered == [
        (each.queue, offset) for each in ranges for offset in range(each.start, each.end)
    ]
    assert all(piece.size > 0 for piece in pieces)
    assert max_records is None or all(piece.size <= max_records for piece in pieces)
    assert len(pieces) >= min(min_partitions or 0, len(covered))


def test_large_queues_are_split_before_small_ones() -> None:
    pieces = partitions(
        [QueueRange(QUEUE_0, 0, 90), QueueRange(QUEUE_1, 0, 10)],
        replace(options(), min_partitions=4),
    )
    assert [piece.size for piece in pieces] == [30, 30, 30, 10]
