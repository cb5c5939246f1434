"""SQL92 filters: what Apache's own program says of thousands of expressions, and where an
expression is wrong.
"""

from __future__ import annotations

from functools import cache

import pytest
from hypothesis import given

from roquet.errors import FilterError
from roquet.protocol.filters.sql92 import SqlExpression, compile_sql
from roquet.protocol.filters.sql92.parser import TERMS_MAX
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


@pytest.mark.parametrize(
    ("expression", "position", "reason"),
    [
        ("", 1, "expected a value, a name, NOT, +, - or (, found the end"),
        ("a >", 4, "expected a value, a name, NOT, +, - or (, found the end"),
        ("a = 1 AND", 10, "expected a value, a name, NOT, +, - or (, found the end"),
        ("a = )", 5, "expected a value, a name, NOT, +, - or (, found symbol )"),
        ("(a = 1", 7, "expected an operator or ), found the end"),
        ("a IS 5", 6, "expected NULL or NOT NULL, found whole number 5"),
        ("a is not 5", 10, "expected NULL, found whole number 5"),
        ("a NOT 5", 7, "expected BETWEEN or IN, found whole number 5"),
        ("a IN (5)", 7, "expected a text in quotation marks, found whole number 5"),
        ("a IN ('x'", 10, "expected , or ), found the end"),
        ("a IN 'x'", 6, "expected ( and texts, found text 'x'"),
        ("5 IN ('x')", 1, "only a property can be IN a list"),
        ("a BETWEEN 1 OR 5", 13, "expected AND, found keyword OR"),
        ("a BETWEEN 5 AND 1", 11, "BETWEEN from 5, which is more than 1"),
        ("a > 'x'", 5, "> compares numbers and properties, found text 'x'"),
        ("a BETWEEN 'x' AND 'y'", 11, "BETWEEN compares numbers and properties, found text 'x'"),
        ("(a = 1) < 5", 1, "< compares numbers and properties, found a condition"),
        ("a <> NULL", 6, "NULL cannot be compared by <>: use IS NULL or IS NOT NULL"),
        ("TRUE = 1", 1, "a truth cannot be compared with whole number 1"),
        ("a = 1 OR 5", 10, "expected a condition, found whole number 5"),
        ("NOT 'x'", 5, "expected a condition, found text 'x'"),
        ("'x'", 1, "expected a condition, found text 'x'"),
        ("a = 9223372036854775808", 5, "the number is beyond 9223372036854775807"),
        ("a = 0.0", 5, "allowed are numbers from 4.9E-324 to 1.7976931348623157E308, zero is 0"),
        ("a = 1 ?", 7, "'?' cannot stand in an expression"),
        ("a = 'x", 5, "the text that begins here has no closing '"),
        ("a = /* x", 5, "the comment that begins here has no closing */"),
    ],
)
def test_an_error_says_where_and_what(expression: str, position: int, reason: str) -> None:
    with pytest.raises(FilterError) as caught:
        compile_sql(expression)

    assert (caught.value.position, caught.value.reason) == (position, reason)
    assert str(caught.value) == f"filter expression, position {position}: {reason}"


@pytest.mark.parametrize(
    "nested",
    [
        "(" * 800 + "a",
        "NOT " * 800 + "a",
        "- " * 800 + "a",
        "a = " * 800 + "b",
        "a" + " IS NULL" * 800,
    ],
)
def test_nesting_has_an_end(nested: str) -> None:
    with pytest.raises(FilterError, match="nested deeper than 64 levels"):
        compile_sql(nested)


def test_nesting_up_to_that_is_evaluated() -> None:
    assert compile_sql("NOT (" * 31 + "a = 5" + ")" * 31).matches({"a": "5"}) is False
    assert compile_sql("(" * 64 + "a = 5" + ")" * 64).matches({"a": "5"})


def test_hundreds_of_conditions_are_joined() -> None:
    many = compile_sql(" OR ".join(f"a={number} AND b='x'" for number in range(256)))

    assert many.matches({"a": "255", "b": "x"})
    assert not many.matches({"a": "256", "b": "x"})


def test_an_expression_has_as_many_terms_as_a_message_may_cost_and_no_more() -> None:
    assert compile_sql(" OR ".join(["a"] * TERMS_MAX)).terms == TERMS_MAX
    with pytest.raises(
        FilterError, match=f"position {TERMS_MAX * 5 + 1}: more than {TERMS_MAX} names and values"
    ):
        compile_sql(" OR ".join(["a"] * (TERMS_MAX + 1)))


def test_a_list_is_one_term_however_long_it_is() -> None:
    texts = ",".join(f"'{number}'" for number in range(1200))
    assert compile_sql(f"a IN ({texts})").terms == 1


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
