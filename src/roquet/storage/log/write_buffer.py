"""The memory buffer where new records wait for their file (`transientStorePoolEnable`).

See docs/storage/append.md#the-memory-buffer.
"""

from __future__ import annotations

import mmap
import sys


class WriteBuffer:
    """Anonymous memory of the size of a segment; only the pages with waiting records take memory.

    A store to it never waits for the drive, as a store to a mapped file may. Waiting records are
    lost when the process is killed, so consumers and slaves do not see them before `commit`.
    """

    def __init__(self, size: int) -> None:
        if sys.platform == "win32":
            self.memory = mmap.mmap(-1, size)
        else:
            self.memory = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)

    def give_back(self, start: int, end: int) -> None:
        """Free the whole pages of the bytes from `start` to `end`."""
        first, last = start - start % mmap.PAGESIZE, end - end % mmap.PAGESIZE
        if first < last and sys.platform == "linux":
            self.memory.madvise(mmap.MADV_DONTNEED, first, last - first)
