"""Segments: equal-size files of one byte range, each named by the offset of its first byte."""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

from roquet.errors import DamagedFiles, StoreError, UnreadableFile
from roquet.storage.files.deletion import Deletion
from roquet.storage.files.disk import Disk, DiskFile
from roquet.storage.files.erasure import erase
from roquet.storage.files.folders import LogFolders

NAME_DIGITS: Final = 20
_END_MAX: Final = 1 << 63
"""Offsets are signed longs, so all are below this."""


def is_number(name: str) -> bool:
    """Whether a name consists of decimal digits; `str.isdigit` alone is true for "²" as well."""
    return name.isascii() and name.isdigit()


def file_name(start: int) -> str:
    """The name of the file that begins at `start`: 20 decimal digits."""
    return f"{start:0{NAME_DIGITS}d}"


class Durable:
    """The end of the durable bytes of a byte range.

    Invariant: `end` only grows. To truncate the range, its owner replaces the object by
    `truncated`. A thread that still syncs truncated bytes then updates the old object, and does not
    mark new bytes as durable.
    """

    __slots__ = ("end",)

    def __init__(self, end: int) -> None:
        self.end = end

    def truncated(self, end: int) -> Durable:
        """The durable end of the range after it is truncated at `end`."""
        return Durable(min(self.end, end))


