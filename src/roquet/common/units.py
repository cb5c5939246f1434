"""The ranges of Java's integers, and header fields of those ranges."""

from __future__ import annotations

from typing import Annotated, Final

INT_MIN: Final = -(1 << 31)
INT_MAX: Final = (1 << 31) - 1
LONG_MIN: Final = -(1 << 63)
LONG_MAX: Final = (1 << 63) - 1
"""Bounds of Java's `int` and `long`, which all numbers of the protocol and the store have."""

Int32 = Annotated[int, INT_MAX]
Int64 = Annotated[int, LONG_MAX]
"""A header field that Apache's programs keep in an `int` or a `long`; it is read in that range."""
