"""What waits in the queues of a stream, whatever happened to them since the batch before."""

from __future__ import annotations

import pytest

from roquet.protocol.records.message import MessageQueue
from roquet.spark._options.ranges import Bounds, DataLoss
from roquet.spark._read.backlog import StreamBacklog
from roquet.spark._read.stream_offset import StreamOffset

QUEUE_0, QUEUE_1 = MessageQueue("orders", "broker-a", 0), MessageQueue("orders", "broker-a", 1)
START = StreamOffset({QUEUE_0: 10})


def backlog(start: StreamOffset, fail: bool = True, **held: Bounds) -> StreamBacklog:
    bounds = {
        MessageQueue("orders", "broker-a", int(name[1:])): each for name, each in held.items()
    }
    return StreamBacklog.since(start, bounds, fail_on_data_loss=fail)


def test_a_batch_takes_what_it_may_and_the_next_goes_on_there() -> None:
    waiting = backlog(START, q0=Bounds(0, 30))
    assert waiting.sizes == {QUEUE_0: 20}
    assert waiting.taking({QUEUE_0: 5}) == StreamOffset({QUEUE_0: 15})


def test_nothing_new_leaves_the_offset_as_it_was() -> None:
    start = StreamOffset({QUEUE_0: 10}, since={QUEUE_0: 3})
    assert backlog(start, q0=Bounds(0, 10)).taking({}) is start
    assert backlog(start, q0=Bounds(0, 30)).taking({}) is start


def test_a_new_query_puts_down_where_it_starts_although_nothing_waits() -> None:
    first = StreamOffset({QUEUE_0: 10}, is_first=True)
    assert backlog(first, q0=Bounds(0, 10)).taking({}) == StreamOffset(
        {QUEUE_0: 10}, since={QUEUE_0: 10}
    )


def test_a_new_queue_is_read_from_its_earliest_message() -> None:
    waiting = backlog(START, q0=Bounds(0, 10), q1=Bounds(3, 8))
    assert waiting.sizes == {QUEUE_0: 0, QUEUE_1: 5}
    assert waiting.taking({QUEUE_1: 2}) == StreamOffset(
        {QUEUE_0: 10, QUEUE_1: 5}, since={QUEUE_1: 3}
    )


@pytest.mark.parametrize(
    ("held", "goes_on_at"),
    [(Bounds(12, 30), 12), (Bounds(0, 9), 9), (Bounds(0, 0), 0), (Bounds(11, 11), 11)],
)
def test_messages_gone_before_they_were_read_are_data_loss(held: Bounds, goes_on_at: int) -> None:
    with pytest.raises(DataLoss, match=f"wanted offset 10, min {held.min}, max {held.max}"):
        backlog(START, q0=held)
    allowed = backlog(START, fail=False, q0=held)
    assert allowed.taking({}) == StreamOffset({QUEUE_0: goes_on_at}, since={QUEUE_0: goes_on_at})
    assert allowed.sizes == {QUEUE_0: held.max - goes_on_at}
    assert backlog(allowed.taking(allowed.sizes), q0=held).taking({}) == allowed.taking(
        allowed.sizes
    )


@pytest.mark.parametrize("held", [Bounds(10, 10), Bounds(0, 10), Bounds(10, 20)])
def test_a_queue_whose_messages_were_all_read_before_they_went_is_no_loss(held: Bounds) -> None:
    assert backlog(START, q0=held).firsts == {QUEUE_0: 10}


def test_a_queue_no_longer_wanted_is_left_out() -> None:
    start = StreamOffset({QUEUE_0: 10, QUEUE_1: 4})
    assert backlog(start, q0=Bounds(0, 10)).taking({}) == StreamOffset({QUEUE_0: 10})
