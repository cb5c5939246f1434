"""Memory where new records wait before they go into their file (`transientStorePoolEnable`).

See docs/storage/append.md#the-memory-buffer.
"""

from __future__ import annotations

import mmap
import sys


class WriteBuffer:
    """As much address space as a file of the log has bytes; of it only what waits now takes memory.

    A store into memory never waits for the drive, as one into a mapped file may. What waits is lost when the process
    is killed, so nobody sees it before.
    """

    def __init__(self, size: int) -> None:
        if sys.platform == "win32":
            self.memory = mmap.mmap(-1, size)
        else:
            self.memory = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)

    def give_back(self, start: int, end: int) -> None:
        """The bytes from `start` to `end` are needed no more; whole pages of them become free."""
        first, last = start - start % mmap.PAGESIZE, end - end % mmap.PAGESIZE
        if first < last and sys.platform == "linux":
            self.memory.madvise(mmap.MADV_DONTNEED, first, last - first)
