"""Tag expressions, as the broker and as the client test them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from roquet.protocol.filters.tags import TagFilter
from roquet.protocol.records.message import tag_code


@pytest.mark.parametrize("expression", [None, "", "  ", "*", " * "])
def test_nothing_and_the_star_want_everything(expression: str | None) -> None:
    tag_filter = TagFilter.parse(expression)

    assert tag_filter == TagFilter("*")
    assert tag_filter.wants_code(0)
    assert tag_filter.wants_tag(None)


def test_tags_are_trimmed_and_empty_ones_dropped() -> None:
    tag_filter = TagFilter.parse(" TagA || TagB||  ")

    assert tag_filter.tags == {"TagA", "TagB"}
    assert tag_filter.codes == {2598919, 2598920}
    assert tag_filter.expression == " TagA || TagB||  "


def test_a_message_without_a_tag_does_not_pass_a_filter_of_tags() -> None:
    tag_filter = TagFilter.parse("TagA")

    assert not tag_filter.wants_code(tag_code(None))
    assert not tag_filter.wants_tag(None)


def test_tags_with_the_same_code_are_told_apart_by_the_client_only() -> None:
    tag_filter = TagFilter.parse("Aa")

    assert tag_code("Aa") == tag_code("BB")
    assert tag_filter.wants_code(tag_code("BB"))
    assert not tag_filter.wants_tag("BB")


@given(st.lists(st.text(st.characters(exclude_characters="|"), min_size=1), min_size=1))
def test_every_named_tag_passes_both_tests(tags: list[str]) -> None:
    tag_filter = TagFilter.parse("||".join(tags))

    for tag in filter(None, map(str.strip, tags)):
        assert tag_filter.wants_tag(tag) or "*" in tags
        assert tag_filter.wants_code(tag_code(tag))


@given(st.text(min_size=1), st.integers(-(2**31), 2**31 - 1))
def test_only_the_low_32_bits_of_a_stored_code_count(tag: str, high: int) -> None:
    tag_filter = TagFilter("x", frozenset({tag}), frozenset({tag_code(tag)}))

    assert tag_filter.wants_code(high << 32 | tag_code(tag) & 0xFFFFFFFF)
