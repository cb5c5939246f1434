"""The words of an SQL92 expression, one after the other as the parser asks for them."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum
from typing import Final

from roquet.errors import FilterError


class Kind(Enum):
    """What a token is. Keywords and symbols are known by their text: nothing else is written so."""

    FLOAT = "number with a point or an exponent"
    INTEGER = "whole number"
    TEXT = "text"
    NAME = "name"
    KEYWORD = "keyword"
    SYMBOL = "symbol"
    END = "end"


KEYWORDS: Final = frozenset(("NOT", "AND", "OR", "BETWEEN", "IN", "TRUE", "FALSE", "NULL", "IS"))

_BLANKS: Final = re.compile(r"(?:[ \t\n\r\f]+|--[^\n\r]*[\n\r]|/\*.*?\*/)*", re.DOTALL)
_BLANKS_OF_LAST_LINE: Final = re.compile(r"(?:[ \t\f]+|/\*.*?\*/)*", re.DOTALL)
"""A comment that begins with two dashes needs its line to end: on the last one they are two minus signs."""
_TOKEN: Final = re.compile(
    r"""
    (?P<FLOAT> [0-9]+ \. [0-9]* (?:[eE][+-]?[0-9]+)? | \. [0-9]+ (?:[eE][+-]?[0-9]+)? | [0-9]+ [eE][+-]?[0-9]+ )
    | (?P<INTEGER> 0 | [1-9][0-9]*[lL]? )
    | (?P<TEXT> '(?:''|[^'])*' )
    | (?P<NAME> [A-Za-z_$][A-Za-z0-9_$]* )
    | (?P<SYMBOL> <> | >= | <= | [=<>(),+-] )
    """,
    re.VERBOSE,
)


@dataclass(frozen=True, slots=True)
class Token:
    """`text` is as written, of a keyword in capitals; `position` counts characters from 1."""

    kind: Kind
    text: str
    position: int

    @property
    def value(self) -> str:
        """Of a text: what stands between the quotation marks."""
        return self.text[1:-1].replace("''", "'")

    def __str__(self) -> str:
        return "the end" if self.kind is Kind.END else f"{self.kind.value} {self.text}"


class Tokens:
    """Keeps: what stands behind the token after the present one is read only when somebody asks for it: Apache's parser
    does not look at what follows a whole expression, but for one token.
    """

    def __init__(self, text: str) -> None:
        self._text = text
        self._last_line_end = max(text.rfind("\n"), text.rfind("\r"))
        self._at = 0
        self._waiting: list[Token] = []

    def peek(self, ahead: int = 0) -> Token:
        """The next token, or one further ahead; it stays the next one.

        :raises FilterError: there is something that is no token.
        """
        while len(self._waiting) <= ahead:
            self._waiting.append(self._read())
        return self._waiting[ahead]

    def take(self) -> Token:
        """The next token, which is passed now."""
        token = self.peek()
        del self._waiting[0]
        return token

    def _read(self) -> Token:
        at = self._behind_blanks()
        if at == len(self._text):
            return Token(Kind.END, "", at + 1)
        match = _TOKEN.match(self._text, at)
        if match is None or match.lastgroup is None:
            raise FilterError(at + 1, _reason(self._text, at))
        self._at = match.end()
        text = match.group()
        if match.lastgroup == Kind.NAME.name and text.upper() in KEYWORDS:
            return Token(Kind.KEYWORD, text.upper(), at + 1)
        return Token(Kind[match.lastgroup], text, at + 1)

    def _behind_blanks(self) -> int:
        blanks = _BLANKS if self._at <= self._last_line_end else _BLANKS_OF_LAST_LINE
        match = blanks.match(self._text, self._at)
        return match.end() if match else self._at


def _reason(text: str, at: int) -> str:
    if text[at] == "'":
        return "the text that begins here has no closing '"
    if text.startswith("/*", at):
        return "the comment that begins here has no closing */"
    return f"{text[at]!r} cannot stand in an expression"
