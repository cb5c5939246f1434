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


class FileLock:
    """The lock that Apache's brokers take, too."""

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


_HELD: Final[dict[Path, FileLock]] = {}
"""By path: a process gets such a lock as often as it asks, and loses it with any descriptor of the file it closes."""


def _locked(path: Path) -> StoreError:
    return StoreError(f"{path.parent} is in use by another broker: {path} is locked")


def is_locked_here(path: Path) -> bool:
    """Whether this process holds that lock."""
    return path.resolve() in _HELD
