"""Parser of SQL92 expressions, with Apache's grammar.

Operators, loosest first: OR; AND; `=` `<>` IS; `>` `>=` `<` `<=` BETWEEN IN; `+` `-` NOT. Operands
are values, names and parentheses.

See docs/broker/filters.md#sql92.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import inf
from typing import Final

from roquet.common.java import INT_MAX, LONG_MAX, double_key
from roquet.errors import FilterError
from roquet.protocol.filters.sql92 import terms as t
from roquet.protocol.filters.sql92.terms import ORDERS, Form, Term, Type
from roquet.protocol.filters.sql92.tokens import Token, TokenKind, Tokens

DEPTH_MAX: Final = 64
"""Nesting allowed. Apache's parser allows some hundred levels more, until its stack overflows."""
TERMS_MAX: Final = 1024
"""Names and values of an expression, not counting those in lists: some 100 us per message."""
_VALUE: Final = "a value, a name, NOT, +, - or ("
_WORDS: Final[Mapping[str, Term]] = {
    "TRUE": t.constant(Type.BOOLEAN, True),
    "FALSE": t.constant(Type.BOOLEAN, False),
    "NULL": t.constant(Type.NOTHING, None),
}


_Step = Callable[["Parser", Term, Token, Token], Term]
"""Reads on after an operator: left side, operator, first token of the left side."""


class Parser:
    """Parser of one expression; `terms` is the number of names and values read so far."""

    def __init__(self, text: str) -> None:
        self.terms = 0
        self._tokens = Tokens(text)
        self._open = 0

    def condition(self) -> t.Evaluate:
        """Parse the expression.

        :returns: the function that evaluates it.
        :raises FilterError: it is invalid, or is no condition.
        """
        first = self._tokens.peek()
        return _as_condition(self._any(), first).evaluate

    # the grammar, loosest first

    def _any(self) -> Term:
        return self._joined("OR", self._all, t.any_of)

    def _all(self) -> Term:
        return self._joined("AND", self._equality, t.all_of)

    def _joined(
        self, word: str, part: Callable[[], Term], join: Callable[[Sequence[Term]], Term]
    ) -> Term:
        begin = self._tokens.peek()
        first = part()
        if not self._is_next(word):
            return first
        parts = [_as_condition(first, begin)]
        while self._is_next(word):
            self._tokens.take()
            begin = self._tokens.peek()
            parts.append(_as_condition(part(), begin))
        return self._checked(join(parts), begin)

    def _equality(self) -> Term:
        begin = self._tokens.peek()
        left = self._comparison()
        while step := self._EQUALITIES.get(self._tokens.peek().text):
            left = self._checked(step(self, left, self._tokens.take(), begin), begin)
        return left

    def _equal(self, left: Term, symbol: Token, begin: Token) -> Term:
        place = self._tokens.peek()
        right = self._comparison()
        for term, at in ((left, begin), (right, place)):
            if term.form is Form.CONSTANT and term.value is None:
                raise FilterError(
                    at.position,
                    f"NULL cannot be compared by {symbol.text}: use IS NULL or IS NOT NULL",
                )
        if left.form is right.form is Form.CONSTANT and left.type is Type.BOOLEAN is not right.type:
            raise FilterError(begin.position, f"a boolean cannot be compared with {place}")
        same = t.equal(left, right)
        return same if symbol.text == "=" else t.inverse(same)

    def _is(self, left: Term, _symbol: Token, _begin: Token) -> Term:
        is_not = self._is_next("NOT")
        if is_not:
            self._tokens.take()
        self._expect("NULL", "NULL" if is_not else "NULL or NOT NULL")
        return t.inverse(t.is_null(left)) if is_not else t.is_null(left)

    def _comparison(self) -> Term:
        begin = self._tokens.peek()
        left = self._unary()
        while step := self._COMPARISONS.get(self._tokens.peek().text):
            left = self._checked(step(self, left, self._tokens.take(), begin), begin)
        return left

    def _ordered(self, left: Term, symbol: Token, begin: Token) -> Term:
        place = self._tokens.peek()
        right = self._unary()
        return _ordered(left, begin, symbol, right, place)

    def _not(self, left: Term, _symbol: Token, begin: Token) -> Term:
        """NOT after an operand: NOT BETWEEN or NOT IN."""
        word = self._tokens.take()
        if word.text == "BETWEEN":
            return self._between(left, word, begin, is_inside=False)
        if word.text == "IN":
            return self._in(left, word, begin, wanted=False)
        raise FilterError(word.position, f"expected BETWEEN or IN, found {word}")

    def _between(self, left: Term, symbol: Token, begin: Token, *, is_inside: bool = True) -> Term:
        low_place = self._tokens.peek()
        low = self._unary()
        self._expect("AND", "AND")
        high_place = self._tokens.peek()
        high = self._unary()
        below, above = (">=", "<=") if is_inside else ("<", ">")
        bounds = [
            _ordered(left, begin, symbol, low, low_place, below),
            _ordered(left, begin, symbol, high, high_place, above),
        ]
        if is_inside and low.form is high.form is Form.CONSTANT and _is_greater(low, high):
            raise FilterError(
                low_place.position, f"BETWEEN from {low.value}, which is more than {high.value}"
            )
        return t.all_of(bounds) if is_inside else t.any_of(bounds)

    def _in(self, left: Term, _symbol: Token, begin: Token, *, wanted: bool = True) -> Term:
        self._expect("(", "( and texts")
        texts = [self._text()]
        while self._is_next(","):
            self._tokens.take()
            texts.append(self._text())
        self._expect(")", ", or )")
        if left.form is not Form.PROPERTY:
            raise FilterError(begin.position, "only a property can be IN a list")
        return t.is_in(left, texts, wanted=wanted)

    def _text(self) -> str:
        token = self._tokens.take()
        if token.kind is not TokenKind.TEXT:
            raise FilterError(token.position, f"expected a text in quotation marks, found {token}")
        return token.value

    _EQUALITIES: Final[Mapping[str, _Step]] = {"=": _equal, "<>": _equal, "IS": _is}
    _COMPARISONS: Final[Mapping[str, _Step]] = {
        **dict.fromkeys(ORDERS, _ordered),
        "BETWEEN": _between,
        "IN": _in,
        "NOT": _not,
    }

    def _unary(self) -> Term:
        begin = self._tokens.peek()
        if begin.text not in ("+", "-", "NOT"):
            return self._primary()
        self._tokens.take()
        place = self._tokens.peek()
        self._go_deeper(begin)
        term = self._unary()
        self._open -= 1
        if begin.text == "+":
            return term
        return self._checked(
            t.negative(term) if begin.text == "-" else t.inverse(_as_condition(term, place)), begin
        )

    def _primary(self) -> Term:
        token = self._tokens.take()
        if token.text == "(":
            self._go_deeper(token)
            inner = self._any()
            self._expect(")", "an operator or )")
            self._open -= 1
            return inner
        self.terms += 1
        if self.terms > TERMS_MAX:
            raise FilterError(token.position, f"more than {TERMS_MAX} names and values")
        if token.text in _WORDS:
            return _WORDS[token.text]
        literal = _LITERALS.get(token.kind)
        if literal is None:
            raise FilterError(token.position, f"expected {_VALUE}, found {token}")
        return literal(token)

    # helpers

    def _is_next(self, text: str) -> bool:
        return self._tokens.peek().text == text

    def _expect(self, text: str, what: str) -> None:
        token = self._tokens.peek()
        if not self._is_next(text):
            raise FilterError(token.position, f"expected {what}, found {token}")
        self._tokens.take()

    def _go_deeper(self, place: Token) -> None:
        self._open += 1
        if self._open > DEPTH_MAX:
            raise FilterError(place.position, f"nested deeper than {DEPTH_MAX} levels")

    def _checked(self, term: Term, begin: Token) -> Term:
        if term.depth > DEPTH_MAX:
            raise FilterError(begin.position, f"nested deeper than {DEPTH_MAX} levels")
        return term


