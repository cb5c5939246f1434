"""What a store asks of a file system, and the machine's own; a simulation puts a forgetful one in its stead."""

from __future__ import annotations

import errno
import math
import mmap
import os
import shutil
from contextlib import suppress
from pathlib import Path
from typing import Protocol

from roquet.common import descriptors, files
from roquet.errors import UnreadableFile
from roquet.storage.files.file_lock import FileLock
from roquet.storage.files.mapped_file import MappedFile, tell_unreadable, unreadable


class DiskFile(Protocol):
    """A file of fixed size, mapped.

    Keeps: what was written to `buffer` before `sync` returned survives a crash of the machine, once its name does
    (`Disk.sync_names`). A sync that failed may have dropped what it did not write: a later one says nothing about that.
    """

    size: int
    is_new: bool
    """Whether this opening made it."""

    @property
    def buffer(self) -> mmap.mmap | bytearray:
        """Its bytes; slices, slice assignment and `struct.pack_into` work on it."""
        ...

    def read(self, at: int, size: int) -> bytes:
        """The same as a slice of `buffer`, but not through the mapping: a hole in the file needs no room for it, and a
        page that cannot be read does not end the process (decision 0026).

        :raises UnreadableFile: the drive does not give the bytes, or the file has lost them.
        """
        ...

    def require_whole(self) -> None:
        """To be called before `buffer` is used: a look at bytes that the file has lost ends the process.

        :raises UnreadableFile: it is shorter than it was made.
        """
        ...

    def require_name(self) -> None:
        """See whether the path still leads to this file, if it is not discarded; may be called off the loop.

        :raises UnreadableFile: somebody has deleted or replaced it: what was written here ends with this process.
        """
        ...

    def next_data(self, at: int) -> int:
        """The first byte from `at` on that may hold something else than a hole; the size of the file for none."""
        ...

    def write(self, at: int, data: bytes | memoryview) -> None:
        """The same as assigning to a slice of `buffer`, cheaper for more than a page.

        :raises OSError: the drive is full; nothing was written.
        """
        ...

    def reserve(self, start: int, end: int) -> None:
        """See to it that stores to these bytes of `buffer` find room on the drive, where the system can promise that.

        A store that finds none ends the process.

        :raises OSError: the drive is full.
        """
        ...

    def sync(self, start: int, end: int) -> None:
        """Make the bytes from `start` to `end` durable; may take long. Nothing to do once the file is discarded.

        :raises UnreadableFile: as `require_name`, which is asked after that.
        """
        ...

    def expect_reads(self) -> None:
        """It is written no more; from now on it is read, mostly in order."""
        ...

    def close(self) -> None:
        """To be called once, when nobody syncs it."""
        ...

    def discard(self) -> None:
        """Close it since it is going to be deleted; a `sync` that runs in a thread comes to its end first."""
        ...


class Lock(Protocol):
    """A held lock; the directory is free again once it is released or its process ends.

    `was_ours`: whoever had it since `sign` was called last was one of our brokers.
    """

    was_ours: bool

    def sign(self) -> None:
        """Note that no broker but ours has had the store, as far as its files tell.

        :raises OSError: that could not be written.
        """
        ...

    def release(self) -> None: ...


class Disk(Protocol):
    """What the storage package asks of a file system."""

    def require_file(self, path: Path, size: int) -> None:
        """See whether the file at `path` is there, which was there with this size; may be called off the loop.

        :raises UnreadableFile: it is not there any more, or has another size.
        """
        ...

    def reopen(self, path: Path, size: int) -> DiskFile:
        """The file at `path`, which was there with this size.

        :raises UnreadableFile: as `require_file`.
        """
        ...

    def open(self, path: Path, size: int) -> DiskFile:
        """The file at `path`, made with `size` zero bytes where there is none; folders are made as needed."""
        ...

    def require_descriptors(self, path: Path) -> None:
        """To be asked before a queue gets its first file, of which clients can ask for thousands.

        :raises OSError: what is left of the process's file descriptors is for the log, state files and connections.
        """
        ...

    def names(self, folder: Path) -> list[tuple[str, int]]:
        """Name and size of each file in `folder`, by name; nothing where there is no such folder."""
        ...

    def folders(self, folder: Path) -> list[str]:
        """Names of the folders in `folder`, in order."""
        ...

    def read(self, path: Path) -> bytes | None:
        """A whole file, None where there is none."""
        ...

    def replace(self, path: Path, data: bytes) -> None:
        """Make `path` hold `data`, durably and at once: after a crash it is the old file or the new."""
        ...

    def delete(self, path: Path) -> None:
        """Delete a file, durably; one that is not there is no error."""
        ...

    def delete_folder(self, folder: Path) -> None:
        """Delete an empty folder; one that is not there is no error."""
        ...

    def sync_names(self, path: Path) -> None:
        """Make the names durable that lead to a file which `open` has made; may take long. Nothing if it is gone."""
        ...

    def forget_cached(self, path: Path) -> None:
        """Let a file that nobody has open be read from the drive again, where the system can promise that.

        After a sync that failed the system may show bytes of it that are nowhere else.
        """
        ...

    def modified_ms(self, path: Path) -> int:
        """When the file was last written, ms since the epoch."""
        ...

    def used_ratio(self, folder: Path) -> float:
        """Which share of the drive that holds `folder` is in use, rounded up to hundredths.

        See docs/storage/retention.md#when-a-segment-goes.
        """
        ...

    def lock(self, path: Path) -> Lock:
        """Take Apache's lock on a store: a POSIX record lock on byte 0 of `path` (docs/storage/files.md#the-file-lock).

        :raises StoreError: another process holds it.
        """
        ...