class Segments:
    """The files of one byte range; a file is opened when its bytes are first needed.

    Invariant: `starts` are adjacent multiples of `file_size`, ascending. `_paths` and `_files`
    belong to them, in the same order.

    :param setting: name of the setting that gives `file_size`, for error texts.
    """

    def __init__(self, disk: Disk, folders: LogFolders, file_size: int, setting: str) -> None:
        self._disk = disk
        self._folders = folders
        self._setting = setting
        self.file_size = file_size
        self.starts: list[int] = []
        self._paths: list[Path] = []
        self._files: list[DiskFile | None] = []

    def forget_cached(self, start: int) -> None:
        """Drop cached pages of the files that end after `start`, and make their names durable.

        To be called before a file is mapped.
        """
        unnamed: dict[Path, Path] = {}
        for path, _ in self._folders.files():
            if is_number(path.name) and int(path.name) + self.file_size > start:
                self._disk.forget_cached(path)
                unnamed[path.parent] = path
        for path in unnamed.values():
            self._disk.sync_names(path)

    def load(self) -> None:
        """Find the files. A last file of 0 bytes, left by a crash while it was created, is deleted.

        :raises DamagedFiles: a file has another size, or is missing between two others. After that
            only `delete_newest_first` may be called.
        :raises StoreError: a file does not belong here
            (docs/storage/files.md#names-and-sizes-are-exact).
        """
        found = sorted((path.name, size, path) for path, size in self._folders.files())
        sizes = {size for _, size, _ in found if size}
        common = (
            f"set {self._setting}={sizes.pop()}"
            if len(sizes) == 1 and sizes != {self.file_size}
            else ""
        )
        for name, _, path in found:
            is_name = (
                len(name) == NAME_DIGITS
                and is_number(name)
                and int(name) + self.file_size <= _END_MAX
            )
            if not is_name or int(name) % self.file_size:
                advice = " or ".join(filter(None, (common, "move it away")))
                raise StoreError(
                    f"{path} does not belong among files of {self.file_size} bytes; {advice}"
                )
        if found and found[-1][1] == 0:
            self._disk.delete(found.pop()[2])
        damage = ""
        for name, size, path in found:
            if self.starts and int(name) == self.starts[-1]:
                raise StoreError(
                    f"{path} exists twice, also as {self._paths[-1]}; move one of them away"
                )
            if size != self.file_size:
                damage = (
                    damage
                    or f"{path} has {size} bytes, the configured file size is {self.file_size}"
                )
            if self.starts and int(name) != self.capacity_end:
                missing = file_name(int(name) - self.file_size)
                damage = damage or f"{path}: the file before it, {missing}, is missing"
            self._add(int(name), path)
        if damage:
            raise DamagedFiles(damage, " or ".join(filter(None, (common, "restore the file"))))

    @property
    def is_whole(self) -> bool:
        """Whether all files exist and have their size, by a look at the folders."""
        sizes = {path.name: size for path, size in self._folders.files()}
        return all(sizes.get(file_name(start)) == self.file_size for start in self.starts)

    def look_for_names(self) -> None:
        """Log, once each, files that were deleted or replaced; may be called off the loop."""
        for path, file in list(zip(self._paths, self._files, strict=False)):
            with suppress(UnreadableFile):
                if file is not None:
                    file.require_name()
                elif path in self._paths:
                    self._disk.require_file(path, self.file_size)

    @property
    def has_whole_file(self) -> bool:
        """Whether any file has the configured size, by a look at the folders."""
        return any(size == self.file_size for _, size in self._folders.files())

    def _add(self, start: int, path: Path, file: DiskFile | None = None) -> None:
        self.starts.append(start)
        self._paths.append(path)
        self._files.append(file)

    @property
    def start(self) -> int:
        """The range's first byte; 0 without files."""
        return self.starts[0] if self.starts else 0

    @property
    def capacity_end(self) -> int:
        """The end of the last file; 0 without files."""
        return self.starts[-1] + self.file_size if self.starts else 0

    def file_at(self, at: int) -> DiskFile | None:
        """The file that holds byte `at`, None if there is none."""
        index = (at - self.start) // self.file_size
        if not 0 <= index < len(self._files):
            return None
        return self._files[index] or self._opened(index)

    def _opened(self, index: int) -> DiskFile:
        file = self._files[index] = self._disk.reopen(self._paths[index], self.file_size)
        if index < len(self._files) - 1:
            file.expect_reads()
        return file

    def require_descriptors(self) -> None:
        """`Disk.require_descriptors` for the first file."""
        self._disk.require_descriptors(self._folders.for_file(0))

    def grow(self, at: int = 0) -> DiskFile:
        """Add the next file; without files, add the one that holds byte `at`."""
        start = self.capacity_end if self.starts else at - at % self.file_size
        path = self._folders.for_file(start // self.file_size) / file_name(start)
        file = self._disk.open(path, self.file_size)
        if self._files and (last := self._files[-1]) is not None:
            last.expect_reads()
        self._add(start, path, file)
        return file

    def read(self, at: int, end: int) -> bytes:
        """The bytes from `at` to `end`, or to the end of the file that holds `at`.

        Empty if no file holds `at`.

        :raises UnreadableFile: the file was truncated, or the drive cannot read the bytes.
        """
        file = self.file_at(at)
        if file is None or at >= end:
            return b""
        index = at % self.file_size
        return file.read(index, min(self.file_size - index, end - at))

    def next_data(self, at: int) -> int:
        """The first byte from `at` on that is not in a sparse part of a file."""
        while (file := self.file_at(at)) is not None:
            file_start = at - at % self.file_size
            index = file.next_data(at - file_start)
            if index < self.file_size:
                return file_start + index
            at = file_start + self.file_size
        return max(at, self.capacity_end)

    def pieces(self, start: int, end: int) -> Iterator[tuple[DiskFile, int, int]]:
        """Each file with bytes between `start` and `end`, and where these begin and end in it."""
        start, end = max(start, self.start), min(end, self.capacity_end)
        while start < end:
            file_start = start - start % self.file_size
            file, file_end = self.file_at(start), file_start + self.file_size
            if file is not None:
                yield file, start - file_start, min(end, file_end) - file_start
            start = file_end

    def sync(self, start: int, end: int) -> None:
        """Make the bytes from `start` to `end` durable."""
        for file, first, last in self.pieces(start, end):
            file.sync(first, last)

    def sync_work(self, durable: Durable, end: int) -> Callable[[], None]:
        """A function that syncs the bytes before `end` and sets `durable`; it may run off the loop.

        It syncs up to the end of the file, since the bytes after `end` may have been erased.
        """
        pieces = list(self.pieces(durable.end, end + -end % self.file_size))

        def work() -> None:
            for file, first, last in pieces:
                file.sync(first, last)
            durable.end = max(durable.end, end)

        return work

    def delete_from(self, end: int) -> None:
        """Delete the files that begin at or after `end`, the last one first.

        :raises OSError: a file could not be deleted; it still exists, and so do those before it.
        """
        while self.starts and self.starts[-1] >= end:
            self._delete(-1)

    def _delete(self, index: int) -> None:
        deletion = Deletion(self._disk, self._paths[index], self._files[index])
        self._files[index] = None
        try:
            deletion()
        except OSError:
            if not deletion.is_there:
                self._forget(index)
            raise
        self._forget(index)

    def erase(self, at: int) -> None:
        """Zero the bytes from `at` to the end of its file, without a sync."""
        file = self.file_at(at)
        if file is not None:
            erase(file, at % self.file_size)

    def forget_before(self, start: int) -> list[Deletion]:
        """Forget the files that end at or before `start`; returns their deletions, oldest first.

        Bytes that a caller has read from such a file remain valid.
        """
        deletions: list[Deletion] = []
        while self.starts and self.starts[0] + self.file_size <= start:
            deletions.append(self._forget(0))
        return deletions

    def delete_newest_first(self) -> None:
        """Delete all files, the last one first; raises as `delete_from`."""
        self.delete_from(0)

    def delete_oldest_first(self) -> None:
        """Delete all files, the first one first.

        :raises OSError: a file could not be deleted; it still exists, and so do those after it.
        """
        while self.starts:
            self._delete(0)

    def lost(self) -> LostSegments:
        """Segments that refuse access, for a range whose files are being rebuilt."""
        return LostSegments(self._disk, self._folders, self.file_size, self._setting)

    def _forget(self, index: int) -> Deletion:
        self.starts.pop(index)
        return Deletion(self._disk, self._paths.pop(index), self._files.pop(index))

    def modified_ms(self, start: int) -> int:
        """When the file that begins at `start` was last written, ms since 1970.

        0 for a file that an operator has deleted, so that retention deletes the files after it in
        time.
        """
        try:
            return self._disk.modified_ms(self._paths[self.starts.index(start)])
        except FileNotFoundError:
            return 0

    def close(self) -> None:
        for file in self._files:
            if file is not None:
                file.close()
        self.starts.clear()
        self._paths.clear()
        self._files.clear()


class LostSegments(Segments):
    """A byte range whose files are being rebuilt elsewhere; access to them is refused."""

    def file_at(self, _at: int) -> DiskFile | None:
        raise self._refusal

    def grow(self, _at: int = 0) -> DiskFile:
        raise self._refusal

    @property
    def _refusal(self) -> UnreadableFile:
        text = "its files were truncated or deleted, it is being rebuilt from the log"
        return UnreadableFile(errno.EIO, text, str(self._folders.all[0]))
