"""Terms: the parts of a compiled expression, each a function of a message's properties.

A property is text, or missing (None). Its text is converted to the type it is compared with, so
types are known when an expression is compiled.

See docs/broker/filters.md#sql92.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from typing import Any, Final, TypeAlias

from roquet.common import java

Properties: TypeAlias = Mapping[str, str]
Value: TypeAlias = "str | int | float | bool | None"
Evaluate: TypeAlias = Callable[[Properties], Any]
"""Returns a `Value`; of a condition True, False or None (unknown)."""
Convert: TypeAlias = Callable[[Any], Any]
Test: TypeAlias = Callable[[Any, Any], bool]


class NotComparable(Exception):  # noqa: N818 - of one message's property, not a failure
    """A property has no value of the type it is compared with: the message does not match."""


class Type(Enum):
    """The type of a term's value. As in Java, whole numbers (also in text) are `int` or `long`."""

    TEXT = auto()
    INT = auto()
    LONG = auto()
    DOUBLE = auto()
    BOOLEAN = auto()
    NOTHING = auto()


NUMBERS: Final = frozenset((Type.INT, Type.LONG, Type.DOUBLE))


class Form(Enum):
    """The grammatical form of a term, besides its type."""

    CONSTANT = auto()
    PROPERTY = auto()
    CONDITION = auto()
    NEGATION = auto()


@dataclass(frozen=True, slots=True)
class Term:
    """A part of an expression. `value` is that of a constant, `depth` the nesting of its terms."""

    type: Type
    form: Form
    evaluate: Evaluate
    value: Value = None
    depth: int = 1

    @property
    def is_condition(self) -> bool:
        """Whether it can be a condition; TRUE, FALSE and NULL are constants and conditions."""
        return self.form is Form.CONDITION or (
            self.form is Form.CONSTANT and self.type in (Type.BOOLEAN, Type.NOTHING)
        )


def constant(kind: Type, value: Value) -> Term:
    return Term(kind, Form.CONSTANT, lambda _: value, value)


def named(name: str) -> Term:
    """The term of a property."""
    return Term(Type.TEXT, Form.PROPERTY, lambda properties: properties.get(name))


def _condition(evaluate: Evaluate, *parts: Term) -> Term:
    return Term(Type.BOOLEAN, Form.CONDITION, evaluate, depth=1 + max(part.depth for part in parts))


def boolean_of(term: Term) -> Term:
    """A property as a condition: False if it is present, unknown if it is missing."""
    text = term.evaluate
    return _condition(lambda properties: None if text(properties) is None else False, term)


def negative(term: Term) -> Term:
    """Minus. The result is unknown if the operand is no number."""
    evaluate = term.evaluate
    if term.type not in NUMBERS:

        def nothing(properties: Properties) -> None:
            evaluate(properties)  # it may raise NotComparable

        return Term(Type.NOTHING, Form.NEGATION, nothing, depth=term.depth + 1)
    return Term(
        term.type, Form.NEGATION, lambda properties: -evaluate(properties), depth=term.depth + 1
    )


def inverse(term: Term) -> Term:
    evaluate = term.evaluate

    def is_not(properties: Properties) -> bool | None:
        value = evaluate(properties)
        return None if value is None else not value

    return _condition(is_not, term)


def all_of(terms: Sequence[Term]) -> Term:
    """AND, evaluated from the left up to the first false term."""
    return _joined(terms, decides=False)


def any_of(terms: Sequence[Term]) -> Term:
    """OR, evaluated from the left up to the first true term."""
    return _joined(terms, decides=True)


def _joined(terms: Sequence[Term], *, decides: bool) -> Term:
    parts = [term.evaluate for term in terms]

    def joined(properties: Properties) -> bool | None:
        value: bool | None = not decides
        for part in parts:
            found: bool | None = part(properties)
            if found is decides:
                return found
            if found is None:
                value = None
        return value

    return _condition(joined, *terms)


def is_null(term: Term) -> Term:
    evaluate = term.evaluate
    return _condition(lambda properties: evaluate(properties) is None, term)


