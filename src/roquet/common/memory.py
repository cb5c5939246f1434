"""The machine's memory, and what the C library keeps of it."""

from __future__ import annotations

import ctypes
import os
import sys
from typing import Final

_TRIM_THRESHOLD: Final = -1
_MMAP_THRESHOLD: Final = -3
"""Numbers of mallopt's parameters, from glibc's malloc.h."""
_KEPT_MAX: Final = 32 << 20
_BLOCK_MAX: Final = 16 << 20
UNKNOWN_SIZE: Final = 24 * 1024**3
"""Apache's default where the system does not tell its memory."""
_OWNERS: Final = ("MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_THRESHOLD_", "GLIBC_TUNABLES")


def keep_freed_memory() -> None:
    """Make glibc keep up to 32 MiB of freed memory, in blocks of up to 16 MiB.

    By default glibc returns large blocks to the system, and each page of the next buffer then
    costs a page fault. That took half of a broker's time when it sent megabytes
    (docs/decisions/0022). Does nothing with another C library, or if the environment configures
    malloc.
    """
    if not sys.platform.startswith("linux") or any(name in os.environ for name in _OWNERS):
        return
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError):  # musl has no mallopt, a static Python cannot look it up
        return
    mallopt(_MMAP_THRESHOLD, _BLOCK_MAX)
    mallopt(_TRIM_THRESHOLD, _KEPT_MAX)


def physical_memory() -> int:
    """Bytes of memory in this machine."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):
        return UNKNOWN_SIZE
