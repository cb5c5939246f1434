"""Equal-size files addressed as one byte range; each file's name is the offset of its first byte."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from roquet.errors import StoreError
from roquet.storage.disk import Disk, DiskFile

NAME_DIGITS: Final = 20
ERASE_SIZE: Final = 1024 * 1024
_ZEROS: Final = bytes(ERASE_SIZE)


def file_name(start: int) -> str:
    """20 decimal digits."""
    return f"{start:0{NAME_DIGITS}d}"


class Segments:
    """The files of one folder.

    Keeps: `starts` are adjacent multiples of `file_size`, ascending; `files` are theirs, in the same order.
    """

    def __init__(self, disk: Disk, folder: Path, file_size: int) -> None:
        self._disk = disk
        self._folder = folder
        self.file_size = file_size
        self.starts: list[int] = []
        self.files: list[DiskFile] = []

    def load(self) -> None:
        """Open what is there. A last file without a byte is one whose making a crash cut short: it goes.

        :raises StoreError: a file that does not belong here, or a gap between two (store-and-ha.md 1.1).
        """
        names = self._disk.names(self._folder)
        if names and names[-1][1] == 0:
            self._disk.delete(self._folder / names.pop()[0])
        for name, size in names:
            path = self._folder / name
            if len(name) != NAME_DIGITS or not name.isdigit() or int(name) % self.file_size:
                raise StoreError(f"{path} does not belong into a store of {self.file_size}-byte files; move it away")
            if size != self.file_size:
                raise StoreError(f"{path} has {size} bytes, the configured file size is {self.file_size}")
            if self.starts and int(name) != self.starts[-1] + self.file_size:
                raise StoreError(f"{path}: the file before it, {file_name(int(name) - self.file_size)}, is missing")
            self._open(int(name))

    def _open(self, start: int) -> DiskFile:
        file = self._disk.open(self._folder / file_name(start), self.file_size)
        self.starts.append(start)
        self.files.append(file)
        return file

    @property
    def start(self) -> int:
        """The first byte there is; 0 without files."""
        return self.starts[0] if self.starts else 0

    @property
    def capacity_end(self) -> int:
        """One past the last byte there is room for."""
        return self.starts[-1] + self.file_size if self.starts else 0

    def file_at(self, at: int) -> DiskFile | None:
        """The file that holds byte `at`, None where there is none."""
        index = (at - self.start) // self.file_size
        return self.files[index] if 0 <= index < len(self.files) else None

    def grow(self, at: int = 0) -> DiskFile:
        """Add the next file; the first one is the file of byte `at`."""
        if self.files:
            self.files[-1].expect_reads()
        return self._open(self.capacity_end if self.starts else at - at % self.file_size)

    def read(self, at: int, end: int) -> memoryview:
        """The bytes from `at` up to `end` or the end of the file that holds `at`."""
        file = self.file_at(at)
        if file is None or at >= end:
            return memoryview(b"")
        index = at % self.file_size
        return memoryview(file.buffer)[index : min(self.file_size, index + end - at)]

    def sync(self, start: int, end: int) -> None:
        """Make the bytes from `start` to `end` durable."""
        while start < end:
            file_end = start - start % self.file_size + self.file_size
            file = self.file_at(start)
            if file is not None:
                file.sync(start % self.file_size, min(end, file_end) - (file_end - self.file_size))
            start = file_end

    def drop_after(self, end: int) -> None:
        """Delete the files that begin at or after `end`."""
        while self.starts and self.starts[-1] >= end:
            self._drop(len(self.starts) - 1)

    def erase(self, at: int) -> None:
        """Zero what stands from `at` to the end of its file, durably; pages that are zero already stay untouched."""
        file = self.file_at(at)
        if file is None:
            return
        is_changed = False
        for start in range(at % self.file_size, self.file_size, ERASE_SIZE):
            size = min(ERASE_SIZE, self.file_size - start)
            if file.buffer[start : start + size] != _ZEROS[:size]:
                file.buffer[start : start + size] = _ZEROS[:size]
                is_changed = True
        if is_changed:
            file.sync(at % self.file_size, self.file_size)

    def drop_before(self, start: int) -> None:
        """Delete the files that end at or before `start`."""
        while self.starts and self.starts[0] + self.file_size <= start:
            self._drop(0)

    def drop_all(self) -> None:
        while self.starts:
            self._drop(len(self.starts) - 1)

    def _drop(self, index: int) -> None:
        start = self.starts.pop(index)
        self.files.pop(index).close()
        self._disk.delete(self._folder / file_name(start))

    def modified_ms(self, index: int) -> int:
        """When the file at `index` was last written."""
        return self._disk.modified_ms(self._folder / file_name(self.starts[index]))

    def close(self) -> None:
        for file in self.files:
            file.close()
        self.starts.clear()
        self.files.clear()
