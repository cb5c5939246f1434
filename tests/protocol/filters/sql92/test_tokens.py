"""An expression's tokens: how each is written, where it is, what is none."""

from __future__ import annotations

from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from roquet.errors import FilterError
from roquet.protocol.filters.sql92.tokens import KEYWORDS, Token, TokenKind, Tokens
from tests.protocol.expressions import expressions

SYMBOLS: Final = ["<>", ">=", "<=", "=", "<", ">", "(", ")", ",", "+", "-"]


def tokens(text: str) -> list[Token]:
    """All tokens before the end."""
    reader, found = Tokens(text), list[Token]()
    while reader.peek().kind is not TokenKind.END:
        found.append(reader.take())
    return found


def texts(text: str) -> list[str]:
    return [token.text for token in tokens(text)]


def kinds(text: str) -> list[TokenKind]:
    return [token.kind for token in tokens(text)]


@pytest.mark.parametrize(
    "number", ["0", "5", "10", "2147483648", "7l", "7L", "99999999999999999999999"]
)
def test_digits_are_a_whole_number(number: str) -> None:
    assert tokens(number) == [Token(TokenKind.INTEGER, number, 1)]


@pytest.mark.parametrize(
    "number", ["1.", "1.5", ".5", "00.5", "1e3", "1E+3", "1.5e-3", ".5e10", "0e1"]
)
def test_a_point_or_an_exponent_makes_another_number(number: str) -> None:
    assert tokens(number) == [Token(TokenKind.FLOAT, number, 1)]


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("007", ["0", "0", "7"]),
        ("0L", ["0", "L"]),
        ("7LL", ["7L", "L"]),
        ("1.5L", ["1.5", "L"]),
        ("1e", ["1", "e"]),
        ("1.2.3", ["1.2", ".3"]),
        ("5a", ["5", "a"]),
        ("-5", ["-", "5"]),
        ("a<>=b", ["a", "<>", "=", "b"]),
        ("a>==b", ["a", ">=", "=", "b"]),
        ("a=-b", ["a", "=", "-", "b"]),
        ("a=1AND", ["a", "=", "1", "AND"]),
    ],
)
def test_the_longest_token_is_taken(text: str, parts: list[str]) -> None:
    assert texts(text) == parts


@pytest.mark.parametrize("symbol", SYMBOLS)
def test_a_symbol_needs_no_blanks(symbol: str) -> None:
    assert kinds(f"a{symbol}b") == [TokenKind.NAME, TokenKind.SYMBOL, TokenKind.NAME]


@pytest.mark.parametrize("word", sorted(KEYWORDS))
def test_a_keyword_is_one_in_any_letters_and_is_given_in_capitals(word: str) -> None:
    for written in (word, word.lower(), word.capitalize()):
        assert tokens(f" {written}") == [Token(TokenKind.KEYWORD, word, 2)]


@pytest.mark.parametrize("name", ["a", "_", "$", "a1$_", "nothing", "IS_", "andy", "NULLS"])
def test_another_word_is_a_name_as_it_is_written(name: str) -> None:
    assert tokens(name) == [Token(TokenKind.NAME, name, 1)]


@given(st.text(max_size=12))
def test_a_text_in_quotation_marks_has_the_value_that_was_quoted(value: str) -> None:
    quoted = "'" + value.replace("'", "''") + "'"

    (token,) = tokens(f"{quoted} ")

    assert (token.kind, token.text, token.value) == (TokenKind.TEXT, quoted, value)


@pytest.mark.parametrize(
    "blanks",
    [
        " ",
        "\t\n\r\f",
        "-- no = token '\n",
        "--\r",
        "/* no = token ' */",
        "/**/",
        "/*\n*/",
        " --x\n/*y*/\t",
    ],
)
def test_blanks_and_comments_are_between_tokens(blanks: str) -> None:
    found = tokens(f"{blanks}a{blanks}={blanks}5{blanks}")

    assert [token.text for token in found] == ["a", "=", "5"]
    assert [token.position for token in found] == [
        1 + len(blanks),
        2 + 2 * len(blanks),
        3 + 3 * len(blanks),
    ]


def test_two_dashes_are_signs_in_the_last_line_and_a_comment_before_it() -> None:
    assert texts("a --b") == ["a", "-", "-", "b"]
    assert texts("a --b\n--c") == ["a", "-", "-", "c"]
    assert texts("a /*\n*/ --b") == ["a", "-", "-", "b"]


@pytest.mark.parametrize("text", ["", "  ", "/* x */", "-- x\n"])
def test_behind_the_last_token_is_the_end_however_often_one_asks(text: str) -> None:
    reader = Tokens(text)

    assert [reader.take() for _ in range(3)] == [Token(TokenKind.END, "", len(text) + 1)] * 3


def test_a_token_is_seen_before_it_is_taken_and_is_taken_once() -> None:
    reader = Tokens("a = 5")

    assert reader.peek() is reader.peek()
    assert reader.take() == Token(TokenKind.NAME, "a", 1)
    assert reader.take() == Token(TokenKind.SYMBOL, "=", 3)


@pytest.mark.parametrize(
    ("text", "position", "reason"),
    [
        ("a ?", 3, "'?' cannot stand in an expression"),
        ("a !", 3, "'!' cannot stand in an expression"),
        ("é", 1, "'é' cannot stand in an expression"),
        ("٣", 1, "'٣' cannot stand in an expression"),
        ("a\xa0b", 2, r"'\xa0' cannot stand in an expression"),
        ('"a"', 1, "'\"' cannot stand in an expression"),
        (".", 1, "'.' cannot stand in an expression"),
        ("a*2", 2, "'*' cannot stand in an expression"),
        ("a = 'x", 5, "the text that begins here has no closing '"),
        ("'x''", 4, "the text that begins here has no closing '"),
        ("a /* x", 3, "the comment that begins here has no closing */"),
        ("a /*/", 3, "the comment that begins here has no closing */"),
    ],
)
def test_what_is_no_token_is_refused_where_it_is(text: str, position: int, reason: str) -> None:
    with pytest.raises(FilterError) as caught:
        tokens(text)

    assert (caught.value.position, caught.value.reason) == (position, reason)


def test_what_is_no_token_is_refused_only_when_it_is_read() -> None:
    """Apache's parser does not read what is behind a complete expression and one token more."""
    reader = Tokens("a b ?")

    assert [reader.take().text, reader.take().text] == ["a", "b"]
    with pytest.raises(FilterError, match="position 5"):
        reader.peek()


@given(expressions)
def test_every_token_stands_where_it_says_in_the_order_of_the_text(expression: str) -> None:
    reader, end = Tokens(expression), 0
    try:
        while (token := reader.take()).kind is not TokenKind.END:
            at = token.position - 1
            assert at >= end
            end = at + len(token.text)
            assert expression[at:end].upper() == token.text.upper()
            assert token.kind is TokenKind.KEYWORD or expression[at:end] == token.text
    except FilterError as error:
        assert end < error.position <= len(expression)  # noqa: PT017 - most have no wrong token


def test_errors_call_a_token_by_its_kind_and_its_text() -> None:
    assert [str(token) for token in tokens("a is 5 1.5 'x' <=")] == [
        "name a",
        "keyword IS",
        "whole number 5",
        "number with a point or an exponent 1.5",
        "text 'x'",
        "symbol <=",
    ]
    assert str(Tokens("").peek()) == "the end"
