"""Totals of what consumers got and sent back.

See docs/broker/statistics.md#counts-by-topic-and-group.
"""

from __future__ import annotations

from collections import Counter
from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from roquet.broker.metrics.stats import Total
from roquet.broker.metrics.traffic import Traffic
from roquet.common.steps import finished

ITEMS: Final = {"GROUP_GET_NUMS", "GROUP_GET_SIZE", "GROUP_GET_LATENCY", "SNDBCK_PUT_NUMS"}
BY_QUEUE: Final = {"QUEUE_GET_NUMS", "QUEUE_GET_SIZE"}


class Clock:
    """A steady clock that a test moves."""

    def __init__(self) -> None:
        self.ms = 0.0

    def now_ms(self) -> float:
        return self.ms


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def traffic(clock: Clock) -> Traffic:
    return Traffic(clock.now_ms)


def totals(traffic: Traffic, item: str, *, is_detailed: bool = True) -> dict[str, Total]:
    return dict(finished(traffic.items(is_detailed=is_detailed)[item]()))


def test_nothing_has_totals_before_anything_was_counted(traffic: Traffic) -> None:
    assert {item: totals(traffic, item) for item in ITEMS | BY_QUEUE} == {
        item: {} for item in ITEMS | BY_QUEUE
    }
    assert (traffic.found, traffic.missed, traffic.messages, traffic.left_out) == (0, 0, 0, 0)


def test_a_pull_counts_once_and_with_each_of_its_messages(traffic: Traffic) -> None:
    traffic.given("T", "g", 0, 5, 500, 0.0)
    traffic.given("T", "g", 1, 2, 30, 0.0)
    traffic.given("T", "h", 0, 1, 7, 0.0)
    traffic.found_nothing()
    assert (traffic.found, traffic.missed, traffic.messages) == (3, 1, 8)
    assert totals(traffic, "GROUP_GET_NUMS") == {"T@g": Total(7, 2), "T@h": Total(1, 1)}
    assert totals(traffic, "GROUP_GET_SIZE") == {"T@g": Total(530, 2), "T@h": Total(7, 1)}


def test_a_pull_takes_from_its_beginning_to_when_it_is_counted(
    traffic: Traffic, clock: Clock
) -> None:
    clock.ms = 100.0
    for queue_id, began_ms in ((0, 97.5), (0, 99.25), (3, 100.0)):
        traffic.given("T", "g", queue_id, 1, 1, began_ms)
    assert totals(traffic, "GROUP_GET_LATENCY") == {"0@T@g": Total(3, 2), "3@T@g": Total(0, 1)}
    assert totals(traffic, "GROUP_GET_LATENCY", is_detailed=False) == {"T@g": Total(3, 3)}


def test_delivered_messages_count_for_their_delay_level_and_not_as_pulled(
    traffic: Traffic,
) -> None:
    traffic.delivered(2, 5, 500)
    traffic.delivered(2, 1, 100)
    traffic.delivered(7, 4, 40)
    group = "SCHEDULE_TOPIC_XXXX@SCHEDULE_CONSUMER"
    assert totals(traffic, "GROUP_GET_NUMS") == {group: Total(10, 3)}
    assert totals(traffic, "QUEUE_GET_NUMS") == {
        "SCHEDULE_TOPIC_XXXX@2@SCHEDULE_CONSUMER": Total(6, 2),
        "SCHEDULE_TOPIC_XXXX@7@SCHEDULE_CONSUMER": Total(4, 1),
    }
    assert totals(traffic, "QUEUE_GET_SIZE") == {
        "SCHEDULE_TOPIC_XXXX@2@SCHEDULE_CONSUMER": Total(600, 2),
        "SCHEDULE_TOPIC_XXXX@7@SCHEDULE_CONSUMER": Total(40, 1),
    }
    assert totals(traffic, "GROUP_GET_LATENCY") == {}
    assert (traffic.found, traffic.messages) == (0, 0)


def test_messages_that_come_back_are_counted_one_by_one(traffic: Traffic) -> None:
    for group in "ggh":
        traffic.sent_back("T", group)
    assert totals(traffic, "SNDBCK_PUT_NUMS") == {"T@g": Total(2, 2), "T@h": Total(1, 1)}


def test_without_detail_there_are_no_items_by_queue(traffic: Traffic) -> None:
    assert set(traffic.items(is_detailed=False)) == ITEMS
    assert set(traffic.items(is_detailed=True)) == ITEMS | BY_QUEUE


