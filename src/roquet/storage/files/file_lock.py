"""The lock of a store's folder: no two brokers, ours or Apache's, use one at the same time."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Final

from roquet.errors import StoreError

if sys.platform != "win32":
    import fcntl
else:
    import msvcrt


_APACHES: Final = b"lock"
"""What Apache's brokers write into the file at each start."""
_OURS: Final = b"ours"


class FileLock:
    """The lock that Apache's brokers take, too. Its file says who had the store last.

    Keeps: `was_ours` is true only if nobody but us had the store since `sign` was called there.
    """

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
        self.was_ours = os.read(self._descriptor, len(_OURS)) == _OURS
        if not self.was_ours:
            self._write(_APACHES)

    def sign(self) -> None:
        """Say that the store is ours, until another broker takes the lock."""
        if not self.was_ours:
            self._write(_OURS)

    def _write(self, text: bytes) -> None:
        os.lseek(self._descriptor, 0, os.SEEK_SET)
        os.write(self._descriptor, text)
        os.fsync(self._descriptor)

    def release(self) -> None:
        number, self._descriptor = self._descriptor, -1
        if number >= 0:
            os.close(number)
            del _HELD[self._path]


_HELD: Final[dict[Path, FileLock]] = {}
"""By path: a process gets such a lock as often as it asks, and loses it with any descriptor of the file it closes."""


def _locked(path: Path) -> StoreError:
    return StoreError(f"{path.parent} is in use by another broker: {path} is locked")


def is_locked_here(path: Path) -> bool:
    """Whether this process holds that lock."""
    return path.resolve() in _HELD
