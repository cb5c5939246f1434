"""What a run of `archive` adds, by what the archive has and what the queues hold."""

from __future__ import annotations

import pytest

from roquet.protocol.message import MessageQueue
from roquet.spark.pipelines.archive_plan import ends, new_rows
from roquet.spark.ranges import Bounds, DataLoss, QueueRange

A, B = MessageQueue("orders", "broker-a", 0), MessageQueue("orders", "broker-a", 1)


def test_a_queue_goes_on_where_the_archive_ends_and_a_new_one_begins_at_its_first_message() -> None:
    ranges = new_rows({A: 7}, {A: Bounds(5, 20), B: Bounds(3, 9)}, fail_on_data_loss=True)

    assert ranges == [QueueRange(A, 7, 20), QueueRange(B, 3, 9)]
    assert ends(ranges) == {A: 20, B: 9}


def test_a_queue_with_nothing_new_keeps_its_place() -> None:
    assert ends(new_rows({A: 20}, {A: Bounds(5, 20)}, fail_on_data_loss=True)) == {A: 20}


@pytest.mark.parametrize(("at", "bounds"), [(7, Bounds(10, 20)), (21, Bounds(0, 20))])
def test_loss_is_an_error_unless_it_is_allowed(at: int, bounds: Bounds, caplog: pytest.LogCaptureFixture) -> None:
    with pytest.raises(DataLoss, match=rf"orders@broker-a:0: wanted offset {at}, where the archive ends, min"):
        new_rows({A: at}, {A: bounds}, fail_on_data_loss=True)

    assert new_rows({A: at}, {A: bounds}, fail_on_data_loss=False) == [QueueRange(A, bounds.min, bounds.max)]
    assert "data loss in queue orders@broker-a:0" in caplog.text
