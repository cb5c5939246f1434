"""SQL92 filter expressions, compiled once and then asked for each message (store-and-ha.md 6.9).

The grammar is Apache's with its oddities: `NOT a = 1` is `(NOT a) = 1`, what stands behind a whole expression is not
looked at, and a property that is no number where one is needed leaves its message out. `docs/guide/broker.md` tells
users; `tests/golden/filters` holds what Apache's own program says of some thousand expressions and messages.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Final

from roquet.protocol.sql92.parser import Parser
from roquet.protocol.sql92.terms import Evaluate, NotComparable

_KEPT: Final = 256
"""Compiled expressions that are kept for those who bring the same text again with each pull."""


@dataclass(frozen=True, slots=True)
class SqlFilter:
    """A compiled expression."""

    expression: str
    _evaluate: Evaluate = field(repr=False, compare=False)

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


@lru_cache(_KEPT)
def compile_sql(expression: str) -> SqlFilter:
    """:raises FilterError: it is no such expression; the message says where and what was expected."""
    return SqlFilter(expression, Parser(expression).condition())
