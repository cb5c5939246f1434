"""SQL92 filters: thousands of expressions mean what Apache's own program says of them."""

from __future__ import annotations

from functools import cache

import pytest
from hypothesis import given

from roquet.errors import FilterError
from roquet.protocol.filters.sql92 import SqlExpression, compile_sql
from roquet.protocol.filters.tags import EXPRESSION_SIZE_MAX
from tests.golden.collection import ROOT
from tests.interop.filters import REFUSED, VERDICTS, read_table
from tests.protocol.expressions import expressions, messages
from tests.protocol.filters.answers import answer


@cache
def table() -> tuple[list[dict[str, str]], list[tuple[str, str]]]:
    return read_table((ROOT / "filters" / "sql92.txt").read_text(encoding="utf-8").splitlines())


def test_every_expression_is_what_apache_says() -> None:
    asked, answers = table()

    different = [
        (text, theirs, ours) for text, theirs in answers if (ours := answer(text, asked)) != theirs
    ]

    assert not different
    assert len(answers) > 4000
    assert {letter for _, theirs in answers for letter in theirs} == {*VERDICTS, "x", REFUSED}


def test_hundreds_of_conditions_are_joined() -> None:
    many = compile_sql(" OR ".join(f"a={number} AND b='x'" for number in range(256)))

    assert many.matches({"a": "255", "b": "x"})
    assert not many.matches({"a": "256", "b": "x"})


def test_a_longer_text_is_not_even_read() -> None:
    with pytest.raises(FilterError, match="allowed are 8192"):
        compile_sql("a = 1 " + " " * EXPRESSION_SIZE_MAX + "]")


def test_what_is_compiled_once_is_not_compiled_again() -> None:
    assert compile_sql("a = 5") is compile_sql("a = 5")


def test_an_expression_of_comments_takes_no_longer_than_it_is_long() -> None:
    """Each pair of dashes looks for the end of its line."""
    assert compile_sql("a = 1 OR " + "a = --1 OR " * 400 + "TRUE").matches({})


@given(expressions, messages)
def test_a_message_is_wanted_only_if_that_is_true(expression: str, message: dict[str, str]) -> None:
    compiled = compiled_or_none(expression)
    if compiled is not None:
        assert compiled.matches(message) is (answer(expression, [message]) == "t")


def compiled_or_none(expression: str) -> SqlExpression | None:
    """None: it is refused, with a position that is in it, or at its end."""
    try:
        return compile_sql(expression)
    except FilterError as error:
        positions = range(1, len(expression) + 2)
        assert error.position in positions, error  # noqa: PT017 - most expressions are sound
        return None
