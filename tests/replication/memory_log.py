"""A commit log in memory: what replication sees of one, and nothing else."""

from __future__ import annotations

import errno

from roquet.errors import StoreError, UnreadableFile


class MemoryLog:
    """Invariant: `content` are the bytes from `start` to `end`; the real log's rules for `read` and
    `replicate` hold.
    """

    def __init__(self, file_size: int = 64, content: bytes = b"", start: int = 0) -> None:
        self.file_size = file_size
        self.content = bytearray(content)
        self.is_full = False
        self.is_unreadable = False
        self._start = start

    @property
    def start(self) -> int:
        return self._start

    @property
    def end(self) -> int:
        return self._start + len(self.content)

    def append(self, data: bytes) -> None:
        self.content += data

    def drop_first_file(self) -> None:
        size = self.file_size - self._start % self.file_size
        del self.content[:size]
        self._start += size

    def read(self, physical: int, size_max: int) -> bytes:
        assert self.start <= physical <= self.end
        if self.is_unreadable:
            raise UnreadableFile(errno.EIO, "the drive does not give it")
        stop = min(
            physical + size_max, self.end, physical - physical % self.file_size + self.file_size
        )
        return bytes(self.content)[physical - self._start : stop - self._start]

    def replicate(self, physical: int, data: bytes | memoryview) -> None:
        if self.is_full:
            raise StoreError("no room")
        if not self.content and physical % self.file_size == 0:
            self._start = physical
        if physical != self.end:
            raise ValueError(f"bytes for offset {physical}, the log ends at {self.end}")
        self.content += data
