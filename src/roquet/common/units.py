"""Integers that must not be mixed up, told apart by mypy."""

from __future__ import annotations

from typing import Annotated, Final, NewType

PhysicalOffset = NewType("PhysicalOffset", int)
"""Bytes from the very start of a commit log."""

QueueOffset = NewType("QueueOffset", int)
"""Entries from the start of one consume queue."""

Milliseconds = NewType("Milliseconds", int)
"""A span of time, or a moment since the epoch, in milliseconds."""

INT_MIN: Final = -(1 << 31)
INT_MAX: Final = (1 << 31) - 1
LONG_MIN: Final = -(1 << 63)
LONG_MAX: Final = (1 << 63) - 1
"""Java's `int` and `long`, in which Apache's programs keep every number of the protocol and of the store."""

Int32 = Annotated[int, INT_MAX]
Int64 = Annotated[int, LONG_MAX]
"""A number of a header that Apache's programs keep in an `int` or a `long`; it is read as such."""
