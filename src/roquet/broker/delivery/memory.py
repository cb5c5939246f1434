"""The machine's physical memory, by which Apache's broker tells which records are in memory.

See docs/storage/fetch.md#in-memory-on-disk.
"""

from __future__ import annotations

import os
from typing import Final

UNKNOWN: Final = 24 * 1024**3
"""Apache's default where the system does not tell its memory."""


def physical_memory() -> int:
    """Bytes of memory in this machine."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):
        return UNKNOWN
