"""The parts of a compiled expression: what each is for a message, when Apache's answer is an
exception, and which values are compared how.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import product
from math import inf, nan
from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from roquet.protocol.filters.sql92 import terms
from roquet.protocol.filters.sql92.terms import Form, NotComparable, Term, Type, Value

TRUE, FALSE, UNKNOWN = (
    terms.constant(Type.BOOLEAN, True),
    terms.constant(Type.BOOLEAN, False),
    terms.constant(Type.NOTHING, None),
)
A, B = terms.named("a"), terms.named("b")
BOOLEANS: Final[dict[bool | None, Term]] = {True: TRUE, False: FALSE, None: UNKNOWN}
booleans = st.sampled_from([True, False, None])


def integer(number: int) -> Term:
    return terms.constant(Type.INT, number)


def double(number: float) -> Term:
    return terms.constant(Type.DOUBLE, number)


def text(value: str) -> Term:
    return terms.constant(Type.TEXT, value)


def said(term: Term, **properties: str) -> Value:
    found: Value = term.evaluate(properties)
    return found


# operands


def test_a_constant_is_the_same_for_every_message() -> None:
    assert (said(integer(5)), said(integer(5), a="6")) == (5, 5)


def test_a_property_is_its_text_or_nothing() -> None:
    assert (said(A, a="5"), said(A, b="5"), said(A, a="")) == ("5", None, "")


def test_only_booleans_and_nothing_are_conditions_by_themselves() -> None:
    conditions = [TRUE, FALSE, UNKNOWN, terms.boolean_of(A), terms.inverse(TRUE), terms.is_null(A)]
    operands = [
        A,
        integer(5),
        double(0.5),
        text("true"),
        terms.negative(integer(5)),
        terms.negative(A),
    ]

    assert all(term.is_condition for term in conditions)
    assert not any(term.is_condition for term in operands)


def test_a_property_as_a_condition_is_false_or_unknown_and_never_true() -> None:
    is_a = terms.boolean_of(A)

    assert [said(is_a, a="true"), said(is_a, a=""), said(is_a)] == [False, False, None]


def test_minus_changes_the_sign_of_numbers() -> None:
    assert said(terms.negative(integer(5))) == -5
    assert said(terms.negative(terms.negative(double(0.5)))) == 0.5
    assert terms.negative(double(0.5)).type is Type.DOUBLE


@pytest.mark.parametrize("term", [A, text("5"), TRUE, UNKNOWN, terms.negative(A)])
def test_minus_of_anything_else_is_unknown(term: Term) -> None:
    negative = terms.negative(term)

    assert said(negative, a="5") is None
    assert negative.type is Type.NOTHING


def test_minus_of_what_cannot_be_compared_cannot_be_either() -> None:
    with pytest.raises(NotComparable):
        said(terms.negative(terms.ordered(A, ">", integer(5))), a="x")


# booleans


def test_not_of_unknown_is_unknown() -> None:
    assert [said(terms.inverse(term)) for term in (TRUE, FALSE, UNKNOWN)] == [False, True, None]


@given(st.lists(booleans, min_size=1, max_size=5))
def test_and_and_or_are_those_of_three_booleans(values: list[bool | None]) -> None:
    parts = [BOOLEANS[value] for value in values]

    conjunction, disjunction = terms.all_of(parts), terms.any_of(parts)

    unknown = None if None in values else "none"
    assert said(conjunction) is (False if False in values else None if unknown is None else True)
    assert said(disjunction) is (True if True in values else None if unknown is None else False)


@pytest.mark.parametrize(("join", "decides"), [(terms.all_of, FALSE), (terms.any_of, TRUE)])
def test_what_is_behind_the_part_that_decides_is_not_evaluated(
    join: Callable[[Sequence[Term]], Term], decides: Term
) -> None:
    wrong = terms.ordered(A, ">", integer(5))

    assert said(join([UNKNOWN, decides, wrong]), a="x") is said(decides)
    with pytest.raises(NotComparable):
        said(join([UNKNOWN, wrong, decides]), a="x")


def test_is_null_is_known_of_every_message() -> None:
    assert [said(terms.is_null(A), a="x"), said(terms.is_null(A))] == [False, True]
    assert said(terms.is_null(UNKNOWN)) is True


def test_in_a_list_is_unknown_without_the_property() -> None:
    inside, outside = (terms.is_in(A, ["x", "y"], wanted=wanted) for wanted in (True, False))

    assert [said(inside, a="x"), said(inside, a="X"), said(inside)] == [True, False, None]
    assert [said(outside, a="x"), said(outside, a="X"), said(outside)] == [False, True, None]


# equality


@pytest.mark.parametrize(
    ("property_text", "other", "same"),
    [
        ("5", integer(5), True),
        ("+5", integer(5), True),
        ("005", integer(5), True),
        ("6", integer(5), False),
        ("2147483648", terms.constant(Type.LONG, 2147483648), True),
        ("5.0", double(5.0), True),
        (" 5e0 ", double(5.0), True),
        ("NaN", double(5.0), False),
        ("-0.0", double(0.0), False),
        ("Infinity", double(inf), True),
        ("NaN", double(nan), True),
        ("true", TRUE, True),
        ("TRUE", TRUE, True),
        ("yes", TRUE, False),
        ("yes", FALSE, True),
        ("5", text("5"), True),
        ("5.0", text("5"), False),
    ],
)
def test_a_property_is_read_as_the_type_that_it_is_compared_with(
    property_text: str, other: Term, same: bool
) -> None:
    assert said(terms.equal(A, other), a=property_text) is same
    if other.type is not Type.BOOLEAN:
        assert said(terms.equal(other, A), a=property_text) is same


@pytest.mark.parametrize(
    ("property_text", "other"),
    [
        ("x", integer(5)),
        ("", integer(5)),
        ("5.0", integer(5)),
        (" 5", integer(5)),
        ("2147483648", integer(5)),
        ("9223372036854775808", terms.constant(Type.LONG, 5)),
        ("x", double(5.0)),
    ],
)
def test_a_property_that_is_no_such_number_cannot_be_compared(
    property_text: str, other: Term
) -> None:
    for term in (
        terms.equal(A, other),
        terms.equal(other, A),
        *(terms.ordered(A, symbol, other) for symbol in terms.ORDERS),
        *(terms.ordered(other, symbol, A) for symbol in terms.ORDERS),
    ):
        with pytest.raises(NotComparable):
            said(term, a=property_text)
        assert not said(term)


def test_a_property_behind_a_boolean_cannot_be_compared_with_it() -> None:
    with pytest.raises(NotComparable):
        said(terms.equal(TRUE, A), a="true")


@pytest.mark.parametrize("other", [integer(0), double(0.0), terms.negative(integer(1))])
def test_a_boolean_is_never_equal_to_a_number(other: Term) -> None:
    for boolean in (FALSE, TRUE, terms.is_null(A)):
        assert said(terms.equal(boolean, other)) is False
        assert said(terms.equal(other, boolean)) is False


def test_numbers_of_two_types_are_compared_as_doubles_if_one_is_a_double() -> None:
    near = 2**53
    assert said(terms.equal(terms.constant(Type.LONG, near + 1), double(float(near)))) is True
    assert said(terms.equal(terms.constant(Type.LONG, near + 1), integer(near))) is False


def test_two_missing_properties_are_equal_and_one_is_unknown_or_not() -> None:
    same = terms.equal(A, B)

    assert said(same) is True
    assert said(same, b="x") is None
    assert said(same, a="x") is False
    assert [said(same, a="x", b="x"), said(same, a="5", b="5.0")] == [True, False]


def test_a_missing_property_is_unknown_before_a_constant_and_differs_behind_it() -> None:
    assert said(terms.equal(A, integer(5))) is None
    assert said(terms.equal(integer(5), A)) is False


# order


@pytest.mark.parametrize(
    ("symbol", "below", "same", "above"),
    [
        (">", False, False, True),
        (">=", False, True, True),
        ("<", True, False, False),
        ("<=", True, True, False),
    ],
)
def test_the_four_orders_are_those_of_numbers(
    symbol: str, below: bool, same: bool, above: bool
) -> None:
    ordered = terms.ordered(A, symbol, integer(5))

    assert [said(ordered, a=number) for number in ("4", "5", "6")] == [below, same, above]
    between = terms.ordered(A, symbol, B)
    assert [said(between, a=number, b="5.0") for number in ("4.9", "5", "5.1")] == [
        below,
        same,
        above,
    ]


def test_an_order_is_unknown_if_a_side_is_missing() -> None:
    for symbol in terms.ORDERS:
        assert said(terms.ordered(A, symbol, B), a="1") is None
        assert said(terms.ordered(A, symbol, B), b="1") is None
        assert said(terms.ordered(A, symbol, integer(5))) is None
        assert said(terms.ordered(integer(5), symbol, A)) is None
        assert said(terms.ordered(UNKNOWN, symbol, A), a="1") is None


def test_javas_order_of_doubles_has_zeros_of_both_signs_and_nan_last() -> None:
    rising = ["-Infinity", "-1.5", "-0.0", "0.0", "1e-300", "Infinity", "NaN"]
    less = terms.ordered(A, "<", B)

    for (i, one), (j, other) in product(enumerate(rising), repeat=2):
        assert said(less, a=one, b=other) is (i < j)


numbers = st.integers(-(2**31), 2**31 - 1)


@given(numbers, numbers, st.sampled_from([*terms.ORDERS]))
def test_a_constant_is_compared_alike_on_either_side(one: int, other: int, symbol: str) -> None:
    """A property before a constant has a faster comparison of its own."""
    mirrored = symbol.translate(str.maketrans("<>", "><"))

    fast = terms.ordered(A, symbol, integer(other))
    slow = terms.ordered(integer(other), mirrored, A)

    assert said(fast, a=str(one)) is said(slow, a=str(one))
    assert said(terms.equal(A, integer(other)), a=str(one)) is (one == other)


# nesting


def test_each_term_around_others_is_one_level_deeper_than_the_deepest() -> None:
    assert [term.depth for term in (A, TRUE, integer(5))] == [1, 1, 1]
    assert [terms.negative(A).depth, terms.negative(integer(5)).depth] == [2, 2]
    for term in (terms.boolean_of(A), terms.is_null(A), terms.is_in(A, ["x"], wanted=True)):
        assert term.depth == 2
    deep = terms.inverse(terms.inverse(TRUE))
    for term in (
        terms.all_of([TRUE, deep]),
        terms.any_of([deep, TRUE]),
        terms.equal(A, deep),
        terms.ordered(terms.negative(terms.negative(A)), ">", A),
        terms.inverse(deep),
    ):
        assert term.depth == 4
    assert terms.equal(A, integer(5)).depth == 2


def test_a_comparison_is_a_condition_of_booleans() -> None:
    for term in (
        terms.equal(A, integer(5)),
        terms.ordered(A, "<", B),
        terms.equal(TRUE, integer(1)),
    ):
        assert (term.type, term.form, term.is_condition) == (Type.BOOLEAN, Form.CONDITION, True)
