"""Queues are shared out as Apache's clients do it, the same in every member."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from roquet.client._consume.allocation import Strategy, allocate, average, average_by_circle
from roquet.protocol.records.message import MessageQueue

MEMBERS = ["a@1", "b@2", "c@3"]


def queues(count: int) -> list[MessageQueue]:
    return [MessageQueue("T", "broker-a", queue_id) for queue_id in range(count)]


def share(strategy: Strategy, me: str, count: int = 8, members: list[str] = MEMBERS) -> str:
    return "".join(
        str(queue.queue_id) for queue in sorted(allocate(strategy, queues(count), members, me))
    )


def test_average_gives_neighbours_and_the_first_get_one_more() -> None:
    assert [share(average, me) for me in MEMBERS] == ["012", "345", "67"]


def test_average_by_circle_deals_like_cards() -> None:
    assert [share(average_by_circle, me) for me in MEMBERS] == ["036", "147", "25"]


def test_members_beyond_the_number_of_queues_get_nothing() -> None:
    assert [share(average, me, count=2) for me in MEMBERS] == ["0", "1", ""]


def test_who_is_not_listed_gets_nothing() -> None:
    assert share(average, "d@4") == ""
    assert share(average, "d@4", members=[]) == ""


def test_a_member_listed_twice_counts_once() -> None:
    assert share(average, "b@2", members=["a@1", "b@2", "a@1", "c@3"]) == "345"


def test_members_are_ordered_by_utf_16_units_as_in_java() -> None:
    astral, high = "\U0001f600@1", "￼@1"
    assert share(average, astral, count=2, members=[high, astral]) == "0"


def test_queues_are_ordered_by_broker_name_then_number() -> None:
    mixed = [MessageQueue("T", broker, queue_id) for broker in ("b", "a") for queue_id in (10, 9)]
    assert sorted(allocate(average, mixed, ["x", "y"], "x")) == [
        MessageQueue("T", "a", 9),
        MessageQueue("T", "a", 10),
    ]


@pytest.mark.parametrize("strategy", [average, average_by_circle])
@given(
    count=st.integers(0, 40),
    members=st.lists(st.text(max_size=4), min_size=1, unique=True),
    chance=st.randoms(),
)
def test_every_queue_has_exactly_one_owner_and_shares_differ_by_one_at_most(
    strategy: Strategy, count: int, members: list[str], chance: object
) -> None:
    shares = [allocate(strategy, queues(count), members, me) for me in members]
    owners = Counter(queue for share in shares for queue in share)
    assert owners == Counter(queues(count))
    assert max(map(len, shares)) - min(map(len, shares)) <= 1
