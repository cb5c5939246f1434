"""How many file descriptors the process has left, and who may still take one.

A broker that cannot open its next log file takes no message, and one that accepts no connection serves nobody. What
clients can make it open by the thousand, connections and files of new queues, has to leave the last ones to others.
"""

from __future__ import annotations

import os
from typing import Final

FOR_NEW_QUEUES: Final = 14
"""Sixteenths of all descriptors beyond which no queue gets its first file. A file takes two, the mapping keeps one."""
FOR_CONNECTIONS: Final = 15
"""Sixteenths of all beyond which no connection is accepted; the rest is for files of log, index and state."""


def limit() -> int:
    """How many the system allows the process; 0: there is no limit."""
    try:
        import resource
    except ImportError:  # Windows has no such limit
        return 0
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return 0 if soft == resource.RLIM_INFINITY else soft


def are_left(sixteenths: int, limit: int) -> bool:
    """Whether fewer than so many sixteenths of `limit` are in use: the system gives the lowest number that is free."""
    if not limit:
        return True
    try:
        number = os.open(os.devnull, os.O_RDONLY)
    except OSError:
        return False
    os.close(number)
    return number < limit * sixteenths // 16