def _as_condition(term: Term, begin: Token) -> Term:
    if term.is_condition:
        return term
    if term.form is Form.PROPERTY:
        return t.boolean_of(term)
    raise FilterError(begin.position, f"expected a condition, found {begin}")


def _ordered(
    left: Term, begin: Token, symbol: Token, right: Term, place: Token, order: str = ""
) -> Term:
    for term, at in ((left, begin), (right, place)):
        if term.is_condition or (term.form is Form.CONSTANT and term.type not in t.NUMBERS):
            what = "a condition" if term.form is Form.CONDITION else str(at)
            raise FilterError(
                at.position, f"{symbol.text} compares numbers and properties, found {what}"
            )
    return t.ordered(left, order or symbol.text, right)


def _is_greater(low: Term, high: Term) -> bool:
    """Whether `low` > `high`, two number constants, compared as the operators do."""
    assert isinstance(low.value, int | float), "BETWEEN takes numbers only"
    assert isinstance(high.value, int | float), "BETWEEN takes numbers only"
    if Type.DOUBLE in (low.type, high.type):
        return double_key(float(low.value)) > double_key(float(high.value))
    return low.value > high.value


def _integer(token: Token) -> Term:
    digits = token.text.rstrip("lL")
    if len(digits) > len(str(LONG_MAX)) or int(digits) > LONG_MAX:
        raise FilterError(token.position, f"the number is beyond {LONG_MAX}")
    number = int(digits)
    return t.constant(Type.INT if number <= INT_MAX else Type.LONG, number)


def _float(token: Token) -> Term:
    number = float(token.text)
    if not 0.0 < number < inf:
        raise FilterError(
            token.position, "allowed are numbers from 4.9E-324 to 1.7976931348623157E308, zero is 0"
        )
    return t.constant(Type.DOUBLE, number)


_LITERALS: Final[Mapping[TokenKind, Callable[[Token], Term]]] = {
    TokenKind.TEXT: lambda token: t.constant(Type.TEXT, token.value),
    TokenKind.INTEGER: _integer,
    TokenKind.FLOAT: _float,
    TokenKind.NAME: lambda token: t.named(token.text),
}
