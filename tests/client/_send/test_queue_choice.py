"""Which queue the next message goes to."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from roquet.client._send.queue_choice import (
    LatencyFaults,
    RoundRobin,
    pick_of,
    queue_for_sharding_key,
)
from roquet.errors import MessageError
from roquet.protocol.records.message import MessageQueue

QUEUES = [MessageQueue("T", broker, queue_id) for broker in ("a", "b") for queue_id in range(2)]


@given(st.integers(0, 2**31))
def test_queues_take_turns_from_any_start(start: int) -> None:
    turn = RoundRobin(start)
    first = [turn.next(QUEUES) for _ in QUEUES]
    assert sorted(first) == sorted(QUEUES)
    assert [turn.next(QUEUES) for _ in QUEUES] == first


def test_a_broker_that_failed_is_passed_over() -> None:
    turn = RoundRobin(0)
    assert {turn.next(QUEUES, {"a"}).broker_name for _ in range(9)} == {"b"}


def test_when_no_broker_suits_the_plain_next_queue_is_taken() -> None:
    turn = RoundRobin(0)
    assert turn.next(QUEUES, {"a", "b"}) == QUEUES[1]


def test_a_key_has_one_queue_the_same_that_java_picks() -> None:
    queues = [MessageQueue("T", "a", queue_id) for queue_id in range(4)]
    assert queue_for_sharding_key(queues, "TagA").queue_id == 2598919 % 4
    assert (
        queue_for_sharding_key(queues[:3], "polygenelubricants").queue_id == 2
    )  # its hashCode() is -2147483648


@given(st.text(), st.integers(1, 20))
def test_every_key_has_a_queue(key: str, count: int) -> None:
    queues = [MessageQueue("T", "a", queue_id) for queue_id in range(count)]
    assert queue_for_sharding_key(queues, key) in queues


def test_a_slow_broker_is_left_alone_for_a_while() -> None:
    slow = LatencyFaults()
    slow.record_send("a", 600, now_ms=0)
    assert slow.avoided(29_999) == {"a"}
    assert slow.avoided(30_000) == set()


def test_a_failed_send_puts_its_broker_aside_for_ten_minutes() -> None:
    slow = LatencyFaults()
    slow.record_send("a", 1, now_ms=0, has_failed=True)
    assert slow.avoided(599_999) == {"a"}
    assert slow.avoided(600_000) == set()


def test_a_quick_send_clears_the_broker() -> None:
    slow = LatencyFaults()
    slow.record_send("a", 1, now_ms=0, has_failed=True)
    slow.record_send("a", 10, now_ms=1)
    assert slow.avoided(1) == set()


def avoided_brokers(*latencies_ms: tuple[str, float]) -> LatencyFaults:
    """All failed at once, each after its latency."""
    slow = LatencyFaults()
    for name, latency_ms in latencies_ms:
        slow.record_send(name, latency_ms, now_ms=0, has_failed=True)
    return slow


def test_of_brokers_that_are_all_avoided_the_better_half_takes_turns() -> None:
    slow = avoided_brokers(("a", 40), ("b", 3000), ("c", 20), ("d", 30), ("e", 90))
    assert [slow.least_bad("abcde") for _ in range(4)] == ["d", "c", "d", "c"]


@pytest.mark.parametrize("names", ["ab", "a", "abc"])
def test_half_of_a_few_brokers_is_one(names: str) -> None:
    slow = avoided_brokers(("a", 10), ("b", 20), ("c", 30))
    assert {slow.least_bad(names) for _ in range(4)} == {"a"}


def test_of_two_that_were_equally_slow_the_one_that_failed_earlier_is_better() -> None:
    slow = LatencyFaults()
    slow.record_send("a", 10, now_ms=5, has_failed=True)
    slow.record_send("b", 10, now_ms=0, has_failed=True)
    assert slow.least_bad("ab") == "b"


def test_one_that_has_answered_since_is_the_best() -> None:
    slow = avoided_brokers(("a", 10), ("b", 20))
    slow.record_send("b", 10, now_ms=1)
    assert slow.least_bad("ab") == "b"


def test_a_send_goes_where_its_key_or_its_queue_says() -> None:
    by_key = pick_of("T", "order-1")
    assert by_key is not None
    assert by_key(QUEUES) == queue_for_sharding_key(QUEUES, "order-1")

    to_queue = pick_of("T", "order-1", QUEUES[3])
    assert to_queue is not None
    assert to_queue(QUEUES) == QUEUES[3]

    assert pick_of("T") is None


@pytest.mark.parametrize(
    ("queue", "why"),
    [
        (MessageQueue("U", "a", 0), "not one of topic T"),
        (MessageQueue("T", "a", -1), "a queue id is a number from 0"),
        (MessageQueue("T", "a", 2**31), "a queue id is a number from 0"),
    ],
)
def test_a_queue_that_the_topic_cannot_have_is_refused(queue: MessageQueue, why: str) -> None:
    with pytest.raises(MessageError, match=why):
        pick_of("T", queue=queue)


def test_a_function_chooses_the_queue_once_for_all_tries() -> None:
    given: list[Sequence[MessageQueue]] = []

    def last(queues: Sequence[MessageQueue]) -> MessageQueue:
        given.append(queues)
        return queues[-1]

    pick = pick_of("T", queue=last)
    assert pick is not None
    assert pick(QUEUES) == QUEUES[-1]
    assert pick(QUEUES[:1]) == QUEUES[-1]
    assert given == [QUEUES]


@pytest.mark.parametrize("returned", [None, 3, "T@a:0", MessageQueue("T", "c", 0)])
def test_what_a_function_returns_is_one_of_the_queues(returned: Any) -> None:
    pick = pick_of("T", queue=lambda _: returned)
    assert pick is not None
    with pytest.raises(MessageError, match="it must return one of the queues"):
        pick(QUEUES)
