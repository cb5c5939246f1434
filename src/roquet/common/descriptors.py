"""The process's limit of file descriptors: raises it, and reserves the last ones.

A broker that cannot open its next log file accepts no messages; one that cannot accept connections
serves no client. Clients can make it open thousands of connections and files of new queues, so
these must leave the last descriptors to other uses.
"""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from typing import Final

if sys.platform != "win32":  # Windows has no such limit
    import resource

FOR_NEW_QUEUES: Final = 14
"""Sixteenths of all descriptors in use from which on no new queue gets a file.

Opening a file takes two descriptors, its mapping keeps one.
"""
FOR_CONNECTIONS: Final = 15
"""Sixteenths in use from which on no connection is accepted; files need the rest."""


def limit() -> int:
    """The process's limit of file descriptors; 0: there is none."""
    if sys.platform != "win32":
        soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        if soft != resource.RLIM_INFINITY:
            return soft
    return 0


def raise_limit() -> None:
    """Raise the limit as far as this user may: most systems begin with 1,024."""
    if sys.platform != "win32":
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        if soft != hard:
            with suppress(ValueError, OSError):  # macOS reports "unlimited", and accepts less
                resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def are_left(sixteenths: int, limit: int) -> bool:
    """Whether fewer than `sixteenths` / 16 of `limit` are in use.

    A new descriptor gets the lowest free number, so its number shows how many are in use.
    """
    if not limit:
        return True
    try:
        number = os.open(os.devnull, os.O_RDONLY)
    except OSError:
        return False
    os.close(number)
    return number < limit * sixteenths // 16
