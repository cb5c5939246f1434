"""PURE: the options that say who we are and whom we trust, which sources and sinks have in common.

Keeps: no value of theirs is in a message. Option accessFile is settled before this: who reads the file replaces the
       option by what it says (`roquet.admin.access.with_access_file`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from roquet.admin.access import ACCESS_FILE, NAMES, Access, access_of
from roquet.errors import ConfigError
from roquet.spark._options.values import OptionError

ACCESS_NAMES: Final = (ACCESS_FILE, *NAMES)


def access(values: Mapping[str, str]) -> Access:
    """:raises OptionError: a value cannot be used, or another one is missing beside it."""
    try:
        return access_of(values)
    except ConfigError as error:
        raise OptionError(str(error)) from None