def is_in(term: Term, texts: Sequence[str], *, wanted: bool) -> Term:
    """IN and NOT IN."""
    evaluate, among = term.evaluate, frozenset(texts)

    def found(properties: Properties) -> bool | None:
        text = evaluate(properties)
        return None if text is None else (text in among) is wanted

    return _condition(found, term)


def _same(value: Any) -> Any:
    return value


_READ: Final[Mapping[Type, Convert]] = {
    Type.INT: java.read_int,
    Type.LONG: java.read_long,
    Type.DOUBLE: java.read_double_key,
    Type.BOOLEAN: java.read_boolean,
}


def _is_apart(left: Type, right: Type) -> bool:
    """Whether the types are never equal: a boolean and a number (or NULL)."""
    return (left is Type.BOOLEAN) != (right is Type.BOOLEAN) and Type.TEXT not in (left, right)


def _conversions(left: Type, right: Type) -> tuple[Convert, Convert]:
    """The conversions of both sides before they are compared."""
    if left is Type.TEXT and right is not Type.TEXT:
        return _READ.get(right, _same), _as_double(right, right)
    if right is Type.TEXT and left is not Type.TEXT:
        as_right = _not_after_a_boolean if left is Type.BOOLEAN else _READ.get(left, _same)
        return _as_double(left, left), as_right
    return _as_double(left, right), _as_double(right, left)


def _as_double(kind: Type, other: Type) -> Convert:
    """The conversion of a number that is a double or is compared with one."""
    if kind in NUMBERS and Type.DOUBLE in (kind, other):
        return lambda number: java.double_key(float(number))
    return _same


def _not_after_a_boolean(text: str) -> bool:
    raise ValueError(f"text {text!r} is compared with a boolean before it")


def equal(left: Term, right: Term) -> Term:
    if _is_apart(left.type, right.type):
        return _equality(left, right, _same, _same, lambda one, other: False)
    return _equality(left, right, *_conversions(left.type, right.type), operator.eq)


def _equality(left: Term, right: Term, as_left: Convert, as_right: Convert, same: Test) -> Term:
    """Equality with Apache's rules for missing values.

    Both missing: True. Only the left one missing: unknown. Only the right one missing: False.
    """
    first, second = left.evaluate, right.evaluate

    def equality(properties: Properties) -> bool | None:
        one, other = first(properties), second(properties)
        if one is None:
            return True if other is None else None
        return False if other is None else _tested(same, as_left, one, as_right, other)

    return _with_constant(left, right, as_left, as_right, same) or _condition(equality, left, right)


ORDERS: Final[Mapping[str, Test]] = {
    ">": operator.gt,
    ">=": operator.ge,
    "<": operator.lt,
    "<=": operator.le,
}


def ordered(left: Term, symbol: str, right: Term) -> Term:
    """One of `ORDERS`; two properties are compared as doubles."""
    as_left, as_right = _conversions(left.type, right.type)
    if left.type is right.type is Type.TEXT:
        as_left = as_right = java.read_double_key
    first, second, test = left.evaluate, right.evaluate, ORDERS[symbol]

    def order(properties: Properties) -> bool | None:
        one = first(properties)
        if one is None:
            return None
        other = second(properties)
        return None if other is None else _tested(test, as_left, one, as_right, other)

    return _with_constant(left, right, as_left, as_right, test) or _condition(order, left, right)


def _with_constant(
    left: Term, right: Term, as_left: Convert, as_right: Convert, test: Test
) -> Term | None:
    """A faster comparison of a property with a constant, the usual case; None for other terms."""
    if left.form is not Form.PROPERTY or right.form is not Form.CONSTANT or right.value is None:
        return None
    text, other = left.evaluate, as_right(right.value)

    def comparison(properties: Properties) -> bool | None:
        one = text(properties)
        if one is None:
            return None
        try:
            return test(as_left(one), other)
        except ValueError as error:
            raise NotComparable from error

    return _condition(comparison, left, right)


def _tested(test: Test, as_left: Convert, one: Any, as_right: Convert, other: Any) -> bool:
    try:
        return test(as_left(one), as_right(other))
    except ValueError as error:
        raise NotComparable from error
