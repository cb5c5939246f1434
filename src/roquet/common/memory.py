"""How the memory allocator of a process of ours is set."""

from __future__ import annotations

import ctypes
import os
import sys
from typing import Final

_TRIM_THRESHOLD: Final = -1
_MMAP_THRESHOLD: Final = -3
"""Names of mallopt's parameters, from glibc's malloc.h."""
_KEPT_MAX: Final = 32 << 20
_BLOCK_MAX: Final = 16 << 20
_OWNERS: Final = ("MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_THRESHOLD_", "GLIBC_TUNABLES")


def keep_freed_memory() -> None:
    """Have glibc keep up to 32 MiB of freed memory, in blocks of up to 16 MiB, for what is allocated next.

    It gives them back to the system as it comes, and then each page of the next buffer is a fault and is cleared:
    half of a broker's time when it hands out megabytes (docs/decisions/0022). Nothing happens where another C library
    is in use, or where the environment says how malloc is to be set.
    """
    if not sys.platform.startswith("linux") or any(name in os.environ for name in _OWNERS):
        return
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError):  # musl has none, and a Python linked statically cannot look
        return
    mallopt(_MMAP_THRESHOLD, _BLOCK_MAX)
    mallopt(_TRIM_THRESHOLD, _KEPT_MAX)
