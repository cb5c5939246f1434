"""What becomes of a read that meets what is no message, or none that can be opened."""

from __future__ import annotations

from enum import Enum
from typing import Final

from roquet.protocol.records.compression import UNCOMPRESSED_MAX
from roquet.spark._options.values import OptionError, count, one_of

_BODY_MAX: Final = 1 << 30
"""A column of a batch cannot count more than twice as many bytes."""
BODY_OPTIONS: Final = ("mode", "maxUncompressedBytes")


class Mode(Enum):
    """An error; or a row less, or one that says why in the column `_corrupt`, and a line in the log."""

    FAILFAST = "failfast"
    PERMISSIVE = "permissive"


def mode(name: str, text: str) -> Mode:
    """:raises OptionError: there is no such mode."""
    return Mode(one_of(name, text, [each.value for each in Mode]))


def uncompressed_max(name: str, text: str) -> int:
    """Bytes that a body may have when it is decompressed.

    :raises OptionError: it is no number, or too large a one.
    """
    found = count(name, text)
    if found > _BODY_MAX:
        raise OptionError(
            f"{name}: {found} is above {_BODY_MAX}, the most for a row; {UNCOMPRESSED_MAX} will do"
        )
    return found
