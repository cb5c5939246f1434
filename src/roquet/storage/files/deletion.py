"""Deletes one file of a store; a deletion that failed can be run again."""

from __future__ import annotations

from pathlib import Path

from roquet.storage.files.disk import Disk, DiskFile


class Deletion:
    """The deletion of one file; it is run by a call, which may be off the loop.

    Invariant: the file is closed once, however often its deletion is tried. A second close could
    close another file that has got the same descriptor number.

    :param file: the file if it is open, else None.
    """

    __slots__ = ("_disk", "_file", "path")

    def __init__(self, disk: Disk, path: Path, file: DiskFile | None) -> None:
        self.path = path
        self._disk = disk
        self._file = file

    @property
    def is_there(self) -> bool:
        """Whether the file still exists; True if the folder cannot be read."""
        try:
            return self.path.name in (name for name, _ in self._disk.names(self.path.parent))
        except OSError:
            return True

    def __call__(self) -> None:
        """Close and delete the file.

        :raises OSError: the deletion failed or may not be durable; to be called again.
        """
        file, self._file = self._file, None
        if file is not None:
            file.discard()
        self._disk.delete(self.path)
