"""The rule for failed syncs: after one, no file of the store is synced any more (decision 0025)."""

from __future__ import annotations

import errno
import mmap
from collections.abc import Callable
from pathlib import Path
from typing import Final

from roquet.errors import UnreadableFile
from roquet.storage.files.disk import Disk, DiskFile

_NOTHING_TRIED: Final = (errno.EMFILE, errno.ENFILE, errno.EBADF)
"""Errors without I/O: the process is short of descriptors, or has closed the file. They are no
failed sync."""


class SyncHealth:
    """Whether a sync of a store's files has failed.

    Linux marks the pages of a failed write-back as clean and reports the error once. The next sync
    of the file would report success although the bytes are not on the drive.

    Invariant: `failure` is the error of the first sync that failed. It stays set, and no later sync
    is tried.
    """

    def __init__(self) -> None:
        self.failure: OSError | None = None

    def check(self) -> None:
        """Refuse to continue after a failed sync.

        :raises OSError: a sync has failed.
        """
        if self.failure is not None:
            text = f"no file of the store is synced any more, one sync has failed: {self.failure}"
            raise OSError(self.failure.errno, text)

    def attempt(self, work: Callable[[], None]) -> None:
        """Run a sync; may be called off the loop.

        :raises OSError: a sync failed, this one or an earlier one.
        :raises UnreadableFile: the file was deleted or replaced; other files may still be synced.
        """
        self.check()
        try:
            work()
        except UnreadableFile:
            raise
        except OSError as error:
            if error.errno not in _NOTHING_TRIED:
                self.fail(error)
            raise

    def fail(self, error: OSError) -> None:
        """Record a failed sync: no file of the store is synced any more."""
        self.failure = self.failure or error


class SyncCheckedDisk:
    """A disk whose files belong to one store and share its `sync_health`.

    Invariant: the first sync of a new file also syncs the folders that lead to it. POSIX does not
    promise that the sync of a file makes its name durable.
    """

    def __init__(self, disk: Disk, sync_health: SyncHealth) -> None:
        self._disk = disk
        self._sync_health = sync_health
        self.require_descriptors = disk.require_descriptors
        self.require_file = disk.require_file
        self.names = disk.names
        self.folders = disk.folders
        self.read = disk.read
        self.replace = disk.replace
        self.delete = disk.delete
        self.delete_folder = disk.delete_folder
        self.modified_ms = disk.modified_ms
        self.used_ratio = disk.used_ratio
        self.sync_names = disk.sync_names
        self.forget_cached = disk.forget_cached
        self.lock = disk.lock

    def reopen(self, path: Path, size: int) -> DiskFile:
        return _SyncCheckedFile(self._disk, path, self._disk.reopen(path, size), self._sync_health)

    def open(self, path: Path, size: int) -> DiskFile:
        return _SyncCheckedFile(self._disk, path, self._disk.open(path, size), self._sync_health)


class _SyncCheckedFile:
    """A file of a `SyncCheckedDisk`: its syncs go through `SyncHealth.attempt`."""

    __slots__ = (
        "_disk",
        "_file",
        "_path",
        "_sync_health",
        "close",
        "discard",
        "expect_reads",
        "is_new",
        "next_data",
        "read",
        "require_name",
        "require_whole",
        "reserve",
        "size",
        "write",
    )

    def __init__(self, disk: Disk, path: Path, file: DiskFile, sync_health: SyncHealth) -> None:
        self._disk = disk
        self._path = path
        self._file = file
        self._sync_health = sync_health
        self.size = file.size
        self.is_new = file.is_new
        self.read = file.read
        self.require_name = file.require_name
        self.require_whole = file.require_whole
        self.next_data = file.next_data
        self.write = file.write
        self.reserve = file.reserve
        self.expect_reads = file.expect_reads
        self.close = file.close
        self.discard = file.discard

    @property
    def buffer(self) -> mmap.mmap | bytearray:
        return self._file.buffer

    def sync(self, start: int, end: int) -> None:
        self._sync_health.attempt(lambda: self._file.sync(start, end))
        if self.is_new:
            self._sync_health.attempt(lambda: self._disk.sync_names(self._path))
            self.is_new = False