class RealDisk:
    """The machine's file system.

    Keeps: `_made` are folders made by `open` whose names may not be durable.
    """

    def __init__(self) -> None:
        self._made: set[Path] = set()
        self._told: set[Path] = set()
        self._descriptors_max = descriptors.limit()

    def require_descriptors(self, path: Path) -> None:
        if not descriptors.are_left(descriptors.FOR_NEW_QUEUES, self._descriptors_max):
            what = f"no file for another queue, {self._descriptors_max} descriptors are nearly all in use: "
            raise OSError(
                errno.EMFILE,
                f"{what}raise the limit of open files (ulimit -n), or use fewer queues",
                str(path),
            )

    def require_file(self, path: Path, size: int) -> None:
        try:
            found = path.stat().st_size
        except FileNotFoundError:
            raise self._unreadable(path, "it is not there any more") from None
        if found != size:
            raise self._unreadable(path, f"it has {found} bytes, it was made with {size}")

    def reopen(self, path: Path, size: int) -> DiskFile:
        self.require_file(path, size)
        return MappedFile(path, size)

    def _unreadable(self, path: Path, why: str) -> UnreadableFile:
        if path not in self._told:
            self._told.add(path)
            tell_unreadable(path, why)
        return unreadable(path, why)

    def open(self, path: Path, size: int) -> DiskFile:
        self._made.update(files.made_folders(path.parent))
        return MappedFile(path, size)

    def names(self, folder: Path) -> list[tuple[str, int]]:
        if not folder.is_dir():
            return []
        with os.scandir(folder) as entries:
            return sorted(
                (entry.name, entry.stat().st_size) for entry in entries if entry.is_file()
            )

    def folders(self, folder: Path) -> list[str]:
        if not folder.is_dir():
            return []
        with os.scandir(folder) as entries:
            return sorted(entry.name for entry in entries if entry.is_dir())

    def read(self, path: Path) -> bytes | None:
        try:
            return path.read_bytes()
        except FileNotFoundError:
            return None

    def replace(self, path: Path, data: bytes) -> None:
        files.replace(path, data)

    def delete(self, path: Path) -> None:
        path.unlink(missing_ok=True)
        if path.parent.is_dir():
            files.sync(path.parent)

    def delete_folder(self, folder: Path) -> None:
        if folder.is_dir():
            folder.rmdir()

    def sync_names(self, path: Path) -> None:
        with suppress(FileNotFoundError):  # what was deleted meanwhile needs no name
            files.sync(path.parent)
            for folder in path.parents:
                if folder in self._made:
                    files.sync(folder.parent)
                    self._made.discard(folder)

    def forget_cached(self, path: Path) -> None:
        if not hasattr(os, "posix_fadvise"):
            return
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        finally:
            os.close(descriptor)

    def modified_ms(self, path: Path) -> int:
        return path.stat().st_mtime_ns // 1_000_000

    def used_ratio(self, folder: Path) -> float:
        while not folder.exists() and folder != folder.parent:
            folder = folder.parent
        usage = shutil.disk_usage(folder)
        return math.ceil(100 * usage.used / max(1, usage.used + usage.free)) / 100

    def lock(self, path: Path) -> Lock:
        return FileLock(path)
