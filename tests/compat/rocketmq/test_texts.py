"""Texts as arguments: str, or bytes in UTF-8."""

from __future__ import annotations

from typing import Any

import pytest

from roquet.compat.rocketmq.exceptions import RocketMQException
from roquet.compat.rocketmq.texts import text_of


def test_a_text_is_a_str_or_its_bytes() -> None:
    assert text_of("keys", "été") == text_of("keys", "été".encode()) == "été"


@pytest.mark.parametrize("value", [None, 7, ["a"], b"\xff"])
def test_another_value_is_refused_by_name(value: Any) -> None:
    with pytest.raises(RocketMQException, match="keys is"):
        text_of("keys", value)
