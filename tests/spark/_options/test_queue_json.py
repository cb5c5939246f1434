"""JSON by topic, broker and queue: what is written is read, and what is wrong is named."""

from __future__ import annotations

import json
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from roquet.errors import OptionError
from roquet.protocol.records.message import MessageQueue
from roquet.spark._options.queue_json import (
    by_queue,
    members,
    queue_id_of,
    to_tree,
    tree_of,
    whole_number,
)

FORM = "JSON such as {}"
NAMES = st.text(min_size=1, max_size=5)
QUEUES = st.builds(MessageQueue, NAMES, NAMES, st.integers(0, 2**31))


@given(st.dictionaries(QUEUES, st.integers()))
def test_what_is_written_is_read(values: dict[MessageQueue, int]) -> None:
    text = json.dumps(to_tree(values.items()))

    assert dict(by_queue("offsets", tree_of("offsets", text, FORM), FORM)) == values


@given(st.dictionaries(QUEUES, st.integers(), max_size=6), st.randoms())
def test_equal_values_have_equal_texts(values: dict[MessageQueue, int], random: Random) -> None:
    pairs = list(values.items())
    random.shuffle(pairs)

    assert json.dumps(to_tree(pairs)) == json.dumps(to_tree(values.items()))


def test_queues_are_in_the_order_of_their_names_and_numbers() -> None:
    pairs = [(MessageQueue("b", "y", 0), 1), *((MessageQueue("a", "x", at), at) for at in (10, 2))]

    assert json.dumps(to_tree(pairs)) == '{"a": {"x": {"2": 2, "10": 10}}, "b": {"y": {"0": 1}}}'


@pytest.mark.parametrize("text", ["", "orders", "{", '{"a":}'])
def test_what_is_no_json_is_quoted_with_an_example(text: str) -> None:
    with pytest.raises(OptionError, match=r"offsets: '.*' is no valid value, give JSON such as"):
        tree_of("offsets", text, FORM)


@pytest.mark.parametrize("tree", [None, 1, "text", [], ["a"]])
def test_only_an_object_has_members(tree: object) -> None:
    with pytest.raises(OptionError, match="is no JSON object, give JSON such as") as error:
        members("offsets", tree, FORM)
    assert json.dumps(tree) in str(error.value)


@pytest.mark.parametrize(
    "tree", [5, {"orders": 5}, {"orders": {"broker-a": 5}}, {"orders": {"broker-a": [0]}}]
)
def test_each_level_of_the_tree_must_be_an_object(tree: object) -> None:
    with pytest.raises(OptionError, match="is no JSON object"):
        by_queue("offsets", tree, FORM)


@pytest.mark.parametrize("given", ["", "-1", "x", "1.0", " 1", -1, 1.0, True, None, [1]])
def test_what_is_no_queue_id_is_told_with_its_broker(given: object) -> None:
    with pytest.raises(OptionError, match="of orders@broker-a is no queue id, such as 0") as error:
        queue_id_of("assign", "orders@broker-a", given)
    assert f"queue {given!r}" in str(error.value)


@pytest.mark.parametrize(
    ("given", "number"),
    [
        (0, 0),
        ("0", 0),
        ("007", 7),
        (2**63, 2**63),
        (-1, None),
        ("-1", None),
        (False, None),
        ("9" * 5000, None),
    ],
)
def test_a_whole_number_may_be_its_digits(given: object, number: int | None) -> None:
    assert whole_number(given) == number
