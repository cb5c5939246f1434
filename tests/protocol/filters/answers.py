"""What an SQL92 expression says of properties."""

from __future__ import annotations

from roquet.errors import FilterError
from roquet.protocol.filters.sql92 import compile_sql
from roquet.protocol.filters.sql92.terms import NotComparable
from tests.interop.filters import REFUSED, VERDICTS


def answer(expression: str, asked: list[dict[str, str]]) -> str:
    """As Apache's program would write it."""
    letters = {truth: letter for letter, truth in VERDICTS.items()}
    try:
        compiled = compile_sql(expression)
    except FilterError:
        return REFUSED
    found = ""
    for message in asked:
        try:
            found += letters[compiled.evaluate(message)]
        except NotComparable:
            found += "x"
    return found
