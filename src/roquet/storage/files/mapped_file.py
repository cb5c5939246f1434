"""Mapped files of the machine's file system, the real implementation of `DiskFile`."""

from __future__ import annotations

import errno
import logging
import mmap
import os
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from roquet.common.files import naming
from roquet.errors import UnreadableFile

log = logging.getLogger(__name__)


def tell_unreadable(path: Path, why: str) -> None:
    """Log that a file cannot be read."""
    log.error(
        "a file of the store cannot be read: path=%s reason=%s; requests that need it fail, all "
        "others are served. A consume queue's file that was truncated or deleted is rebuilt from "
        "the log; to restore a file of "
        "the log stop this broker, or let it start over as a slave", path, why,
    )  # fmt: skip


GONE: Final = "a file of the store was deleted or replaced while it was in use"


def tell_gone(path: Path) -> None:
    """Log that an open file was deleted or replaced."""
    log.error(
        "%s: path=%s; its content can be read until this broker ends. A consume queue's file is "
        "rebuilt from the log; for a file of the log let this broker start over as a slave, or "
        "stop it and restore the file from a backup", GONE, path,
    )  # fmt: skip


def unreadable(path: Path, why: str) -> UnreadableFile:
    """The error for a caller that needs the file."""
    return UnreadableFile(errno.EIO, f"a file of the store cannot be read: {why}", str(path))


class _Descriptor:
    """The descriptor of an open file, which the event loop and other threads use.

    Invariant: it is closed once, and not while it is `held`, since the kernel may give its number
    to another file at once. After that `number` is -1, which the kernel refuses.

    :param closed: called once it is closed.
    """

    def __init__(self, number: int, closed: Callable[[], None]) -> None:
        self.number = number
        self._closed = closed
        self._users = 0
        self._is_closing = False
        self._lock = threading.Lock()

    @contextmanager
    def held(self) -> Iterator[int]:
        """Use the number; a `close` meanwhile takes effect afterwards.

        :raises OSError: the descriptor is closed.
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


class MappedFile:
    """A mapped file of the machine's file system; its errors name the file.

    Invariant: syncs of a file run one after the other, and none after one that failed. The kernel
    reports an error to only one of two syncs at the same time, and the other one could report
    success first.
    """

    def __init__(self, path: Path, size: int) -> None:
        self._path = path
        self.size = size
        self._syncing = threading.Lock()
        self._failure: OSError | None = None
        self._is_logged = False
        number, self.is_new = _open(path)
        self._descriptor = _Descriptor(number, self._unmap)
        self._is_discarded = False
        try:
            self._found = os.fstat(number)
            if self._found.st_size != size:
                os.ftruncate(number, size)
            self._map = _mapped(number, size)
            self._advise("MADV_RANDOM")
        except OSError:
            os.close(number)
            if self.is_new:  # else the next attempt would take its name for durable
                with suppress(OSError):
                    path.unlink()
            raise

    def _advise(self, advice: str) -> None:
        """Advise the kernel how the mapping will be used, if the system can.

        Without MADV_RANDOM the first write to a page reads ahead into the sparse file: with a
        read-ahead of 8 MiB it took 6.2 ms instead of 12 us (decision 0003).
        """
        if sys.platform != "win32" and hasattr(mmap, advice):
            self._map.madvise(getattr(mmap, advice))

    @property
    def buffer(self) -> mmap.mmap:
        return self._map

    def read(self, at: int, size: int) -> bytes:
        if sys.platform == "win32":  # a mapped file cannot be truncated there
            return self._map[at : at + size]
        try:
            data = os.pread(self._descriptor.number, size, at)
        except OSError as error:
            if error.errno == errno.EBADF:
                raise
            raise self._unreadable(f"{error.strerror} at byte {at}") from error
        if len(data) < size and len(data) < self.size - at:
            raise self._unreadable(f"it was truncated at byte {at + len(data)}")
        return data

    def require_whole(self) -> None:
        if (
            sys.platform != "win32"
            and os.lseek(self._descriptor.number, 0, os.SEEK_END) < self.size
        ):
            raise self._unreadable("it is shorter than it was made")

    def _unreadable(self, why: str) -> UnreadableFile:
        if not self._is_logged:
            tell_unreadable(self._path, why)
        self._is_logged = True
        return unreadable(self._path, why)

    def write(self, at: int, data: bytes | memoryview) -> None:
        if sys.platform == "win32":
            self._map[at : at + len(data)] = data
            return
        written = 0
        try:
            while written < len(data):
                written += os.pwrite(
                    self._descriptor.number, data[written:] if written else data, at + written
                )
        except OSError:
            self._map[at : at + written] = bytes(written)
            raise

    def reserve(self, start: int, end: int) -> None:
        if hasattr(os, "posix_fallocate"):  # Windows allocates all clusters when a file is created
            with naming(self._path):
                os.posix_fallocate(self._descriptor.number, start, end - start)

    @contextmanager
    def _sync_attempt(self) -> Iterator[None]:
        """Run a sync of the file, unless one has failed before.

        :raises OSError: this sync failed, or an earlier one.
        """
        with self._syncing:
            if self._failure is not None:
                text = "an earlier sync of the file has failed"
                raise OSError(self._failure.errno, text, str(self._path))
            try:
                with naming(self._path):
                    yield
            except OSError as error:
                self._failure = error
                raise

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
            with self._sync_attempt(), self._descriptor.held() as number:
                self._sync(number, start, end)
        except OSError as error:
            if not (self._is_discarded and error.errno == errno.EBADF):
                raise
        self.require_name()

    def require_name(self) -> None:
        # name first: the store discards a file before it deletes it, so a deletion by the store
        # cannot look like one by an operator
        if self._has_its_name() or self._is_discarded:
            return
        if not self._is_logged:
            tell_gone(self._path)
        self._is_logged = True
        raise UnreadableFile(errno.EIO, GONE, str(self._path))

    def _has_its_name(self) -> bool:
        """Whether the path still leads to this file.

        The count of its links does not say so: a file that was moved has a link, and so has a file
        that a backup links to.
        """
        if sys.platform == "win32":  # a mapped file cannot be deleted there
            return True
        try:
            return os.path.samestat(self._found, self._path.stat())
        except (FileNotFoundError, NotADirectoryError):
            return False
        except OSError:  # not known, for example if the folder may not be entered for a while
            return True

    def _sync(self, number: int, start: int, end: int) -> None:
        if sys.platform == "linux":  # where this writes back a file's mapped pages, too
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
        """Unmap the file; if a response still refers to its bytes, that happens once it is sent."""
        try:
            self._map.close()
        except BufferError:
            return


def _mapped(number: int, size: int) -> mmap.mmap:
    """Map a file, if Python can without the second descriptor that the mapping would keep open."""
    if sys.version_info >= (3, 13) and sys.platform != "win32":
        return mmap.mmap(number, size, trackfd=False)
    return mmap.mmap(number, size)


def _open(path: Path) -> tuple[int, bool]:
    """A descriptor of the file at `path`, and whether the file was created."""
    flags = os.O_RDWR | getattr(os, "O_BINARY", 0)
    try:
        return os.open(path, flags), False
    except FileNotFoundError:
        return os.open(path, flags | os.O_CREAT, 0o644), True
