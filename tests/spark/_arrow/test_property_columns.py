"""The properties of many messages at once are those of each message alone."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from roquet.protocol.records.message import split_properties
from roquet.spark._arrow.property_columns import PropertyColumns
from roquet.spark._arrow.slices import slices

MAP = pa.map_(pa.string(), pa.string())
NAMES = ("KEYS", "TAGS", "TAG", "a", "é", "")
TEXTS = st.lists(st.sampled_from(["KEYS", "TAG", "S", "a", "é", "\x01", "\x02", "\x01\x02"])).map(
    "".join
)


def stored(texts: list[str]) -> PropertyColumns:
    """The texts as they stand in records, with other bytes before, between and behind them."""
    parts = [text.encode() for text in texts]
    data = b"".join(b"\x01A\x02" + part for part in parts) + b"\x01B"
    ends = np.cumsum([3 + len(part) for part in parts], dtype=np.int64)
    return PropertyColumns(
        slices(data, ends - np.array([len(part) for part in parts], np.int64), ends)
    )


@given(st.lists(TEXTS, max_size=8))
def test_properties_are_those_of_each_message_alone(texts: list[str]) -> None:
    found = stored(texts)
    expected = [split_properties(text) for text in texts]

    maps = found.maps(MAP)
    maps.validate(full=True)
    assert [dict(each) for each in maps.to_pylist()] == expected
    assert [len(each) for each in maps.to_pylist()] == [len(each) for each in expected]
    for name in NAMES:
        values = found.values(name)
        values.validate(full=True)
        assert values.to_pylist() == [each.get(name) for each in expected]


@pytest.mark.parametrize(
    ("text", "properties"),
    [
        ("", {}),
        ("a\x01b", {"a": "b"}),
        ("a\x01b\x02", {"a": "b"}),
        ("a\x01b\x02a\x01c", {"a": "c"}),
        ("a\x01\x02b\x01c", {"b": "c"}),
        ("\x01a\x02b", {}),
        ("a\x02b\x01c", {"b": "c"}),
    ],
)
def test_a_pair_has_a_name_and_a_value_and_the_last_of_a_name_counts(
    text: str, properties: dict[str, str]
) -> None:
    (found,) = stored([text]).maps(MAP).to_pylist()

    assert dict(found) == properties == split_properties(text)


def test_a_name_is_found_among_many_names_of_few_rows() -> None:
    """With so many names that the pairs are sorted, not counted in a table."""
    texts = ["\x02".join(f"n{row}-{at}\x01{at}" for at in range(20)) for row in range(20)]
    texts[7] += "\x02n7-3\x01again"

    found = stored(texts)

    assert [dict(each) for each in found.maps(MAP).to_pylist()] == [
        split_properties(text) for text in texts
    ]
    assert found.values("n7-3").to_pylist() == [None] * 7 + ["again"] + [None] * 12


def test_no_messages_have_no_properties() -> None:
    assert stored([]).maps(MAP).to_pylist() == stored([]).values("a").to_pylist() == []
