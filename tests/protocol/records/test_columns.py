"""Columns in bytes: numbers at any place, rows of bytes, Java hashes of rows."""

from __future__ import annotations

from struct import calcsize, pack_into, unpack_from
from typing import Final

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from roquet.protocol.records.columns import (
    byte_rows,
    count_leading_true,
    gather,
    java_hashes,
    scatter,
)
from roquet.protocol.records.message import java_hash
from tests.protocol.strategies import int64

CODES: Final = {">u4": ">I", ">i4": ">i", ">i8": ">q", "u1": "B"}
"""numpy's name of a type -> that of the module `struct`."""
types = st.sampled_from([*CODES])


anywhere = st.lists(st.integers(0, 1000), max_size=6)


def within(data: bytes, size: int, at: list[int]) -> list[int]:
    """Places at which there are so many bytes."""
    return [place % (len(data) - size + 1) for place in at]


@settings(max_examples=25)
@given(st.binary(min_size=8, max_size=40), types, anywhere)
def test_gathered_values_are_those_at_their_places(data: bytes, kind: str, at: list[int]) -> None:
    at = within(data, calcsize(CODES[kind]), at)

    values = gather(data, kind, np.array(at, np.int64))

    assert values.dtype == np.dtype(kind)
    assert values.tolist() == [unpack_from(CODES[kind], data, place)[0] for place in at]


def test_a_gathered_value_may_have_several_fields() -> None:
    pair = np.dtype([("size", ">u4"), ("magic", ">u2")])

    (found,) = gather(b"\xff\0\0\0\x05\0\x07\xff", pair, np.array([1]))

    assert (int(found["size"]), int(found["magic"])) == (5, 7)


@settings(max_examples=25)
@given(st.integers(0, 7), st.lists(int64, max_size=4))
def test_scattered_values_are_at_their_places_and_nothing_else_changes(
    offset: int, values: list[int]
) -> None:
    at = [offset + 9 * number for number in range(len(values))]
    expected, changed = (bytearray(b"\xff" * (offset + 9 * len(values))) for _ in range(2))
    for place, value in zip(at, values, strict=True):
        pack_into(">q", expected, place, value)

    scatter(changed, ">i8", np.array(at, np.int64), np.array(values, np.int64))

    assert changed == expected


def test_one_value_may_be_scattered_to_all_places() -> None:
    data = bytearray(b"\xff" * 10)

    scatter(data, ">u4", np.array([0, 5]), 7)

    assert data == b"\0\0\0\x07\xff\0\0\0\x07\xff"


def test_without_places_nothing_is_read_or_written_even_of_no_bytes() -> None:
    nowhere = np.empty(0, np.int64)
    data = bytearray()

    scatter(data, ">i8", nowhere, [])

    assert data == b""
    assert gather(b"", ">i8", nowhere).tolist() == []
    assert byte_rows(b"", nowhere, 3).shape == (0, 3)


@pytest.mark.parametrize("at", [5, 6, 100])
def test_a_value_that_ends_behind_the_bytes_is_an_error(at: int) -> None:
    assert gather(bytes(8), ">u4", np.array([4])).tolist() == [0]
    with pytest.raises(IndexError):
        gather(bytes(8), ">u4", np.array([at]))
    with pytest.raises(IndexError):
        scatter(bytearray(8), ">u4", np.array([at]), 1)


@settings(max_examples=25)
@given(st.binary(min_size=5, max_size=30), st.integers(0, 5), anywhere)
def test_rows_are_the_bytes_from_each_place_on(data: bytes, size: int, at: list[int]) -> None:
    at = within(data, size, at)

    rows = byte_rows(data, np.array(at, np.int64), size)

    assert rows.shape == (len(at), size)
    assert [row.tobytes() for row in rows] == [data[place : place + size] for place in at]


@settings(max_examples=25)
@given(st.lists(st.booleans(), max_size=12))
def test_leading_truths_are_those_before_the_first_other_value(values: list[bool]) -> None:
    expected = values.index(False) if False in values else len(values)

    assert count_leading_true(np.array(values, np.bool_)) == expected


ascii_text = st.text(st.characters(max_codepoint=127), max_size=12)


@settings(max_examples=25)
@given(ascii_text, ascii_text, st.integers(1, 5))
def test_hashes_of_rows_are_javas_of_the_prefix_and_the_row(
    prefix: str, row: str, count: int
) -> None:
    rows = [row[at:] + row[:at] for at in range(count)]
    size = len(row)
    table = np.frombuffer("".join(rows).encode(), np.uint8).reshape(count, size)

    hashes = java_hashes(table, java_hash(prefix))

    assert hashes.dtype == np.int64
    assert hashes.tolist() == [java_hash(prefix + row) for row in rows]


def test_no_rows_have_no_hashes() -> None:
    assert java_hashes(np.empty((0, 4), np.uint8)).tolist() == []
