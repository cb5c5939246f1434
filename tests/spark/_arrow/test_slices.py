"""Arrays made from buffers are those that Arrow would make from Python objects."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from roquet.spark._arrow.slices import (
    binary,
    bits_in,
    constant,
    indices,
    numbers,
    numbers_in,
    slices,
    text,
    true_rows,
    words,
)

INT64 = st.integers(-(2**63), 2**63 - 1)


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5))))
def test_slices_are_the_bytes_from_each_start_to_its_end(steps: list[tuple[int, int]]) -> None:
    """Each step is a gap and the size of what follows it."""
    edges = np.cumsum([0, *(size for step in steps for size in step)])
    data = bytes(index % 256 for index in range(int(edges[-1]) + 3))

    found = slices(data, edges[1::2], edges[2::2])

    found.validate(full=True)
    assert found.type == pa.binary()
    assert found.to_pylist() == [
        data[start:end] for start, end in zip(edges[1::2], edges[2::2], strict=True)
    ]


@given(st.lists(INT64 | st.none()))
def test_numbers_are_null_where_they_are_not_valid(values: list[int | None]) -> None:
    stored = np.array([value or 0 for value in values], np.int64)
    valid = np.array([value is not None for value in values], np.bool_)

    found = numbers(stored, pa.int64(), valid)

    found.validate(full=True)
    assert found.to_pylist() == values
    assert indices(stored).to_pylist() == stored.tolist()


def test_numbers_that_do_not_lie_end_to_end_are_copied() -> None:
    assert numbers(np.arange(10, dtype=np.int32)[::3], pa.int32()).to_pylist() == [0, 3, 6, 9]


@given(st.lists(INT64), st.data())
def test_the_numbers_of_a_part_of_an_array_are_its_own(
    values: list[int], data: st.DataObject
) -> None:
    start = data.draw(st.integers(0, len(values)))
    part = pa.array(values, pa.int64())[start:]

    assert numbers_in(part, np.int64).tolist() == values[start:]


@given(st.lists(st.binary(max_size=4)))
def test_bytes_become_an_array(values: list[bytes]) -> None:
    found = binary(values)

    found.validate(full=True)
    assert found.to_pylist() == values


@given(st.lists(st.text(max_size=4)))
def test_strings_become_an_array(values: list[str]) -> None:
    assert words(values).to_pylist() == values
    assert words(values).type == pa.string()


def test_a_constant_is_a_scalar() -> None:
    assert constant(b"x") == pa.scalar(b"x", pa.binary())


@given(st.lists(st.binary(max_size=4) | st.none()))
def test_bytes_that_are_no_utf8_are_replaced_as_python_does(values: list[bytes | None]) -> None:
    kept = [value for value in values if value is not None]

    assert text(pa.array(kept, pa.binary())).to_pylist() == [
        value.decode("utf-8", "replace") for value in kept
    ]


@given(st.lists(st.sampled_from([True, False, None])))
def test_a_mask_is_true_where_it_is_neither_false_nor_null(values: list[bool | None]) -> None:
    mask = pa.array(values, pa.bool_())

    assert true_rows(mask).tolist() == [at for at, value in enumerate(values) if value]
    assert bits_in(mask).tolist() == [bool(value) for value in values]


def test_bytes_that_an_array_cannot_count_are_refused() -> None:
    with pytest.raises(OverflowError, match=f"{2**31} bytes are too many for one column"):
        binary([bytes(1 << 20)] * 2048)


def test_data_that_offsets_cannot_count_is_not_sliced() -> None:
    class Large(bytes):
        def __len__(self) -> int:
            return 2**31

    one = np.array([0])
    with pytest.raises(OverflowError, match=f"{2**31} bytes are too many for one column"):
        slices(Large(b"x"), one, one + 1)
