"""PURE: Java's names of fields, ranges of integers, texts of numbers and order of doubles.

Each `read_...` raises ValueError where Java would throw. `int_or` and `long_or` never raise: they
are for the properties of stored messages, which may have any text.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from math import copysign, inf, isnan
from typing import Annotated, Final, TypeAlias

INT_MIN: Final = -(1 << 31)
INT_MAX: Final = (1 << 31) - 1
LONG_MIN: Final = -(1 << 63)
LONG_MAX: Final = (1 << 63) - 1
"""Bounds of Java's `int` and `long`, which all numbers of the protocol and the store have."""

Int32 = Annotated[int, INT_MAX]
Int64 = Annotated[int, LONG_MAX]
"""A header field that Apache's programs keep in an `int` or a `long`; it is read in that range."""


def camel_case(name: str) -> str:
    """The name of a Python field in camel case: `queueOffset` of `queue_offset`."""
    first, *rest = name.split("_")
    return first + "".join(word.capitalize() for word in rest)


_WHOLE: Final = re.compile(r"[+-]?\d+")
"""Digits of any script, as Java has it."""
_LAST_OF_ONE_UNIT: Final = "\uffff"
"""Java reads UTF-16 units: a digit above this is two units, neither of which is a digit."""
_DIGITS_MAX: Final = 40
"""A number of so many digits is beyond a `long`: Python need not convert thousands of them."""
_BLANKS: Final = "".join(map(chr, range(0x21)))
"""What Java's `trim` removes: all characters up to the blank."""
_DECIMAL: Final = re.compile(r"([+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)[fFdD]?")
_HEXADECIMAL: Final = re.compile(
    r"([+-]?0[xX](?:[0-9a-fA-F]+\.?|[0-9a-fA-F]*\.[0-9a-fA-F]+)[pP][+-]?[0-9]+)[fFdD]?"
)
_NAMED_NUMBERS: Final = {
    f"{sign}{name}": float(f"{sign}{name}")
    for sign in ("", "+", "-")
    for name in ("NaN", "Infinity")
}

DoubleKey: TypeAlias = tuple[bool, float, float]


def _whole_number(last: int) -> Callable[[str], int]:
    """The parser of whole numbers from `-last - 1` to `last`."""

    def read(text: str) -> int:
        number = int(
            text if text.isascii() and text.isdigit() and len(text) < _DIGITS_MAX else _digits(text)
        )
        if not -last - 1 <= number <= last:
            raise ValueError(f"{text} is beyond {last}")
        return number

    return read


def _digits(text: str) -> str:
    """Check the digits of a whole number.

    Of a long one only `_DIGITS_MAX` digits are left, without leading zeros.
    """
    if _WHOLE.fullmatch(text) is None or max(text) > _LAST_OF_ONE_UNIT:
        raise ValueError(f"{text!r} is no whole number")
    if len(text) < _DIGITS_MAX:
        return text
    sign, digits = (text[0], text[1:]) if text[0] in "+-" else ("", text)
    first = next((at for at, digit in enumerate(digits) if int(digit)), len(digits) - 1)
    return sign + digits[first : first + _DIGITS_MAX]


read_int: Final = _whole_number(INT_MAX)
read_long: Final = _whole_number(LONG_MAX)


def int_or(text: str | None, otherwise: int) -> int:
    """Parse as Java's Integer.parseInt; `otherwise` if `text` is None or Java would throw."""
    return _read_or(read_int, text, otherwise)


def long_or(text: str | None, otherwise: int) -> int:
    """Parse as Java's Long.parseLong; `otherwise` if `text` is None or Java would throw."""
    return _read_or(read_long, text, otherwise)


def _read_or(read: Callable[[str], int], text: str | None, otherwise: int) -> int:
    try:
        return read(text) if text is not None else otherwise
    except ValueError:
        return otherwise


def read_double(text: str) -> float:
    """Parse as Java's Double.parseDouble."""
    text = text.strip(_BLANKS)
    if text in _NAMED_NUMBERS:
        return _NAMED_NUMBERS[text]
    decimal = _DECIMAL.fullmatch(text)
    if decimal is not None:
        return float(decimal.group(1))
    hexadecimal = _HEXADECIMAL.fullmatch(text)
    if hexadecimal is None:
        raise ValueError(f"{text!r} is no number")
    try:
        return float.fromhex(hexadecimal.group(1))
    except OverflowError:
        return copysign(inf, -1 if text.startswith("-") else 1)


def double_key(number: float) -> DoubleKey:
    """A sort key in Java's order of doubles: -0.0 before 0.0, NaN last and equal to itself."""
    return (True, 0.0, 0.0) if isnan(number) else (False, number, copysign(1, number))


def read_double_key(text: str) -> DoubleKey:
    """The `double_key` of a number's text."""
    return double_key(read_double(text))


def read_boolean(text: str) -> bool:
    """Parse as Java's Boolean.parseBoolean: any text but "true" is False."""
    return text.lower() == "true"
