"""Numbers that are given as arguments are checked where they are given."""

from __future__ import annotations

import pytest

from roquet.common.arguments import check_number
from roquet.errors import ConfigError


@pytest.mark.parametrize("number", [1, 5, 9])
def test_a_number_in_the_range_is_taken(number: int) -> None:
    check_number("size", number, 1, 9)


@pytest.mark.parametrize("number", [0, 10, -1, True, 1.5, "3", None])
def test_anything_else_is_named(number: object) -> None:
    with pytest.raises(ConfigError) as raised:
        check_number("size", number, 1, 9)
    assert str(raised.value) == f"size is {number!r}: allowed are 1 to 9"
