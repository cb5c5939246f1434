"""PURE: the options for access keys and TLS, which sources and sinks share.

Invariant: no error text contains the value of a secret.

The option accessFile never arrives here: `roquet.admin.access.with_access_file` has replaced it by
the options in the file.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from roquet.admin.access import ACCESS_FILE, NAMES, Access, access_of
from roquet.errors import ConfigError, OptionError

ACCESS_NAMES: Final = (ACCESS_FILE, *NAMES)


def access(values: Mapping[str, str]) -> Access:
    """The access keys and TLS settings in the options.

    :raises OptionError: a value is invalid, or an option that it needs is missing.
    """
    try:
        return access_of(values)
    except ConfigError as error:
        raise OptionError(str(error)) from None
