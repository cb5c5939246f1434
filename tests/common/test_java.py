"""Java's names follow from ours."""

from __future__ import annotations

import pytest

from roquet.common.java import camel_case


@pytest.mark.parametrize(
    ("name", "java_name"),
    [("topic", "topic"), ("queue_id", "queueId"), ("ha_master_address", "haMasterAddress")],
)
def test_words_begin_with_a_capital(name: str, java_name: str) -> None:
    assert camel_case(name) == java_name
