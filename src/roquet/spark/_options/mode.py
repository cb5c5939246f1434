"""The options for damaged data: `mode` and `maxUncompressedBytes`."""

from __future__ import annotations

from enum import Enum
from typing import Final

from roquet.errors import OptionError
from roquet.protocol.records.compression import UNCOMPRESSED_MAX
from roquet.spark._options.values import count, one_of

_BODY_MAX: Final = 1 << 30
"""1 GiB: an Arrow binary column has 32-bit offsets, so it holds less than 2 GiB per batch."""
BODY_OPTIONS: Final = ("mode", "maxUncompressedBytes")


class Mode(Enum):
    """Whether damaged data fails the read (FAILFAST) or is logged and skipped (PERMISSIVE).

    PERMISSIVE produces a row for damaged data if the schema has the column `_corrupt`.
    """

    FAILFAST = "failfast"
    PERMISSIVE = "permissive"


def mode(name: str, text: str) -> Mode:
    """The mode that an option names.

    :raises OptionError: there is no such mode.
    """
    return Mode(one_of(name, text, [each.value for each in Mode]))


def uncompressed_max(name: str, text: str) -> int:
    """The largest size of a decompressed body, in bytes.

    :raises OptionError: the value is no number above 0, or it is above 1 GiB.
    """
    found = count(name, text)
    if found > _BODY_MAX:
        raise OptionError(
            f"{name}: {found} is above {_BODY_MAX}, the largest body of a row; "
            f"the default is {UNCOMPRESSED_MAX}"
        )
    return found
