"""The end of a file that its owner has forgotten."""

from __future__ import annotations

from pathlib import Path

from roquet.storage.files.disk import Disk, DiskFile


class Deletion:
    """Deletes a file when it is called, off the loop if need be.

    Keeps: the file is closed once, however often its deletion is tried: its descriptor may be another file's by then.

    :param file: the file if it is open.
    """

    __slots__ = ("_disk", "_file", "path")

    def __init__(self, disk: Disk, path: Path, file: DiskFile | None) -> None:
        self.path = path
        self._disk = disk
        self._file = file

    @property
    def is_there(self) -> bool:
        """Whether the file is still there, or nobody can say."""
        try:
            return self.path.name in (name for name, _ in self._disk.names(self.path.parent))
        except OSError:
            return True

    def __call__(self) -> None:
        """
        :raises OSError: the file, or its name, is still there; to be called again.
        """
        file, self._file = self._file, None
        if file is not None:
            file.discard()
        self._disk.delete(self.path)
