"""Names and values of options: one way to take them, one error that says what would be right."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from roquet.errors import OptionError
from roquet.spark._options.values import (
    boolean,
    by_documented_name,
    count,
    name_server,
    one_of,
    tags,
    topics,
)

NAMES = ("nameServer", "subscribe", "failOnDataLoss")
ALIASES = {"topic": "subscribe"}


def test_names_are_found_in_any_case_and_by_their_aliases() -> None:
    given = {"NAMESERVER": " a:1 ", "Topic": "orders"}
    assert by_documented_name(given, NAMES, ALIASES) == {"nameServer": "a:1", "subscribe": "orders"}


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"failondatalos": "true"}, "unknown option failondatalos: did you mean failOnDataLoss?"),
        ({"topics": "orders"}, "did you mean topic?"),
        (
            {"zzz": "1"},
            "unknown option zzz: the options are failOnDataLoss, nameServer, subscribe, topic",
        ),
        (
            {"topic": "a", "subscribe": "b"},
            "topic and subscribe are the same option|subscribe and topic are",
        ),
    ],
)
def test_a_wrong_name_is_told_with_the_right_one(given: dict[str, str], words: str) -> None:
    with pytest.raises(OptionError, match=words.replace("?", r"\?")):
        by_documented_name(given, NAMES, ALIASES)


def test_values_of_the_usual_kinds_are_read() -> None:
    assert name_server({"nameServer": "a:1, b:2;[::1]:3"}) == "a:1;b:2;[::1]:3"
    assert topics("subscribe", "orders, %RETRY%g,,orders") == ("orders", "%RETRY%g")
    assert (boolean("x", "TRUE"), boolean("x", "false")) == (True, False)
    assert count("x", "7") == 7
    assert one_of("x", "Any", ("master", "any")) == "any"
    assert (tags("x", "A || B"), tags("x", "*")) == (frozenset({"A", "B"}), None)


@pytest.mark.parametrize(
    ("take", "text", "words"),
    [
        (topics, " , ", "x: give one topic"),
        (topics, "no blanks", "x: .*'no blanks'"),
        (boolean, "yes", "x: 'yes' is none of true, false"),
        (count, "0", "x: '0' is no whole number above 0"),
        (count, "1.5", "x: '1.5' is no whole number above 0"),
        (count, "9" * 5000, "x: '9+' is no whole number above 0"),
        (tags, "||", "x: give tags separated by"),
    ],
)
def test_a_wrong_value_is_told_with_what_is_allowed(
    take: Callable[[str, str], object], text: str, words: str
) -> None:
    with pytest.raises(OptionError, match=words):
        take("x", text)


@pytest.mark.parametrize(
    "text", ["", "localhost", "localhost:0", "localhost:99999", ":9876", "h:" + "9" * 5000]
)
def test_a_name_server_needs_a_host_and_a_port(text: str) -> None:
    with pytest.raises(OptionError, match=r"nameServer.*host:port"):
        name_server({"nameServer": text})