def test_pairs_beyond_the_limit_are_left_out_of_totals_by_group_only() -> None:
    traffic = Traffic(lambda: 0.0, count_max=2)
    for queue_id in (0, 1, 2, 2, 0):
        traffic.given("T", "g", queue_id, 1, 10, 0.0)
    assert totals(traffic, "GROUP_GET_NUMS") == {"T@g": Total(3, 3)}
    assert (traffic.found, traffic.messages, traffic.left_out) == (5, 5, 2)
    for group in "ghig":
        traffic.sent_back("T", group)
    assert totals(traffic, "SNDBCK_PUT_NUMS") == {"T@g": Total(2, 2), "T@h": Total(1, 1)}
    assert traffic.left_out == 3


def test_a_pair_that_was_dropped_makes_place_for_another() -> None:
    traffic = Traffic(lambda: 0.0, count_max=1)
    traffic.given("T", "g", 0, 1, 10, 0.0)
    traffic.sent_back("T", "g")
    finished(traffic.keep({"U"}, {"g"}))
    traffic.given("U", "g", 0, 1, 10, 0.0)
    traffic.sent_back("U", "g")
    assert totals(traffic, "GROUP_GET_NUMS") == {"U@g": Total(1, 1)}
    assert totals(traffic, "SNDBCK_PUT_NUMS") == {"U@g": Total(1, 1)}
    assert traffic.left_out == 0


def test_only_pairs_of_a_topic_and_a_group_that_both_exist_are_kept(traffic: Traffic) -> None:
    for topic in "TU":
        for group in "gh":
            traffic.given(topic, group, 0, 1, 1, 0.0)
            traffic.sent_back(topic, group)
    traffic.delivered(3, 1, 1)
    finished(traffic.keep({"T"}, {"g"}))
    assert set(totals(traffic, "GROUP_GET_NUMS")) == {
        "T@g",
        "SCHEDULE_TOPIC_XXXX@SCHEDULE_CONSUMER",
    }
    assert set(totals(traffic, "SNDBCK_PUT_NUMS")) == {"T@g"}


def test_two_passes_that_drop_the_same_pairs_may_run_side_by_side(traffic: Traffic) -> None:
    """The windows of statistics are sampled by tasks of their own, whose steps alternate."""
    for queue_id in range(1000):
        traffic.given("gone", "g", queue_id, 1, 1, 0.0)
    first = traffic.keep((), ())
    second = traffic.keep((), ())
    next(first)
    next(second)
    finished(first)
    finished(second)
    assert totals(traffic, "GROUP_GET_NUMS") == {}


def test_pulls_may_be_counted_between_the_steps_of_a_pass(traffic: Traffic) -> None:
    for queue_id in range(1000):
        traffic.given("T", "g", queue_id, 1, 1, 0.0)
    passes = [traffic.keep({"T"}, {"g"}), traffic.items(is_detailed=True)["GROUP_GET_NUMS"]()]
    for each in passes:
        next(each)
    traffic.given("T", "g", 5000, 1, 1, 0.0)
    kept, summed = (finished(each) for each in passes)
    assert kept is None
    assert summed == {"T@g": Total(1000, 1000)}
    assert totals(traffic, "GROUP_GET_NUMS") == {"T@g": Total(1001, 1001)}


PULLS: Final = st.lists(
    st.tuples(
        st.sampled_from("TU"),
        st.sampled_from("gh"),
        st.integers(0, 2),
        st.integers(1, 32),
        st.integers(0, 1 << 20),
    )
)


@given(PULLS)
def test_totals_by_group_are_sums_of_the_pulls(pulls: list[tuple[str, str, int, int, int]]) -> None:
    traffic = Traffic(lambda: 0.0)
    times: Counter[str] = Counter()
    messages: Counter[str] = Counter()
    sizes: Counter[str] = Counter()
    for topic, group, queue_id, count, size in pulls:
        traffic.given(topic, group, queue_id, count, size, 0.0)
        key = f"{topic}@{group}"
        times[key] += 1
        messages[key] += count
        sizes[key] += size
    assert totals(traffic, "GROUP_GET_NUMS") == {
        key: Total(messages[key], times[key]) for key in times
    }
    assert totals(traffic, "GROUP_GET_SIZE") == {
        key: Total(sizes[key], times[key]) for key in times
    }
    assert traffic.messages == messages.total()
