"""What a run of `archive` adds, by what the archive has and what the queues hold."""

from __future__ import annotations

import pytest

from roquet.protocol.records.message import MessageQueue
from roquet.spark._options.ranges import Bounds, DataLoss, QueueRange
from roquet.spark.pipelines.archive.plan import (
    StoredRange,
    batch_of,
    ends,
    new_rows,
    new_stored_rows,
)

A, B = MessageQueue("orders", "broker-a", 0), MessageQueue("orders", "broker-a", 1)


def test_a_queue_goes_on_where_the_archive_ends_and_a_new_one_begins_at_its_first_message() -> None:
    ranges = new_rows({A: 7}, {A: Bounds(5, 20), B: Bounds(3, 9)}, fail_on_data_loss=True)

    assert ranges == [QueueRange(A, 7, 20), QueueRange(B, 3, 9)]
    assert ends(ranges) == {A: 20, B: 9}


def test_a_queue_with_nothing_new_keeps_its_place() -> None:
    assert ends(new_rows({A: 20}, {A: Bounds(5, 20)}, fail_on_data_loss=True)) == {A: 20}


@pytest.mark.parametrize(("at", "bounds"), [(7, Bounds(10, 20)), (21, Bounds(0, 20))])
def test_loss_is_an_error_unless_it_is_allowed(
    at: int, bounds: Bounds, caplog: pytest.LogCaptureFixture
) -> None:
    with pytest.raises(DataLoss, match=rf"orders@broker-a:0: wanted offset {at}, min"):
        new_rows({A: at}, {A: bounds}, fail_on_data_loss=True)

    goes_on_at = min(max(at, bounds.min), bounds.max)
    assert new_rows({A: at}, {A: bounds}, fail_on_data_loss=False) == [
        QueueRange(A, goes_on_at, bounds.max)
    ]
    assert "data loss in queue orders@broker-a:0" in caplog.text


def test_a_store_s_queue_goes_on_where_the_archive_ends_and_an_older_copy_has_nothing() -> None:
    ranges = new_stored_rows(
        {A: 7}, {A: StoredRange(7, 20, 13), B: StoredRange(3, 9, 6)}, may_miss=False
    )

    assert ranges == [QueueRange(A, 7, 20), QueueRange(B, 3, 9)]
    assert new_stored_rows({A: 7}, {}, may_miss=False) == []


@pytest.mark.parametrize("held", [StoredRange(8, 20, 12), StoredRange(7, 20, 12)])
def test_messages_that_a_store_lacks_are_an_error_unless_it_may_lack_some(
    held: StoredRange, caplog: pytest.LogCaptureFixture
) -> None:
    words = "orders@broker-a:0: 1 of the next messages, offsets 7 to 19, are not in the log"
    with pytest.raises(DataLoss, match=words):
        new_stored_rows({A: 7}, {A: held}, may_miss=False)

    assert new_stored_rows({A: 7}, {A: held}, may_miss=True) == [QueueRange(A, 7, 20)]
    assert "queue=orders@broker-a:0 missing=1 first=7 last=19" in caplog.text


def test_an_offset_that_a_store_has_twice_is_always_an_error() -> None:
    with pytest.raises(DataLoss, match="orders@broker-a:0: 14 messages have the offsets 7 to 19"):
        new_stored_rows({A: 7}, {A: StoredRange(7, 20, 14)}, may_miss=True)


def test_a_batch_takes_so_many_messages_of_a_backlog_and_not_beyond_where_it_is_to_end() -> None:
    backlog = [QueueRange(A, 10, 40), QueueRange(B, 0, 10)]

    assert batch_of(backlog, None, None) == backlog
    assert batch_of(backlog, None, 8) == [QueueRange(A, 10, 16), QueueRange(B, 0, 2)]
    assert batch_of(backlog, {A: 20}, None) == [QueueRange(A, 10, 20)]
    assert batch_of(backlog, {A: 10, B: 3}, 100) == [QueueRange(A, 10, 10), QueueRange(B, 0, 3)]
    assert batch_of([QueueRange(B, 5, 10)], {B: 3}, None) == [QueueRange(B, 5, 5)], (
        "a queue is never taken back"
    )
