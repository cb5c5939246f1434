"""Rows of a sink: their columns, their topics and queues, and which row is wrong."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from roquet.client._send.queue_choice import queue_for_sharding_key
from roquet.protocol.records.message import MessageQueue
from roquet.spark._write.rows import ANY_QUEUE, ROW_ID, RowError, sink_rows, targets
from tests.spark._write.given_rows import rows

QUEUES = [MessageQueue("T", broker, number) for broker in ("b", "a") for number in range(3)]
KEYS = st.none() | st.sampled_from(["", "a", "b", "é"])


def targets_by_topic(*given: dict[str, Any]) -> dict[str, list[int]]:
    """The target queues of the rows of each topic, the first of which is row 10."""
    parts = rows(*given, first=10).by_topic(None)
    return {topic: targets(part, QUEUES).tolist() for topic, part in parts}


@settings(max_examples=40)
@given(st.lists(st.tuples(KEYS, st.none() | st.integers(0, 2)), min_size=1, max_size=8))
def test_a_queue_id_goes_before_a_key_and_a_key_before_any_queue(
    given: list[tuple[str | None, int | None]],
) -> None:
    def target(key: str | None, queue_id: int | None) -> int:
        if queue_id is not None:
            return QUEUES.index(MessageQueue("T", "a", queue_id))
        return ANY_QUEUE if key is None else QUEUES.index(queue_for_sharding_key(QUEUES, key))

    made = rows(*({"shardingKey": key, "queueId": queue_id} for key, queue_id in given))

    assert targets(made, QUEUES).tolist() == [target(*each) for each in given]


def test_a_queue_id_goes_before_a_key_and_to_the_first_broker_by_name() -> None:
    given = rows({"queueId": 2, "shardingKey": "k1"}, {"shardingKey": "k1"}, {"queueId": None})
    assert targets(given, QUEUES).tolist() == [
        5,
        QUEUES.index(queue_for_sharding_key(QUEUES, "k1")),
        -1,
    ]


def test_rows_of_several_topics_are_kept_apart() -> None:
    given = rows(*({"body": b"%d" % row, "topic": topic} for row, topic in enumerate("ABAB")))
    assert [(topic, part.numbers.tolist()) for topic, part in given.by_topic(None)] == [
        ("A", [0, 2]),
        ("B", [1, 3]),
    ]
    assert [(topic, len(part)) for topic, part in given.by_topic("given")] == [("given", 4)]


@pytest.mark.parametrize(
    ("row", "words"),
    [
        ({"body": None}, "body is null"),
        ({"body": b""}, "body is empty"),
        ({"topic": None}, "topic is null"),
        ({"topic": "a b"}, "topic name 'a b'"),
        ({"tags": "a\x01b"}, "tags contains a byte 1 or 2"),
        ({"keys": "a\x02b"}, "keys contains a byte 1 or 2"),
        ({"delayLevel": -1}, "delayLevel is below 0"),
        ({"queueId": 7}, "there is no queue 7"),
        ({"queueId": -1}, "there is no queue -1"),
        ({"properties": [("TAGS", "x")]}, "reserved by the protocol"),
        ({"properties": [(ROW_ID, "x")]}, "reserved by the protocol"),
        ({"properties": [(" ", "x")]}, "a blank name"),
        ({"properties": [("a", " ")]}, "no value, or a blank one"),
        ({"properties": [("a", None)]}, "no value, or a blank one"),
        ({"properties": [("a\x01", "b")]}, "the name of a property contains a byte 1 or 2"),
        ({"properties": [("a", "b\x02")]}, "the value of a property contains a byte 1 or 2"),
    ],
)
def test_a_row_that_cannot_be_a_message_is_named(row: dict[str, Any], words: str) -> None:
    good = {"body": b"x", "topic": "T", "tags": "t", "properties": [("a", "b"), ("c", "d")]}
    with pytest.raises(RowError) as error:
        targets_by_topic(good, good, good | row)
    assert str(error.value).startswith("row 12 of partition 3: ")
    assert words in str(error.value)


def test_rows_keep_their_numbers_when_others_are_left_out() -> None:
    given = rows(*({"body": b"%d" % at, "tags": f"t{at}"} for at in range(5)), first=10)

    some = given.take(np.array([3, 0]))

    assert some.numbers.tolist() == [13, 10]
    assert some.body == pa.array([b"3", b"0"])
    assert some.tags == pa.array(["t3", "t0"])
    assert (len(some), some.partition, some.topic, some.keys) == (2, 3, None, None)
    assert len(given.take(np.empty(0, np.int64))) == 0
    assert str(some.error(0, "is odd")) == "row 13 of partition 3: is odd"


def test_the_first_of_several_wrong_rows_is_named() -> None:
    given = rows(*({"body": b"x"} for _ in range(4)), first=7)
    given.refuse(pa.array([False, None, False, None]), "is odd")

    with pytest.raises(RowError, match="row 9 of partition 3: is odd"):
        given.refuse(pa.array([None, False, True, True]), "is odd")


def test_columns_of_other_types_become_those_of_a_message() -> None:
    batch = pa.RecordBatch.from_pydict(
        {
            "body": pa.array([b"x"], pa.large_binary()),
            "keys": pa.array(["k"], pa.large_string()),
            "queueId": pa.array([2], pa.int64()),
            "delayLevel": pa.array([1], pa.int16()),
        }
    )

    found = sink_rows(batch, 0, 5)

    assert found.body == pa.array([b"x"], pa.binary())
    assert found.keys == pa.array(["k"], pa.string())
    assert found.queue_id == pa.array([2], pa.int32())
    assert found.delay_level == pa.array([1], pa.int32())
    assert found.numbers.tolist() == [5]
