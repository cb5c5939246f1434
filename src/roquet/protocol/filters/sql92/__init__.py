"""SQL92 filter expressions, compiled once and then asked for each message.

The grammar is Apache's with its oddities: `NOT a = 1` is `(NOT a) = 1`, what stands behind a whole expression is not
looked at, and a property that is no number where one is needed leaves its message out. `docs/guide/broker.md` tells
users; `tests/golden/filters` holds what Apache's own program says of some thousand expressions and messages.

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

_KEPT: Final = 256
"""Compiled expressions that are kept for those who bring the same text again with each pull."""


@dataclass(frozen=True, slots=True)
class SqlFilter:
    """A compiled expression.

    Keeps: it has at most `TERMS_MAX` terms, each of which is evaluated once for a message at most.
    """

    expression: str
    _evaluate: Evaluate = field(repr=False, compare=False)
    terms: int = field(default=1, repr=False, compare=False)
    """How many names and values it has: what it costs to ask it."""

    def evaluate(self, properties: Mapping[str, str]) -> bool | None:
        """What the expression is for a message with these properties; None: unknown.

        :raises NotComparable: a property is not what it is compared with.
        """
        truth: bool | None = self._evaluate(properties)
        return truth

    def matches(self, properties: Mapping[str, str]) -> bool:
        """Whether a message with these properties is wanted: only if the expression is true, beyond doubt."""
        try:
            return self._evaluate(properties) is True
        except NotComparable:
            return False


def compile_sql(expression: str) -> SqlFilter:
    """:raises FilterError: it is no such expression, or too long; the message says where and what was expected."""
    if len(expression) > EXPRESSION_SIZE_MAX:
        raise FilterError(
            EXPRESSION_SIZE_MAX,
            f"the expression has {len(expression)} characters, allowed are {EXPRESSION_SIZE_MAX}",
        )
    return _compiled(expression)


@lru_cache(_KEPT)
def _compiled(expression: str) -> SqlFilter:
    parser = Parser(expression)
    evaluate = parser.condition()
    return SqlFilter(expression, evaluate, parser.terms)
