"""The lock of a store: no two brokers, ours or Apache's, use a store at the same time."""

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
"""Apache's brokers write it to the lock file at each start."""
_OURS: Final = b"ours"
"""`sign` writes it: no broker of another kind has used the store since."""


class FileLock:
    """The file lock of a store, which Apache's brokers take, too.

    The file says which kind of broker had it last.

    Invariant: `was_ours` is True only if no broker of another kind has used the store since
    `sign`.
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
        """Record in the lock file that this broker has the store; Apache's broker overwrites it."""
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
"""Locks of this process by path. A POSIX lock is granted to a process again and again, and lost
when it closes any descriptor of the file, so this process may open the file only once."""


def _locked(path: Path) -> StoreError:
    return StoreError(f"{path.parent} is in use by another broker: {path} is locked")


def is_locked_here(path: Path) -> bool:
    """Whether this process holds the lock at `path`."""
    return path.resolve() in _HELD
