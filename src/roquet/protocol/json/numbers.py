"""Reads numbers of JSON documents in the ranges of Java's `int` and `long`.

Numbers are checked here, once, when a body is decoded, and not again later. As in fastjson, text
and floats such as 4.0 are accepted.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from roquet.common.java import INT_MAX, INT_MIN, LONG_MAX, LONG_MIN, read_int, read_long

_EXACT: Final = 1 << 53
"""Floats below it are exact. orjson turns integers that do not fit 64 bits into floats."""


class NumberError(ValueError):
    """A value is not a number, or is outside of Java's range."""


def as_int32(value: object) -> int:
    """Convert a JSON value to Java's `int`.

    :raises NumberError: it is no number, or out of range.
    """
    return _number(value, read_int, INT_MIN, INT_MAX)


def as_int64(value: object) -> int:
    """Convert a JSON value to Java's `long`.

    :raises NumberError: it is no number, or out of range.
    """
    return _number(value, read_long, LONG_MIN, LONG_MAX)


def json_int(json: Mapping[str, Any], name: str, default: int | None = None) -> int:
    """Read a member of a JSON object as Java's `int`.

    :param default: the result if the member is missing.
    :raises KeyError: it is missing, and there is no default.
    :raises NumberError: it is no number, or out of range.
    """
    return _member(json, name, default, as_int32)


def json_long(json: Mapping[str, Any], name: str, default: int | None = None) -> int:
    """As `json_int`, for Java's `long`."""
    return _member(json, name, default, as_int64)


def _member(
    json: Mapping[str, Any], name: str, default: int | None, read: Callable[[object], int]
) -> int:
    try:
        return read(json[name] if default is None else json.get(name, default))
    except NumberError as error:
        raise NumberError(f"{name}: {error}") from None


def _number(value: object, parse: Callable[[str], int], least: int, most: int) -> int:
    if isinstance(value, str):
        try:
            return parse(value)
        except ValueError:
            raise NumberError(f"{value[:40]!a} is no number from {least} to {most}") from None
    if isinstance(value, int) or (isinstance(value, float) and abs(value) < _EXACT):
        number = int(value)
        if least <= number <= most:
            return number
    shown = value if isinstance(value, int | float) else type(value).__name__
    raise NumberError(f"{shown} is no number from {least} to {most}")
