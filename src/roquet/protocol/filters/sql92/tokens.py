"""Tokens of an SQL92 expression, read as the parser needs them."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum
from typing import Final

from roquet.errors import FilterError


class TokenKind(Enum):
    """The kind of a token. Keywords and symbols are distinguished by their text."""

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
"""Blanks of the last line: there two dashes are minus signs, since a comment needs a line end."""
_TOKEN: Final = re.compile(
    r"""
    (?P<FLOAT>
        [0-9]+ \. [0-9]* (?:[eE][+-]?[0-9]+)?
        | \. [0-9]+ (?:[eE][+-]?[0-9]+)?
        | [0-9]+ [eE][+-]?[0-9]+
    )
    | (?P<INTEGER> 0 | [1-9][0-9]*[lL]? )
    | (?P<TEXT> '(?:''|[^'])*' )
    | (?P<NAME> [A-Za-z_$][A-Za-z0-9_$]* )
    | (?P<SYMBOL> <> | >= | <= | [=<>(),+-] )
    """,
    re.VERBOSE,
)


@dataclass(frozen=True, slots=True)
class Token:
    """One token. `text` is as written (keywords in capitals), `position` in characters from 1."""

    kind: TokenKind
    text: str
    position: int

    @property
    def value(self) -> str:
        """The value of a text: without quotation marks."""
        return self.text[1:-1].replace("''", "'")

    def __str__(self) -> str:
        return "the end" if self.kind is TokenKind.END else f"{self.kind.value} {self.text}"


class Tokens:
    """The tokens of one expression, read when they are needed.

    Apache's parser reads only one token after a complete expression, so that invalid text after it
    is no error.
    """

    def __init__(self, text: str) -> None:
        self._text = text
        self._last_line_end = max(text.rfind("\n"), text.rfind("\r"))
        self._at = 0
        self._next: Token | None = None

    def peek(self) -> Token:
        """Return the next token without consuming it.

        :raises FilterError: the text there is no token.
        """
        if self._next is None:
            self._next = self._read()
        return self._next

    def take(self) -> Token:
        """Return the next token and consume it."""
        token = self.peek()
        self._next = None
        return token

    def _read(self) -> Token:
        at = self._after_blanks()
        if at == len(self._text):
            return Token(TokenKind.END, "", at + 1)
        match = _TOKEN.match(self._text, at)
        if match is None or match.lastgroup is None:
            raise FilterError(at + 1, _reason(self._text, at))
        self._at = match.end()
        text = match.group()
        if match.lastgroup == TokenKind.NAME.name and text.upper() in KEYWORDS:
            return Token(TokenKind.KEYWORD, text.upper(), at + 1)
        return Token(TokenKind[match.lastgroup], text, at + 1)

    def _after_blanks(self) -> int:
        blanks = _BLANKS if self._at <= self._last_line_end else _BLANKS_OF_LAST_LINE
        match = blanks.match(self._text, self._at)
        return match.end() if match else self._at


def _reason(text: str, at: int) -> str:
    if text[at] == "'":
        return "the text that begins here has no closing '"
    if text.startswith("/*", at):
        return "the comment that begins here has no closing */"
    return f"{text[at]!r} cannot stand in an expression"
