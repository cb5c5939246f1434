"""SQL92 filter expressions: compiled once, evaluated for each message.

The grammar is Apache's, with its oddities. `NOT a = 1` is `(NOT a) = 1`. Text after a complete
expression is ignored. A message does not match if a property is no number where one is needed.
`docs/guide/broker.md` is for users; `tests/golden/filters` has the results of Apache's own program
for some thousand expressions and messages.

See docs/broker/filters.md#sql92.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Final

from roquet.errors import FilterError
from roquet.protocol.filters.sql92.parser import Parser
from roquet.protocol.filters.sql92.terms import Evaluate, NotComparable
from roquet.protocol.filters.tags import EXPRESSION_SIZE_MAX

_CACHED_MAX: Final = 256
"""Compiled expressions cached: clients send the same text with each pull."""


@dataclass(frozen=True, slots=True)
class SqlExpression:
    """A compiled expression.

    Invariant: it has at most `TERMS_MAX` terms; each is evaluated at most once per message.
    """

    expression: str
    evaluate: Evaluate = field(repr=False, compare=False)
    """Evaluates the expression for a message with some properties: True, False or None (unknown).

    It raises `NotComparable` if a property cannot be converted to the type it is compared with.
    """
    terms: int = field(default=1, repr=False, compare=False)
    """Number of names and values, the measure of its cost."""

    def matches(self, properties: Mapping[str, str]) -> bool:
        """Whether the expression is true for these properties: not unknown, and without errors."""
        try:
            return self.evaluate(properties) is True
        except NotComparable:
            return False


def compile_sql(expression: str) -> SqlExpression:
    """Compile an expression.

    :raises FilterError: it is invalid or too long; the message says where and what was expected.
    """
    if len(expression) > EXPRESSION_SIZE_MAX:
        raise FilterError(
            EXPRESSION_SIZE_MAX,
            f"the expression has {len(expression)} characters, allowed are {EXPRESSION_SIZE_MAX}",
        )
    return _compiled(expression)


@lru_cache(_CACHED_MAX)
def _compiled(expression: str) -> SqlExpression:
    parser = Parser(expression)
    return SqlExpression(expression, parser.condition(), parser.terms)
