"""A file of the machine's file system, mapped: what `DiskFile` promises."""

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

_CAN_SYNC_BY_DESCRIPTOR: Final = sys.platform == "linux"
"""Linux writes mapped pages of a file back on fdatasync; elsewhere the mapping has to be told first."""


def tell_unreadable(path: Path, why: str) -> None:
    log.error(
        "a file of the store cannot be read: path=%s why=%s; what is in it is refused, the rest is served. "
        "A queue's file that was cut or deleted is made anew from the log; to bring back one of the log stop this "
        "broker, or let it begin anew as a slave",
        path,
        why,
    )


GONE: Final = "a file of the store was deleted or replaced while it was in use"


def tell_gone(path: Path) -> None:
    log.error(
        "%s: path=%s; what it held can be read until this broker ends. A queue's file is made anew from the log; for "
        "one of the log let this broker begin anew as a slave, or restore the file from a backup after the broker has "
        "ended",
        GONE,
        path,
    )


def unreadable(path: Path, why: str) -> UnreadableFile:
    """The error for whoever needs the file."""
    return UnreadableFile(errno.EIO, f"a file of the store cannot be read: {why}", str(path))


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


class MappedFile:
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
            self._found = os.fstat(number)
            if self._found.st_size != size:
                os.ftruncate(number, size)
            self._map = _mapped(number, size)
            self._advise("MADV_RANDOM")
        except OSError:
            os.close(number)
            if self.is_new:  # or the next attempt takes it for one whose name is durable
                with suppress(OSError):
                    path.unlink()
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
        if (
            sys.platform != "win32"
            and os.lseek(self._descriptor.number, 0, os.SEEK_END) < self.size
        ):
            raise self._unreadable("it is shorter than it was made")

    def _unreadable(self, why: str) -> UnreadableFile:
        if not self._is_told:
            tell_unreadable(self._path, why)
        self._is_told = True
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
        if hasattr(os, "posix_fallocate"):  # Windows gives a file all its clusters when it is made
            with naming(self._path):
                os.posix_fallocate(self._descriptor.number, start, end - start)

    @contextmanager
    def _only_once(self) -> Iterator[None]:
        """Make something durable, unless that has failed before."""
        with self._syncing:
            if self._failure is not None:
                raise OSError(
                    self._failure.errno, "a sync of it has failed before", str(self._path)
                )
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
            with self._only_once(), self._descriptor.held() as number:
                self._sync(number, start, end)
        except OSError as error:
            if not (self._is_discarded and error.errno == errno.EBADF):
                raise
        self.require_name()

    def require_name(self) -> None:
        # in this order: the store discards a file before it deletes it
        if self._has_its_name() or self._is_discarded:
            return
        if not self._is_told:
            tell_gone(self._path)
        self._is_told = True
        raise UnreadableFile(errno.EIO, GONE, str(self._path))

    def _has_its_name(self) -> bool:
        """Whether the path still leads to this file. A count of its links would not do: a file that was moved has one,
        and so has one that a backup links to.
        """
        if sys.platform == "win32":  # where nobody can delete a mapped file
            return True
        try:
            return os.path.samestat(self._found, self._path.stat())
        except (FileNotFoundError, NotADirectoryError):
            return False
        except OSError:  # a folder that may not be entered for a while, say: nobody knows
            return True

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
