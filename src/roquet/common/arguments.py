"""PURE: checks of the arguments that applications give."""

from __future__ import annotations

from roquet.common.java import INT_MAX
from roquet.errors import ConfigError


def check_number(name: str, number: object, least: int, most: int = INT_MAX) -> None:
    """Check a number that was given as an argument.

    :param name: the argument's name.
    :raises ConfigError: it is no whole number, or out of range.
    """
    if not isinstance(number, int) or isinstance(number, bool) or not least <= number <= most:
        raise ConfigError(f"{name} is {number!r}: allowed are {least} to {most}")
