"""Memory of servers: the machine's, what the C library keeps, how Python's garbage is collected.

No collection of garbage is to hold the event loop for long.
"""

from __future__ import annotations

import ctypes
import gc
import os
import sys
from collections.abc import Callable
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
    if sys.platform == "win32":
        return UNKNOWN_SIZE
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (ValueError, OSError):
        return UNKNOWN_SIZE


# garbage collection

_THRESHOLDS: Final = (700, 10, 2)
"""A full collection of all objects that are not frozen, after some 20,000 new ones, takes 1 ms of
CPU time. With Python's (700, 10, 10) it takes 4 ms; on a busy machine both take three times longer.
"""
COLLECT_ALL_PERIOD_S: Final = 86_400.0
"""Seconds between collections of all objects, which take some 0.1 s per 500,000 objects.

They find little: objects that live long break their reference cycles when they end.
"""


def freeze_survivors() -> Callable[[], None]:
    """Freeze all objects that survive a full collection, so that later ones skip them.

    A broker has tables of a million objects that stay. Python collects all of them again whenever
    there are a quarter more: 70 ms for 400,000 objects of statistics, in the middle of a request.
    Frozen objects are freed as others are when their last reference is dropped. Only cycles of them
    wait for `collect_all`.

    :returns: a function that restores the collector's settings.
    """
    before = gc.get_threshold()
    gc.callbacks.append(_freeze)
    gc.set_threshold(*_THRESHOLDS)
    collect_all()

    def undo() -> None:
        gc.callbacks.remove(_freeze)
        gc.set_threshold(*before)
        gc.unfreeze()

    return undo


def collect_all() -> None:
    """Collect all objects, frozen ones included, and freeze the survivors."""
    gc.unfreeze()
    gc.collect()
    # Python delays its next full collection until there are a quarter more objects than survived
    # the last one. The second collection finds hardly any unfrozen object, so that limit is low.
    gc.collect()


def _freeze(phase: str, info: dict[str, int]) -> None:
    if phase == "stop" and info["generation"] == 2:
        gc.freeze()
