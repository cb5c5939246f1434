"""Integers that must not be mixed up, told apart by mypy."""

from __future__ import annotations

from typing import NewType

PhysicalOffset = NewType("PhysicalOffset", int)
"""Bytes from the very start of a commit log."""

QueueOffset = NewType("QueueOffset", int)
"""Entries from the start of one consume queue."""

Milliseconds = NewType("Milliseconds", int)
"""A span of time, or a moment since the epoch, in milliseconds."""
