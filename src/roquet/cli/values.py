"""Parsers of option values: times, durations, pairs, lists."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Final

import click

_SECONDS: Final = {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86400}


def moment(context: click.Context, option: click.Parameter, value: str | None) -> int | None:
    """Parse a time: ms since the epoch, or ISO 8601 (UTC if it has no zone).

    :returns: ms since the epoch.
    """
    if value is None:
        return None
    try:
        if value.isdecimal():
            return int(value)  # ValueError for more digits than Python converts
        found = datetime.fromisoformat(value)
    except ValueError:
        raise click.BadParameter(
            f"{value!r} is neither ms since the epoch nor an ISO time", context, option
        ) from None
    return int((found if found.tzinfo else found.replace(tzinfo=UTC)).timestamp() * 1000)


def pairs(
    context: click.Context, option: click.Parameter, values: tuple[str, ...]
) -> dict[str, str]:
    """Parse the values `NAME=VALUE` of a repeated option."""
    found = {}
    for value in values:
        name, equals, text = value.partition("=")
        if not name or not equals:
            raise click.BadParameter(f"{value!r} is not NAME=VALUE", context, option)
        found[name] = text
    return found


def duration(context: click.Context, option: click.Parameter, value: str | None) -> float | None:
    """Parse a duration: `10s`, `5m`, `1h`, `2d`, or a number of seconds.

    :returns: seconds.
    """
    if value is None:
        return None
    match = re.fullmatch(r"(\d+(?:\.\d+)?)([smhd]?)", value)
    if match is None or not float(match[1]):
        raise click.BadParameter(
            f"{value!r} is not a duration such as 10s, 5m, 1h or 2d", context, option
        )
    return float(match[1]) * _SECONDS[match[2]]


def names(_context: click.Context, _option: click.Parameter, value: str) -> tuple[str, ...]:
    """Parse names that are separated by commas."""
    return tuple(part.strip() for part in value.split(",") if part.strip())
