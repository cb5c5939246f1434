"""Which topics and queues a read selects, and what is said of a selection that is none."""

from __future__ import annotations

import pytest

from roquet.errors import OptionError
from roquet.protocol.records.message import MessageQueue
from roquet.spark._options.selection import Selection

QUEUE_0, QUEUE_1 = MessageQueue("orders", "broker-a", 0), MessageQueue("orders", "broker-a", 1)
STOCK = MessageQueue("stock", "broker-b", 3)


def test_topics_are_selected_by_their_names() -> None:
    wanted = Selection.of({"subscribe": "orders, stock,orders", "tags": "A"})

    assert wanted == Selection(topics=("orders", "stock"))
    assert [wanted.has_topic(name) for name in ("orders", "stock", "order")] == [True, True, False]
    assert wanted.has_queue(QUEUE_1)
    assert wanted.topics_among(["stock", "others"], ()) == ("orders", "stock")
    assert str(wanted) == "orders, stock"


def test_a_pattern_selects_by_whole_names() -> None:
    wanted = Selection.of({"subscribePattern": "or.*|stock"})

    assert wanted == Selection(pattern="or.*|stock")
    names = ("orders", "stock", "stocks", "for")
    assert [wanted.has_topic(name) for name in names] == [True, True, False, False]
    assert [wanted.has_queue(queue) for queue in (QUEUE_0, STOCK)] == [True, True]
    assert wanted.topics_among(["stock", "others", "orders"], ()) == ("orders", "stock")
    assert str(wanted) == "topics that match or.*|stock"


def test_assigned_queues_are_selected_and_no_others_of_their_topics() -> None:
    wanted = Selection.of(
        {"assign": '{"stock":{"broker-b":[3]},"orders":{"broker-a":[0,"0"],"broker-c":[]}}'}
    )

    assert wanted == Selection(topics=("orders", "stock"), queues=frozenset({QUEUE_0, STOCK}))
    assert [wanted.has_queue(queue) for queue in (QUEUE_0, QUEUE_1, STOCK)] == [True, False, True]
    assert wanted.has_topic("orders")
    assert wanted.topics_among([], ()) == ("orders", "stock")
    assert str(wanted) == "orders@broker-a:0, stock@broker-b:3"


@pytest.mark.parametrize(
    ("pattern", "topic", "wanted"),
    [
        (".*", "orders", True),
        ("ord", "orders", False),
        (".*", "%RETRY%g", False),
        ("%RETRY%.*", "%RETRY%g", True),
        (".*", "rmq_sys_x", False),
        ("rmq_sys_.*|orders", "rmq_sys_x", True),
        (".*", "TBW102", False),
        ("TBW102", "TBW102", True),
        (".*", "broker-a", False),
        (".*", "broker-a_REPLY_TOPIC", False),
    ],
)
def test_a_pattern_means_the_topics_of_applications_unless_it_names_others(
    pattern: str, topic: str, wanted: bool
) -> None:
    assert Selection(pattern=pattern).topics_among([topic], ["broker-a"]) == (
        (topic,) if wanted else ()
    )


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({}, "the topics are missing: give exactly one of subscribe, subscribePattern, assign"),
        (
            {"subscribe": "orders", "subscribePattern": "o.*"},
            "subscribe and subscribePattern are given: give exactly one of",
        ),
        (
            {"assign": "{}", "subscribe": "orders"},
            "subscribe and assign are given: give exactly one of",
        ),
        ({"subscribe": "no blanks"}, "topic name 'no blanks'"),
        ({"subscribePattern": "["}, r"subscribePattern: '\[' is no regular expression: unterm"),
        ({"subscribePattern": ""}, "subscribePattern: give a regular expression"),
        ({"assign": "orders"}, "assign: 'orders' is no valid value, give JSON such as"),
        ({"assign": "[]"}, r"assign: \[\] is no JSON object"),
        ({"assign": '{"orders":{"broker-a":{"0":1}}}'}, "is no list of queue ids, give"),
        (
            {"assign": '{"orders":{"broker-a":[-1]}}'},
            "assign: queue -1 of orders@broker-a is no queue id",
        ),
        ({"assign": '{"orders":{"broker-a":[]}}'}, "assign: names no queue"),
        ({"assign": "{}"}, "assign: names no queue"),
        ({"assign": '{"no blanks":{"broker-a":[0]}}'}, "topic name 'no blanks'"),
    ],
)
def test_what_selects_nothing_or_too_much_is_told(given: dict[str, str], words: str) -> None:
    with pytest.raises(OptionError, match=words):
        Selection.of(given)
