"""What a batch of a stream takes: never too much, never nothing of a small queue, never too
soon.
"""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from roquet.protocol.records.message import MessageQueue
from roquet.spark._read.batch_limits import TriggerDelay, share_bytes, share_rows

QUEUES = [MessageQueue("orders", "broker-a", queue_id) for queue_id in range(6)]
BACKLOGS = st.dictionaries(st.sampled_from(QUEUES), st.integers(0, 10**7))


@given(BACKLOGS, st.integers(1, 10**7))
def test_a_limit_is_used_up_and_kept_and_no_queue_starves(
    backlog: Mapping[MessageQueue, int], most: int
) -> None:
    given = share_rows(backlog, most)
    waiting = {queue for queue, count in backlog.items() if count}
    assert given.keys() == waiting
    assert all(1 <= count <= backlog[queue] for queue, count in given.items())
    assert sum(given.values()) == min(sum(backlog.values()), max(most, len(waiting)))


def test_larger_queues_get_more() -> None:
    assert list(share_rows(dict(zip(QUEUES, (900, 90, 10), strict=False)), 100).values()) == [
        88,
        10,
        2,
    ]


def test_a_small_queue_is_read_beside_large_ones_however_small_the_limit() -> None:
    assert share_rows({QUEUES[0]: 10**6, QUEUES[1]: 10**6, QUEUES[2]: 1}, 2)[QUEUES[2]] == 1


@pytest.mark.parametrize(
    ("waiting", "at_ms", "due"),
    [(9, 1000, False), (10, 1000, True), (1, 1999, False), (1, 2000, True), (0, 2000, True)],
)
def test_a_batch_waits_for_enough_messages_but_not_for_ever(
    waiting: int, at_ms: int, due: bool
) -> None:
    delay = TriggerDelay(10, 1000)
    assert not delay.is_due(9, 1000)
    assert delay.is_due(waiting, at_ms) == due


def test_the_wait_counts_from_the_batch_before() -> None:
    delay = TriggerDelay(10, 1000)
    assert delay.is_due(10, 500)
    assert not delay.is_due(1, 1499)
    assert delay.is_due(1, 1500)
    assert not delay.is_due(1, 2499)


def test_without_a_least_number_every_batch_is_due() -> None:
    assert TriggerDelay(None, 1000).is_due(0, 0)


@given(
    st.lists(st.tuples(st.integers(0, 1000), st.integers(1, 5000)), max_size=8),
    st.integers(1, 100_000),
)
def test_a_batch_has_so_many_bytes_or_one_message_of_each_queue(
    waiting: list[tuple[int, int]], most: int
) -> None:
    queues = [MessageQueue("orders", "broker-a", number) for number in range(len(waiting))]
    counts = {queue: count for queue, (count, _) in zip(queues, waiting, strict=True) if count}
    sizes = {queue: size for queue, (_, size) in zip(queues, waiting, strict=True)}

    taken = share_bytes(counts, sizes, most)

    assert taken.keys() == counts.keys(), "no queue is left behind"
    assert all(1 <= taken[queue] <= counts[queue] for queue in counts)
    beyond_one = sum((taken[queue] - 1) * sizes[queue] for queue in counts)
    assert beyond_one <= most
    if sum(counts[queue] * sizes[queue] for queue in counts) <= most:
        assert taken == counts
