"""The one place that opens, maps, syncs and deletes files; a simulation puts a forgetful one in its stead."""

from __future__ import annotations

import errno
import logging
import math
import mmap
import os
import shutil
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final, Protocol

from roquet import files
from roquet.errors import StoreError, UnreadableFile
from roquet.files import naming

if sys.platform != "win32":
    import fcntl
else:
    import msvcrt

log = logging.getLogger(__name__)

_CAN_SYNC_BY_DESCRIPTOR: Final = sys.platform == "linux"
"""Linux writes mapped pages of a file back on fdatasync; elsewhere the mapping has to be told first."""


_COMPARED_AT_ONCE: Final = 64 * 1024
_ZEROS: Final = bytes(_COMPARED_AT_ONCE)


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

    def erase(self, at: int) -> None:
        """Make everything from `at` on zero, durably."""
        ...

    def sync(self, start: int, end: int) -> None:
        """Make the bytes from `start` to `end` durable; may take long. Nothing to do once the file is discarded."""
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
    """A held lock; the directory is free again once it is released or its process ends."""

    def release(self) -> None: ...


class Disk(Protocol):
    """What the storage package asks of a file system."""

    def reopen(self, path: Path, size: int) -> DiskFile:
        """The file at `path`, which was there with this size.

        :raises UnreadableFile: it is not there any more, or has another size.
        """
        ...

    def open(self, path: Path, size: int) -> DiskFile:
        """The file at `path`, made with `size` zero bytes where there is none; folders are made as needed."""
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
        """Which share of the drive that holds `folder` is in use, rounded up to hundredths (store-and-ha.md 4)."""
        ...

    def lock(self, path: Path) -> Lock:
        """Take Apache's lock on a store: a POSIX record lock on byte 0 of `path` (store-and-ha.md 1.2).

        :raises StoreError: another process holds it.
        """
        ...


def tell_unreadable(path: Path, why: str) -> None:
    log.error(
        "a file of the store cannot be read: path=%s why=%s; what is in it is refused, the rest is served. "
        "Stop this broker and bring the file back, or let it begin anew as a slave; a queue's folder may be deleted, "
        "the next start makes it from the log",
        path,
        why,
    )


class _Descriptor:
    """An open file's descriptor, which the event loop and threads use.

    Keeps: it is closed once, and not while it is `held`: its number may be another file's the moment after. From then
    on `number` is -1, which the kernel refuses.

    :param closed: told once it is.
    """

    def __init__(self, number: int, closed: Callable[[], None]) -> None:
        self.number = number
        self._closed = closed
        self._users = 0
        self._is_closing = False
        self._lock = threading.Lock()

    @contextmanager
    def held(self) -> Iterator[int]:
        """The number; closing waits.

        :raises OSError: it is closed.
        """
        with self._lock:
            if self._is_closing:
                raise OSError(errno.EBADF, os.strerror(errno.EBADF))
            self._users += 1
        try:
            yield self.number
        finally:
            with self._lock:
                self._users -= 1
                self._close_if_asked()

    def close(self) -> None:
        with self._lock:
            self._is_closing = True
            self._close_if_asked()

    def _close_if_asked(self) -> None:
        if self._is_closing and not self._users and self.number >= 0:
            number, self.number = self.number, -1
            os.close(number)
            self._closed()


