"""What a properties text means, by the rules of Java's own reader."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from hypothesis import given
from hypothesis import strategies as st

from roquet.common.properties import changed, dump, parse


@pytest.mark.parametrize(
    ("text", "pairs"),
    [
        ("a=1", [("a", "1")]),
        ("a:1", [("a", "1")]),
        ("a 1", [("a", "1")]),
        ("a\t=\f 1", [("a", "1")]),
        ("a = = 1", [("a", "= 1")]),
        ("a", [("a", "")]),
        ("a=", [("a", "")]),
        ("=1", [("", "1")]),
        ("  a=b c", [("a", "b c")]),
        ("a=1\r\nb=2\rc=3\n\n", [("a", "1"), ("b", "2"), ("c", "3")]),
        ("#a=1\n  !b=2\nc=3#4", [("c", "3#4")]),
    ],
)
def test_a_line_is_a_name_a_separator_and_a_value(text: str, pairs: list[tuple[str, str]]) -> None:
    assert list(parse(text).pairs) == pairs


@pytest.mark.parametrize(
    ("text", "pairs"),
    [
        ("a=1,\\\n   2,\\\r\n\t3", [("a", "1,2,3")]),
        ("a=1\\\\\nb=2", [("a", "1\\"), ("b", "2")]),
        ("a=1\\\n#2", [("a", "1#2")]),
        ("a=1\\\n\nb=2", [("a", "1"), ("b", "2")]),
        ("a=1\\", [("a", "1")]),
        ("#a=1\\\nb=2", [("b", "2")]),
    ],
)
def test_a_backslash_continues_a_line_that_is_no_comment(
    text: str, pairs: list[tuple[str, str]]
) -> None:
    assert list(parse(text).pairs) == pairs


def test_escapes_stand_for_characters_in_names_and_values() -> None:
    assert parse("a\\ b\\=\\:c=\\t\\n\\r\\f\\u4E2D\\q\\\\").pairs == (("a b=:c", "\t\n\r\f中q\\"),)


def test_an_unfinished_unicode_escape_names_its_line() -> None:
    with pytest.raises(ValueError, match=r"line 2: \\u needs four hex digits"):
        parse("a=1\npath=C:\\users")


def test_blanks_after_a_value_are_kept_and_reported() -> None:
    properties = parse("x=1\nfileReservedTime = 48 \t\n")

    assert properties.pairs == (("x", "1"), ("fileReservedTime", "48 \t"))
    assert properties.warnings == ("line 2: the value of fileReservedTime ends in blanks",)


def test_of_a_repeated_name_the_last_value_counts_and_the_first_is_reported() -> None:
    properties = parse("a=1\nb=2\na=3")

    assert properties.pairs == (("b", "2"), ("a", "3"))
    assert properties.warnings == ("line 3: a is set again, the value in line 1 is not used",)


def test_the_line_of_a_warning_counts_continued_lines() -> None:
    assert parse("a=1\\\n2\nb=3 ").warnings == ("line 3: the value of b ends in blanks",)


def test_ordinary_values_are_written_as_they_are() -> None:
    assert (
        dump([("namesrvAddr", "a:1;b:2"), ("deleteWhen", "04 ")])
        == "namesrvAddr=a:1;b:2\ndeleteWhen=04 \n"
    )


_TEXT = st.text(st.characters(exclude_categories=["Cs"]))


@given(st.dictionaries(_TEXT, _TEXT))
def test_what_is_written_is_read_back(pairs: dict[str, str]) -> None:
    assert dict(parse(dump(pairs.items())).pairs) == pairs


@given(_TEXT)
def test_any_text_is_read_or_refused_with_its_line(text: str) -> None:
    with suppress_refusal():
        parse(text)


@contextmanager
def suppress_refusal() -> Iterator[None]:
    try:
        yield
    except ValueError as error:
        if not str(error).startswith("line "):
            raise


def test_values_are_changed_where_they_stand() -> None:
    text = "# the broker\nbrokerId = 1\r\n\nbrokerRole:\\\n  SLAVE\nlistenPort=1"
    assert changed(text, {"brokerRole": "SYNC_MASTER", "brokerId": "0", "new": "a b"}) == (
        "# the broker\nbrokerId=0\n\nbrokerRole=SYNC_MASTER\nlistenPort=1\nnew=a b\n"
    )


@given(
    st.text(st.sampled_from("ab=: \\\n\r#!\x85\u2028u0"), max_size=30),
    st.dictionaries(
        st.text(st.sampled_from("ab=# "), min_size=1, max_size=2), st.text(max_size=5), max_size=3
    ),
)
def test_a_changed_text_means_the_old_pairs_and_the_new_ones(
    text: str, pairs: dict[str, str]
) -> None:
    try:
        before = dict(parse(text).pairs)
    except ValueError:
        return
    assert dict(parse(changed(text, pairs)).pairs) == before | pairs
