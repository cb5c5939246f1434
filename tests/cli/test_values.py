"""What options of several commands take."""

from __future__ import annotations

import click
import pytest

from roquet.cli.values import duration, moment, names, pairs

CONTEXT = click.Context(click.Command("command"))
OPTION = click.Option(["--option"])


@pytest.mark.parametrize(
    ("text", "ms"),
    [
        ("1700000000000", 1_700_000_000_000),
        ("2023-11-14T22:13:20", 1_700_000_000_000),
        ("2023-11-14T23:13:20.5+01:00", 1_700_000_000_500),
        ("2023-11-14", 1_699_920_000_000),
    ],
)
def test_a_moment_is_ms_or_iso_in_utc_where_no_zone_is_named(text: str, ms: int) -> None:
    assert moment(CONTEXT, OPTION, text) == ms


@pytest.mark.parametrize("text", ["", "yesterday", "-5", "²", "9" * 5000])
def test_what_is_no_moment_is_said_to_be_none(text: str) -> None:
    with pytest.raises(click.BadParameter, match="neither ms since the epoch nor an ISO time"):
        moment(CONTEXT, OPTION, text)


@pytest.mark.parametrize(
    ("text", "seconds"), [("90", 90), ("10s", 10), ("1.5m", 90), ("2h", 7200), ("1d", 86_400)]
)
def test_a_duration_is_a_number_with_its_unit(text: str, seconds: float) -> None:
    assert duration(CONTEXT, OPTION, text) == seconds


@pytest.mark.parametrize("text", ["", "0s", "-1s", "5 m", "1w"])
def test_what_is_no_duration_is_said_to_be_none(text: str) -> None:
    with pytest.raises(click.BadParameter, match="is not a duration"):
        duration(CONTEXT, OPTION, text)


def test_a_pair_may_have_nothing_behind_its_first_equals_sign_or_more_of_them() -> None:
    assert pairs(CONTEXT, OPTION, ("a=", "b=c=d")) == {"a": "", "b": "c=d"}
    for text in "a", "=b":
        with pytest.raises(click.BadParameter, match="is not NAME=VALUE"):
            pairs(CONTEXT, OPTION, (text,))


def test_names_are_what_commas_separate_without_the_blanks_around() -> None:
    assert names(CONTEXT, OPTION, "/data/a, /data/b,") == ("/data/a", "/data/b")
    assert names(CONTEXT, OPTION, "") == ()