class _MappedFile:
    """Its errors name the file.

    Keeps: its syncs run one after the other, and none after one that failed. The system tells one of two of an error,
    the other could say success before that one has said anything.
    """

    def __init__(self, path: Path, size: int) -> None:
        self._path = path
        self.size = size
        self._syncing = threading.Lock()
        self._failure: OSError | None = None
        self._is_told = False
        number, self.is_new = _open(path)
        self._descriptor = _Descriptor(number, self._unmap)
        self._is_discarded = False
        try:
            if os.fstat(number).st_size != size:
                os.ftruncate(number, size)
            self._map = _mapped(number, size)
            self._advise("MADV_RANDOM")
        except OSError:
            os.close(number)
            raise

    def _advise(self, advice: str) -> None:
        """Tell the kernel, where it listens. Without this a first write reads ahead into a file of holes, which takes
        a thousand times as long as the write itself where read-ahead is set to megabytes."""
        if hasattr(mmap, advice):
            self._map.madvise(getattr(mmap, advice))

    @property
    def buffer(self) -> mmap.mmap:
        return self._map

    def read(self, at: int, size: int) -> bytes:
        if sys.platform == "win32":  # where nobody can cut a mapped file
            return self._map[at : at + size]
        try:
            data = os.pread(self._descriptor.number, size, at)
        except OSError as error:
            if error.errno == errno.EBADF:
                raise
            raise self._unreadable(f"{error.strerror} at byte {at}") from error
        if len(data) < size and len(data) < self.size - at:
            raise self._unreadable(f"it has lost its bytes from {at + len(data)} on")
        return data

    def require_whole(self) -> None:
        if sys.platform != "win32" and os.lseek(self._descriptor.number, 0, os.SEEK_END) < self.size:
            raise self._unreadable("it is shorter than it was made")

    def _unreadable(self, why: str) -> UnreadableFile:
        if not self._is_told:
            tell_unreadable(self._path, why)
        self._is_told = True
        return UnreadableFile(errno.EIO, f"a file of the store cannot be read: {why}", str(self._path))

    def write(self, at: int, data: bytes | memoryview) -> None:
        if sys.platform == "win32":
            self._map[at : at + len(data)] = data
            return
        written = 0
        try:
            while written < len(data):
                written += os.pwrite(self._descriptor.number, data[written:] if written else data, at + written)
        except OSError:
            self._map[at : at + written] = bytes(written)
            raise

    def reserve(self, start: int, end: int) -> None:
        if hasattr(os, "posix_fallocate"):  # Windows gives a file all its clusters when it is made
            with naming(self._path):
                os.posix_fallocate(self._descriptor.number, start, end - start)

    def erase(self, at: int) -> None:
        if not self._has_data(at):
            return
        if sys.platform == "win32":
            self._map[at:] = bytes(self.size - at)
            self.sync(at, self.size)
            return
        with self._only_once():
            os.ftruncate(self._descriptor.number, at)
            os.ftruncate(self._descriptor.number, self.size)
            os.fsync(self._descriptor.number)

    @contextmanager
    def _only_once(self) -> Iterator[None]:
        """Make something durable, unless that has failed before."""
        with self._syncing:
            if self._failure is not None:
                raise OSError(self._failure.errno, "a sync of it has failed before", str(self._path))
            try:
                with naming(self._path):
                    yield
            except OSError as error:
                self._failure = error
                raise

    def _has_data(self, at: int) -> bool:
        """Whether a byte from `at` on is not zero."""
        while at < self.size:
            end = min(self.size, at + _COMPARED_AT_ONCE)
            if self.read(at, end - at) != _ZEROS[: end - at]:
                return True
            at = self.next_data(end)
        return False

    def next_data(self, at: int) -> int:
        if at >= self.size:
            return self.size
        if not hasattr(os, "SEEK_DATA"):
            return at
        try:
            return os.lseek(self._descriptor.number, at, os.SEEK_DATA)
        except OSError as error:
            return self.size if error.errno == errno.ENXIO else at

    def expect_reads(self) -> None:
        self._advise("MADV_NORMAL")

    def sync(self, start: int, end: int) -> None:
        try:
            with self._only_once(), self._descriptor.held() as number:
                self._sync(number, start, end)
        except OSError as error:
            if not (self._is_discarded and error.errno == errno.EBADF):
                raise

    def _sync(self, number: int, start: int, end: int) -> None:
        if _CAN_SYNC_BY_DESCRIPTOR:
            os.fdatasync(number)
            return
        first = start - start % mmap.ALLOCATIONGRANULARITY
        self._map.flush(first, end - first)
        os.fsync(number)

    def discard(self) -> None:
        self._is_discarded = True
        self.close()

    def close(self) -> None:
        self._descriptor.close()

    def _unmap(self) -> None:
        """Bytes that an answer still refers to stay mapped until it is sent."""
        try:
            self._map.close()
        except BufferError:
            return


def _mapped(number: int, size: int) -> mmap.mmap:
    """Where Python can, without a second descriptor that the mapping would keep for itself."""
    if sys.version_info >= (3, 13) and sys.platform != "win32":
        return mmap.mmap(number, size, trackfd=False)
    return mmap.mmap(number, size)


def _open(path: Path) -> tuple[int, bool]:
    """A descriptor of the file at `path`, and whether it was made."""
    flags = os.O_RDWR | getattr(os, "O_BINARY", 0)
    try:
        return os.open(path, flags), False
    except FileNotFoundError:
        return os.open(path, flags | os.O_CREAT, 0o644), True


class _FileLock:
    """The lock that Apache's brokers take, too (store-and-ha.md 1.2)."""

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._path = path.resolve()
        if _HELD.setdefault(self._path, self) is not self:
            raise _locked(path)
        try:
            self._descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT, 0o644)
        except OSError:
            del _HELD[self._path]
            raise
        try:
            self._take(path)
        except (OSError, StoreError):
            self.release()
            raise

    def _take(self, path: Path) -> None:
        try:
            if sys.platform != "win32":
                fcntl.lockf(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, 0)
            else:
                msvcrt.locking(self._descriptor, msvcrt.LK_NBLCK, 1)
        except OSError as error:
            raise _locked(path) from error
        os.pwrite(self._descriptor, b"lock", 0) if sys.platform != "win32" else os.write(self._descriptor, b"lock")
        os.fsync(self._descriptor)

    def release(self) -> None:
        number, self._descriptor = self._descriptor, -1
        if number >= 0:
            os.close(number)
            del _HELD[self._path]


_HELD: Final[dict[Path, _FileLock]] = {}
"""By path: a process gets such a lock as often as it asks, and loses it with any descriptor of the file it closes."""


def _locked(path: Path) -> StoreError:
    return StoreError(f"{path.parent} is in use by another broker: {path} is locked")


def is_locked_here(path: Path) -> bool:
    """Whether this process holds that lock."""
    return path.resolve() in _HELD


class RealDisk:
    """The machine's file system.

    Keeps: `_made` are folders made by `open` whose names may not be durable.
    """

    def __init__(self) -> None:
        self._made: set[Path] = set()
        self._told: set[Path] = set()

    def reopen(self, path: Path, size: int) -> DiskFile:
        try:
            found = path.stat().st_size
        except FileNotFoundError:
            raise self._unreadable(path, "it is not there any more") from None
        if found != size:
            raise self._unreadable(path, f"it has {found} bytes, it was made with {size}")
        return _MappedFile(path, size)

    def _unreadable(self, path: Path, why: str) -> UnreadableFile:
        if path not in self._told:
            self._told.add(path)
            tell_unreadable(path, why)
        return UnreadableFile(errno.EIO, f"a file of the store cannot be read: {why}", str(path))

    def open(self, path: Path, size: int) -> DiskFile:
        self._made.update(files.made_folders(path.parent))
        return _MappedFile(path, size)

    def names(self, folder: Path) -> list[tuple[str, int]]:
        if not folder.is_dir():
            return []
        with os.scandir(folder) as entries:
            return sorted((entry.name, entry.stat().st_size) for entry in entries if entry.is_file())

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
        return _FileLock(path)
