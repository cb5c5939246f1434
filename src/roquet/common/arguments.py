"""PURE: checks of the arguments that applications give."""

from __future__ import annotations

from collections.abc import Iterable

from roquet.common.java import INT_MAX
from roquet.errors import ConfigError


def check_number(name: str, number: object, least: int, most: int = INT_MAX) -> None:
    """Check a number that was given as an argument.

    :param name: the argument's name.
    :raises ConfigError: it is no whole number, or out of range.
    """
    if not isinstance(number, int) or isinstance(number, bool) or not least <= number <= most:
        raise ConfigError(f"{name} is {number!r}: allowed are {least} to {most}")


def check_bool(name: str, value: object) -> None:
    """Check a truth value that was given as an argument.

    :raises ConfigError: it is something else: the text "no" would count as True.
    """
    if not isinstance(value, bool):
        raise ConfigError(f"{name} is {value!r}: give True or False")


def unknown_keyword(function: str, name: str, known: Iterable[str]) -> TypeError:
    """What Python raises for an unknown keyword, with the keyword that was probably meant.

    :param function: the name of what was called.
    """
    import difflib  # it takes a millisecond, and only this error needs it

    near = difflib.get_close_matches(name, [each for each in known if each != name], 1)
    advice = f". Did you mean {near[0]!r}?" if near else ""
    return TypeError(f"{function}() got an unexpected keyword argument {name!r}{advice}")
