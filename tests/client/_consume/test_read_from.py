"""Which processes of a broker are read, and in which order."""

from __future__ import annotations

from typing import Any

import pytest

from roquet.client._consume.read_from import ReadFrom, addresses_to_read, check_read_from
from roquet.errors import ConfigError
from roquet.protocol.bodies.tables import BrokerData, Route

ROUTE = Route((BrokerData("C", "a", {0: "m:1", 1: "s:1", 2: "t:1"}),), ())


@pytest.mark.parametrize(
    ("read_from", "suggested_id", "expected"),
    [
        ("any", 0, [0, 1, 2]),
        ("any", 2, [2, 0, 1]),
        ("master", 2, [0]),
        ("slave", 2, [1, 2, 0]),
        ("slave-only", 0, [1, 2]),
    ],
)
def test_the_order_is_that_of_the_argument(
    read_from: ReadFrom, suggested_id: int, expected: list[int]
) -> None:
    found = addresses_to_read(read_from, ROUTE, "a", suggested_id)

    assert [at.broker_id for at in found] == expected
    assert addresses_to_read(read_from, ROUTE, "b", suggested_id) == []


@pytest.mark.parametrize("read_from", ["", "Master", None, 0])
def test_anything_else_is_refused(read_from: Any) -> None:
    with pytest.raises(ConfigError, match=r"read_from is .*: give one of 'master', 'slave'"):
        check_read_from(read_from)
