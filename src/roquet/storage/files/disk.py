"""The file system as the store uses it; the simulation has another one, which can lose writes."""

from __future__ import annotations

import errno
import math
import mmap
import os
import shutil
import sys
from contextlib import suppress
from pathlib import Path
from typing import Protocol

from roquet.common import descriptors, files
from roquet.errors import UnreadableFile
from roquet.storage.files.file_lock import FileLock
from roquet.storage.files.mapped_file import MappedFile, tell_unreadable, unreadable


class DiskFile(Protocol):
    """A mapped file of fixed size.

    Invariant: bytes that were written to `buffer` before a `sync` that succeeded survive a crash of
    the machine, if the file's name does (`Disk.sync_names`). A sync that failed may have dropped
    bytes, and the success of a later sync does not mean that they are durable.
    """

    size: int
    is_new: bool
    """Whether this `open` created the file."""

    @property
    def buffer(self) -> mmap.mmap | bytearray:
        """The file's bytes, for slices, slice assignment and `struct.pack_into`."""
        ...

    def read(self, at: int, size: int) -> bytes:
        """Read bytes as a slice of `buffer` would, but not through the mapping.

        So a sparse part of the file takes no room on the drive, and a page that cannot be read does
        not kill the process (decision 0026).

        :raises UnreadableFile: the drive cannot read the bytes, or the file was truncated.
        """
        ...

    def require_whole(self) -> None:
        """Check, before `buffer` is used, that the file was not truncated.

        An access to mapped bytes after the file's end kills the process.

        :raises UnreadableFile: the file is shorter than it was made.
        """
        ...

    def require_name(self) -> None:
        """Check that the path still leads to this file, unless it is discarded; also off the loop.

        :raises UnreadableFile: the file was deleted or replaced; its bytes are lost when this
            process ends.
        """
        ...

    def next_data(self, at: int) -> int:
        """The first byte from `at` on that is not in a sparse part of the file, or its size."""
        ...

    def write(self, at: int, data: bytes | memoryview) -> None:
        """Write bytes as an assignment to a slice of `buffer` would; cheaper for more than a page.

        :raises OSError: the drive is full; nothing was written.
        """
        ...

    def reserve(self, start: int, end: int) -> None:
        """Reserve room on the drive for stores to these bytes of `buffer`, if the system can.

        A store to a mapped page for which the drive has no room kills the process.

        :raises OSError: the drive is full.
        """
        ...

    def sync(self, start: int, end: int) -> None:
        """Make the bytes from `start` to `end` durable; may take long.

        Nothing happens once the file is discarded.

        :raises UnreadableFile: as `require_name`, which is called after the sync.
        """
        ...

    def expect_reads(self) -> None:
        """Tell the kernel that the file will only be read from now on, mostly in order."""
        ...

    def close(self) -> None:
        """Close the file; to be called once, while no thread syncs it."""
        ...

    def discard(self) -> None:
        """Close the file before its deletion; a `sync` that runs in a thread ends first."""
        ...


class Lock(Protocol):
    """A held lock of a store; it is free again once it is released or its process ends.

    `was_ours`: no other kind of broker has held the lock since the last `sign`.
    """

    was_ours: bool

    def sign(self) -> None:
        """Record in the lock file that this broker has the store.

        :raises OSError: the file could not be written.
        """
        ...

    def release(self) -> None: ...


class Disk(Protocol):
    """The file system as the storage package uses it."""

    def require_file(self, path: Path, size: int) -> None:
        """Check that a known file still exists with this size; may be called off the loop.

        :raises UnreadableFile: the file does not exist any more, or has another size.
        """
        ...

    def reopen(self, path: Path, size: int) -> DiskFile:
        """Open a known file of this size.

        :raises UnreadableFile: as `require_file`.
        """
        ...

    def open(self, path: Path, size: int) -> DiskFile:
        """Open a file; if it does not exist, create it, with its folders and `size` zero bytes."""
        ...

    def require_descriptors(self, path: Path) -> None:
        """Check, before a queue gets its first file, that the process has enough file descriptors.

        Clients can cause thousands of queues.

        :raises OSError: the descriptors left are for the log, state files and connections.
        """
        ...

    def names(self, folder: Path) -> list[tuple[str, int]]:
        """Name and size of each file in a folder, sorted by name; empty if there is no folder."""
        ...

    def folders(self, folder: Path) -> list[str]:
        """Sorted names of the folders in `folder`."""
        ...

    def read(self, path: Path) -> bytes | None:
        """The content of a file, None if it does not exist."""
        ...

    def replace(self, path: Path, data: bytes) -> None:
        """Replace a file atomically and durably: after a crash it is the old or the new one."""
        ...

    def delete(self, path: Path) -> None:
        """Delete a file durably; a file that does not exist is no error."""
        ...

    def delete_folder(self, folder: Path) -> None:
        """Delete an empty folder; a folder that does not exist is no error."""
        ...

    def sync_names(self, path: Path) -> None:
        """Sync the folders that lead to a file that `open` created; may take long.

        A file that does not exist any more is no error.
        """
        ...

    def forget_cached(self, path: Path) -> None:
        """Drop the cached pages of a file that is not open, if the system can.

        After a failed sync the page cache may have bytes that are not on the drive.
        """
        ...

    def modified_ms(self, path: Path) -> int:
        """When the file was last written, ms since 1970."""
        ...

    def used_ratio(self, folder: Path) -> float:
        """The used share (0 to 1) of the drive that holds `folder`, rounded up to hundredths.

        See docs/storage/retention.md#when-a-segment-is-deleted.
        """
        ...

    def lock(self, path: Path) -> Lock:
        """Take Apache's lock on a store: a POSIX record lock on byte 0 of `path`.

        See docs/storage/files.md#the-file-lock.

        :raises StoreError: another process holds it.
        """
        ...


class RealDisk:
    """The file system of the machine."""

    def __init__(self) -> None:
        self._made: set[Path] = set()
        """Folders created by `open` whose names may not be durable."""
        self._logged: set[Path] = set()
        """Files that were logged as unreadable."""
        self._descriptors_max = descriptors.limit()

    def require_descriptors(self, path: Path) -> None:
        if not descriptors.are_left(descriptors.FOR_NEW_QUEUES, self._descriptors_max):
            text = (
                f"a new queue cannot have a file, nearly all {self._descriptors_max} file "
                "descriptors of the process are in use: raise the limit of open files (ulimit -n), "
                "or use fewer queues"
            )
            raise OSError(errno.EMFILE, text, str(path))

    def require_file(self, path: Path, size: int) -> None:
        try:
            found = path.stat().st_size
        except FileNotFoundError:
            raise self._unreadable(path, "it does not exist any more") from None
        if found != size:
            raise self._unreadable(path, f"it has {found} bytes, it was created with {size}")

    def reopen(self, path: Path, size: int) -> DiskFile:
        self.require_file(path, size)
        return MappedFile(path, size)

    def _unreadable(self, path: Path, why: str) -> UnreadableFile:
        if path not in self._logged:
            self._logged.add(path)
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
        with suppress(FileNotFoundError):  # a file that was deleted meanwhile needs no durable name
            files.sync(path.parent)
            for folder in path.parents:
                if folder in self._made:
                    files.sync(folder.parent)
                    self._made.discard(folder)

    def forget_cached(self, path: Path) -> None:
        if sys.platform != "linux":  # macOS and Windows cannot be told
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
