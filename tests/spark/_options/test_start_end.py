"""Where a read starts and ends: by which option, and what is said of a place that is none."""

from __future__ import annotations

import pytest

from roquet.errors import OptionError
from roquet.protocol.records.message import MessageQueue
from roquet.spark._options.selection import Selection
from roquet.spark._options.start_end import AtTime, Edge, Offsets, ending, starting

ORDERS = Selection(("orders",))
QUEUE_0, QUEUE_1 = MessageQueue("orders", "broker-a", 0), MessageQueue("orders", "broker-a", 1)
ASSIGNED = Selection(("orders",), queues=frozenset({QUEUE_0}))


def of_batch(values: dict[str, str], selection: Selection = ORDERS) -> tuple[Offsets, Offsets]:
    first = starting(values, selection, default="earliest", wrong="latest")
    return first, ending(values, selection)


def named(offsets: str) -> str:
    return f'{{"orders":{{"broker-a":{offsets}}}}}'


@pytest.mark.parametrize("edge", ["earliest", "latest"])
def test_without_an_option_a_read_starts_at_the_default_and_ends_at_the_latest(edge: Edge) -> None:
    assert starting({}, ORDERS, default=edge, wrong=None) == Offsets(edge, {})
    assert ending({}, ORDERS) == Offsets("latest", {})


def test_an_edge_is_given_in_any_case() -> None:
    first, last = of_batch({"startingOffsets": "Earliest", "endingOffsets": "LATEST"})

    assert (first, last) == (Offsets("earliest", {}), Offsets("latest", {}))


def test_offsets_are_given_by_queue_and_other_queues_have_the_default() -> None:
    first, last = of_batch(
        {"startingOffsets": named('{"0":23,"1":-2}'), "endingOffsets": named('{"0":0,"1":-1}')}
    )

    assert [first.of(queue) for queue in (QUEUE_0, QUEUE_1)] == [23, "earliest"]
    assert [last.of(queue) for queue in (QUEUE_0, QUEUE_1)] == [0, "latest"]
    other = MessageQueue("orders", "broker-b", 0)
    assert (first.of(other), last.of(other)) == ("earliest", "latest")


def test_one_time_for_all_comes_before_times_by_queue_and_these_before_offsets() -> None:
    offsets = {"startingOffsets": "latest", "endingOffsets": named('{"0":5}')}
    by_queue = offsets | {
        "startingOffsetsByTimestamp": named('{"0":7}'),
        "endingOffsetsByTimestamp": named('{"1":"8"}'),
    }
    for_all = by_queue | {"startingTimestamp": "9", "endingTimestamp": "10"}

    first, last = of_batch(by_queue)
    assert first == Offsets("earliest", {QUEUE_0: AtTime(7, or_latest=False)})
    assert last == Offsets("latest", {QUEUE_1: AtTime(8)})
    first, last = of_batch(for_all)
    assert first == Offsets(AtTime(9, or_latest=False), {})
    assert last == Offsets(AtTime(10), {})


@pytest.mark.parametrize(
    ("given", "default", "or_latest"),
    [
        ({}, "error", False),
        ({}, "latest", True),
        ({"startingOffsetsByTimestampStrategy": "Error"}, "latest", False),
        ({"startingOffsetsByTimestampStrategy": "latest"}, "error", True),
    ],
)
def test_the_strategy_says_what_a_start_after_all_messages_is(
    given: dict[str, str], default: str, or_latest: bool
) -> None:
    values = {"startingTimestamp": "9"} | given

    first = starting(values, ORDERS, default="latest", wrong=None, strategy=default)

    assert first.default == AtTime(9, or_latest)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (
            {"startingOffsets": "Latest"},
            "startingOffsets: 'latest' is not possible for a batch read",
        ),
        (
            {"endingOffsets": "earliest"},
            "endingOffsets: 'earliest' is not possible for a batch read",
        ),
        ({"startingOffsets": "soon"}, "'soon' is no valid value, give"),
        ({"startingOffsets": "[1]"}, r"\[1\] is no JSON object"),
        ({"startingOffsets": named("3")}, "3 is no JSON object"),
        (
            {"startingOffsets": '{"order":{"broker-a":{"0":3}}}'},
            "topic 'order' is not subscribed: orders",
        ),
        ({"startingOffsets": named('{"x":3}')}, "queue 'x' of orders@broker-a"),
        ({"startingOffsets": named('{"0":-3}')}, "-3 of orders@broker-a:0 is no offset"),
        ({"endingOffsets": named('{"0":true}')}, "true of orders@broker-a:0 is no offset"),
        ({"endingOffsets": named('{"0":"5"}')}, '"5" of orders@broker-a:0 is no offset'),
        ({"startingOffsets": named('{"0":-1}')}, "-1 .latest. of orders@broker-a:0 is not poss"),
        ({"endingOffsets": named('{"0":-2}')}, "-2 .earliest. of orders@broker-a:0 is not poss"),
        (
            {"startingTimestamp": "yesterday"},
            "startingTimestamp: 'yesterday' is no time in milliseconds since 1970",
        ),
        ({"endingTimestamp": "-1"}, "endingTimestamp: '-1' is no time"),
        ({"startingOffsetsByTimestamp": "5"}, "startingOffsetsByTimestamp: 5 is no JSON object"),
        ({"endingOffsetsByTimestamp": named('{"0":true}')}, "True of orders@broker-a:0 is no time"),
        ({"startingOffsetsByTimestampStrategy": "any"}, "'any' is none of error, latest"),
    ],
)
def test_a_place_that_is_none_is_explained(given: dict[str, str], words: str) -> None:
    with pytest.raises(OptionError, match=words):
        of_batch(given)


@pytest.mark.parametrize("name", ["startingOffsets", "endingOffsets", "startingOffsetsByTimestamp"])
def test_only_selected_queues_have_a_place(name: str) -> None:
    with pytest.raises(OptionError, match="queue orders@broker-a:1 is not assigned: orders@brok"):
        of_batch({name: named('{"1":1}')}, ASSIGNED)
    with pytest.raises(OptionError, match=r"topic 'orders' is not subscribed: topics that match x"):
        of_batch({name: named('{"1":1}')}, Selection(pattern="x"))


def test_an_option_that_has_no_effect_is_not_looked_at() -> None:
    values = {"startingTimestamp": "9", "startingOffsetsByTimestamp": "x", "startingOffsets": "x"}

    first, _ = of_batch(values)

    assert first.default == AtTime(9, or_latest=False)


def test_a_stream_may_start_at_either_edge() -> None:
    values = {"startingOffsets": named('{"0":-1,"1":-2}')}

    first = starting(values, ORDERS, default="latest", wrong=None)

    assert [first.of(queue) for queue in (QUEUE_0, QUEUE_1)] == ["latest", "earliest"]
