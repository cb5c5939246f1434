"""A bounded dict keeps the youngest keys."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from roquet.common.bounded_dict import BoundedDict


@given(st.integers(1, 20), st.lists(st.integers(0, 30), max_size=100))
def test_it_never_has_more_keys_than_allowed_and_always_the_last_one(
    size_max: int, keys: list[int]
) -> None:
    bounded: BoundedDict[int, int] = BoundedDict(size_max)
    for number, key in enumerate(keys):
        bounded[key] = number
        assert len(bounded) <= size_max
        assert bounded[key] == number


@pytest.mark.parametrize("size_max", [1, 2, 8, 1000])
def test_the_oldest_go_and_the_others_stay(size_max: int) -> None:
    bounded: BoundedDict[int, int] = BoundedDict(size_max)
    for key in range(size_max):
        bounded[key] = key
    assert list(bounded) == list(range(size_max)), "nothing goes before it is full"

    bounded[size_max] = size_max

    assert list(bounded) == list(range(size_max // 8 + 1, size_max + 1))


def test_another_value_of_a_key_removes_nothing() -> None:
    bounded: BoundedDict[str, int] = BoundedDict(2)
    bounded["a"] = bounded["b"] = 1

    bounded["b"] = 2

    assert bounded == {"a": 1, "b": 2}
