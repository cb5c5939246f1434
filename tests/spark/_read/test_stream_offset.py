"""Offsets of streams: the same text for the same place, readable for as long as checkpoints
live.
"""

from __future__ import annotations

import json
from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from roquet.errors import RoquetError
from roquet.protocol.records.message import MessageQueue
from roquet.spark._options.ranges import QueueRange
from roquet.spark._read.stream_offset import StreamOffset, UnknownOffset

QUEUES = st.builds(
    MessageQueue,
    st.sampled_from(("orders", "stock")),
    st.sampled_from(("broker-a", "broker-b")),
    st.integers(0, 20),
)
POSITIONS = st.dictionaries(QUEUES, st.integers(0, 2**40), max_size=12)
QUEUE_0, QUEUE_1 = MessageQueue("orders", "broker-a", 0), MessageQueue("orders", "broker-a", 1)


@given(POSITIONS, POSITIONS, st.booleans())
def test_an_offset_survives_its_text(
    positions: Mapping[MessageQueue, int], since: Mapping[MessageQueue, int], first: bool
) -> None:
    offset = StreamOffset(positions, since, first)
    assert StreamOffset.from_json(json.loads(json.dumps(offset.to_json()))) == offset


@given(POSITIONS, st.randoms())
def test_the_order_in_which_queues_were_found_does_not_change_the_text(
    positions: Mapping[MessageQueue, int], chance: st.DrawFn
) -> None:
    shuffled = list(positions.items())
    chance.shuffle(shuffled)  # type: ignore[attr-defined]
    assert json.dumps(StreamOffset(dict(shuffled)).to_json()) == json.dumps(
        StreamOffset(positions).to_json()
    )


def test_checkpoints_of_the_first_version_stay_readable() -> None:
    text = (
        '{"version": 1, "queues": {"orders": {"broker-a": {"0": 23, "1": 5, "10": 7}}}, '
        '"since": {"orders": {"broker-a": {"1": 2}}}}'
    )
    offset = StreamOffset.from_json(json.loads(text))
    assert offset == StreamOffset(
        {QUEUE_0: 23, QUEUE_1: 5, MessageQueue("orders", "broker-a", 10): 7}, {QUEUE_1: 2}
    )
    assert json.dumps(offset.to_json()) == text


@pytest.mark.parametrize(
    ("tree", "words"),
    [
        ({"version": 2, "queues": {}}, "offset of version 2: .* this roquet reads version 1"),
        ({"orders": {"0": 1}}, "offset of version None"),
        ({"version": 1, "queues": {}, "more": 1}, "offset of version 1: .*more"),
        (
            {"version": 1, "queues": {"orders": {"broker-a": {"0": -1}}}},
            "invalid offset of orders@broker-a:0: -1",
        ),
        (
            {"version": 1, "queues": {"orders": {"broker-a": {"0": "1"}}}},
            "invalid offset of .*: '1'",
        ),
        (
            {"version": 1, "queues": {"orders": {"broker-a": {"x": 1}}}},
            "queue 'x' of orders@broker-a is no queue id",
        ),
        ({"version": 1}, "null is no JSON object, give"),
    ],
)
def test_an_offset_of_another_hand_is_refused_and_shown(
    tree: dict[str, object], words: str
) -> None:
    with pytest.raises(RoquetError, match=words):
        StreamOffset.from_json(tree)


def test_a_batch_reads_from_one_offset_to_the_next_and_new_queues_from_where_they_were_found() -> (
    None
):
    start = StreamOffset({QUEUE_0: 5, QUEUE_1: 7})
    new = MessageQueue("orders", "broker-b", 0)
    end = StreamOffset({QUEUE_0: 9, QUEUE_1: 7, new: 14}, since={new: 10})
    assert list(end.ranges_from(start)) == [QueueRange(QUEUE_0, 5, 9), QueueRange(new, 10, 14)]


def test_the_first_batch_is_planned_again_as_it_was_although_the_latest_moved_on() -> None:
    end = StreamOffset({QUEUE_0: 9}, since={QUEUE_0: 5})
    assert list(end.ranges_from(StreamOffset({QUEUE_0: 30}, is_first=True))) == [
        QueueRange(QUEUE_0, 5, 9)
    ]


def test_an_offset_that_did_not_change_is_a_batch_of_nothing() -> None:
    offset = StreamOffset({QUEUE_0: 9}, since={QUEUE_0: 5})
    assert list(offset.ranges_from(offset)) == []


def test_offsets_that_do_not_fit_together_are_refused() -> None:
    with pytest.raises(UnknownOffset, match="has no start offset of orders@broker-a:0"):
        list(StreamOffset({QUEUE_0: 9}).ranges_from(StreamOffset({})))
