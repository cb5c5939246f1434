"""The grammar of expressions, which is Apache's with its oddities: what binds how, where an
expression is wrong, how large it may be.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import product
from typing import Final

import pytest

from roquet.errors import FilterError
from roquet.protocol.filters.sql92.parser import DEPTH_MAX, TERMS_MAX, Parser

BOOLEANS: Final = {"TRUE": True, "FALSE": False, "NULL": None}


def said(expression: str, properties: Mapping[str, str] | None = None) -> bool | None:
    found: bool | None = Parser(expression).condition()(properties or {})
    return found


def by_letters(expression: str) -> str:
    """What it says of messages that have no `a`, and those from 0 to 9: t(rue), f(alse), n(ull)."""
    messages = [{}, *({"a": str(number)} for number in range(10))]
    return "".join({True: "t", False: "f", None: "n"}[said(expression, each)] for each in messages)


# what binds how


@pytest.mark.parametrize(("one", "two", "three"), [*product(BOOLEANS, repeat=3)])
def test_and_binds_closer_than_or(one: str, two: str, three: str) -> None:
    assert said(f"{one} OR {two} AND {three}") is said(f"{one} OR ({two} AND {three})")
    assert said(f"{one} AND {two} OR {three}") is said(f"({one} AND {two}) OR {three}")


@pytest.mark.parametrize(
    ("expression", "grouped"),
    [
        ("NOT a = FALSE", "(NOT a) = FALSE"),
        ("NOT a IS NULL", "(NOT a) IS NULL"),
        ("a > 2 = TRUE", "(a > 2) = TRUE"),
        ("TRUE = a > 2", "TRUE = (a > 2)"),
        ("a = 5 = TRUE", "(a = 5) = TRUE"),
        ("a = 5 <> FALSE", "(a = 5) <> FALSE"),
        ("a IS NULL = TRUE", "(a IS NULL) = TRUE"),
        ("a BETWEEN 2 AND 4 AND a > 2", "(a BETWEEN 2 AND 4) AND (a > 2)"),
        ("a > - 1", "a > (-1)"),
        ("a > - - 1", "a > 1"),
        ("a > + 1", "a > 1"),
        ("a > + - + 1", "a > (-1)"),
        ("NOT NOT (a > 2)", "a > 2"),
    ],
)
def test_operators_bind_as_apaches_do(expression: str, grouped: str) -> None:
    assert by_letters(expression) == by_letters(grouped)


@pytest.mark.parametrize(
    ("expression", "letters"),
    [
        ("a = 5", "nffffftffff"),
        ("5 = a", "fffffftffff"),
        ("a <> 5", "ntttttftttt"),
        ("a > 5", "nfffffftttt"),
        ("a >= 5", "nfffffttttt"),
        ("a < 5", "ntttttfffff"),
        ("a <= 5", "nttttttffff"),
        ("a BETWEEN 3 AND 5", "nffftttffff"),
        ("a BETWEEN 3 AND 3", "nffftffffff"),
        ("a NOT BETWEEN 3 AND 5", "ntttffftttt"),
        ("a NOT BETWEEN 5 AND 3", "ntttttttttt"),
        ("a IN ('3', '5')", "nffftftffff"),
        ("a not in ('3', '5')", "ntttftftttt"),
        ("a IS NULL", "tffffffffff"),
        ("a IS NOT NULL", "ftttttttttt"),
        ("a", "nffffffffff"),
        ("NOT a", "ntttttttttt"),
        ("a = 2.5e0 OR a > 8.5", "nffffffffft"),
        ("(a > 2) AND (a < 5)", "nfffttfffff"),
        ("a < 2 OR a IS NULL", "tttffffffff"),
    ],
)
def test_every_operator_says_what_it_says(expression: str, letters: str) -> None:
    assert by_letters(expression) == letters


@pytest.mark.parametrize("low", ["2", "2.0", "b"])
def test_bounds_may_be_numbers_of_any_kind_or_properties(low: str) -> None:
    assert said(f"a BETWEEN {low} AND 3", {"a": "2", "b": "2"}) is True
    assert said(f"a NOT BETWEEN {low} AND 3", {"a": "2", "b": "2"}) is False
    assert said(f"a BETWEEN {low} AND 3", {"a": "1", "b": "2"}) is False


def test_a_quotation_mark_in_a_text_is_written_twice() -> None:
    assert said("a = 'it''s'", {"a": "it's"}) is True


@pytest.mark.parametrize(
    ("number", "text", "same"),
    [
        ("2147483647", "2147483647", True),
        ("2147483648", "2147483648", True),
        ("9223372036854775807", "9223372036854775807", True),
        ("7L", "7", True),
        ("7l", "+7", True),
        ("4.9e-324", "4.9E-324", True),
        ("1.7976931348623157e308", "1.7976931348623157e308", True),
    ],
)
def test_numbers_up_to_the_bounds_of_java_are_read(number: str, text: str, same: bool) -> None:
    assert said(f"a = {number}", {"a": text}) is same


def test_what_stands_behind_a_complete_expression_is_ignored() -> None:
    assert said("a = 5 a ? 'x", {"a": "5"}) is True
    with pytest.raises(FilterError, match=r"position 7: '\?' cannot stand in an expression"):
        said("a = 5 ? a")


# where an expression is wrong


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
        ("TRUE = 1", 1, "a boolean cannot be compared with whole number 1"),
        ("a = 1 OR 5", 10, "expected a condition, found whole number 5"),
        ("NOT 'x'", 5, "expected a condition, found text 'x'"),
        ("'x'", 1, "expected a condition, found text 'x'"),
        ("a = 9223372036854775808", 5, "the number is beyond 9223372036854775807"),
        ("a = 0.0", 5, "allowed are numbers from 4.9E-324 to 1.7976931348623157E308, zero is 0"),
        ("a = 1 ?", 7, "'?' cannot stand in an expression"),
        ("a BETWEEN 0.5 AND 0.25", 11, "BETWEEN from 0.5, which is more than 0.25"),
        ("a BETWEEN 1 AND 0.5", 11, "BETWEEN from 1, which is more than 0.5"),
        ("a > NULL", 5, "> compares numbers and properties, found keyword NULL"),
        ("TRUE > a", 1, "> compares numbers and properties, found keyword TRUE"),
        ("NULL = a", 1, "NULL cannot be compared by =: use IS NULL or IS NOT NULL"),
        ("FALSE = 'x'", 1, "a boolean cannot be compared with text 'x'"),
        ("a = 1 AND 'x'", 11, "expected a condition, found text 'x'"),
        ("5 AND a", 1, "expected a condition, found whole number 5"),
        ("-a", 1, "expected a condition, found symbol -"),
        ("a = 1e400", 5, "allowed are numbers from 4.9E-324 to 1.7976931348623157E308, zero is 0"),
        ("a = 1e-400", 5, "allowed are numbers from 4.9E-324 to 1.7976931348623157E308, zero is 0"),
        ("a = " + "9" * 5000, 5, "the number is beyond 9223372036854775807"),
        ("a NOT NULL", 7, "expected BETWEEN or IN, found keyword NULL"),
        ("a IN ('x' 'y')", 11, "expected , or ), found text 'y'"),
        ("a IN ()", 7, "expected a text in quotation marks, found symbol )"),
        ("-a IN ('x')", 1, "only a property can be IN a list"),
    ],
)
def test_an_error_says_where_and_what(expression: str, position: int, reason: str) -> None:
    with pytest.raises(FilterError) as caught:
        Parser(expression).condition()

    assert (caught.value.position, caught.value.reason) == (position, reason)
    assert str(caught.value) == f"filter expression, position {position}: {reason}"


# how large an expression may be


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
        Parser(nested).condition()


def test_nesting_up_to_that_is_evaluated() -> None:
    assert (
        said("NOT (" * (DEPTH_MAX // 2 - 1) + "a = 5" + ")" * (DEPTH_MAX // 2 - 1), {"a": "5"})
        is False
    )
    assert said("(" * DEPTH_MAX + "a = 5" + ")" * DEPTH_MAX, {"a": "5"}) is True
    with pytest.raises(FilterError, match=f"position {DEPTH_MAX + 1}: nested deeper"):
        said("(" * (DEPTH_MAX + 1) + "a = 5" + ")" * (DEPTH_MAX + 1))


def test_levels_that_were_left_are_not_counted() -> None:
    side = "(" * (DEPTH_MAX - 2) + "a = 5" + ")" * (DEPTH_MAX - 2)

    assert said(" OR ".join([side] * 3), {"a": "5"}) is True
    assert said(" OR ".join(["a > " + "-" * 60 + "1"] * 3), {"a": "5"}) is True


def terms_of(expression: str) -> int:
    parser = Parser(expression)
    parser.condition()
    return parser.terms


def test_an_expression_has_as_many_terms_as_a_message_may_cost_and_no_more() -> None:
    assert terms_of(" OR ".join(["a"] * TERMS_MAX)) == TERMS_MAX
    with pytest.raises(
        FilterError, match=f"position {TERMS_MAX * 5 + 1}: more than {TERMS_MAX} names and values"
    ):
        terms_of(" OR ".join(["a"] * (TERMS_MAX + 1)))


def test_parentheses_are_no_terms() -> None:
    assert terms_of(" OR ".join(["((a))"] * TERMS_MAX)) == TERMS_MAX


def test_a_list_is_one_term_however_long_it_is() -> None:
    texts = ",".join(f"'{number}'" for number in range(1200))
    assert terms_of(f"a IN ({texts})") == 1


def test_each_name_and_each_value_is_a_term() -> None:
    assert terms_of("a") == 1
    assert terms_of("a = 5 AND NOT b") == 3
    assert terms_of("a BETWEEN 1 AND -2 OR a IS NULL") == 4
