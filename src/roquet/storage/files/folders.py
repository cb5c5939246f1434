"""Which folders the files of a log are in, and which one its next file goes to.

See docs/storage/files.md#several-directories-for-the-commit-log.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from roquet.storage.files.disk import Disk


class LogFolders:
    """One folder, or several that share the files of one log.

    :param read_only: of `writable`, or beside them: files in these are read, new ones never go there.
    :param fullest: a folder on a drive that is used beyond this share of it gets no new file while others may.
    """

    def __init__(
        self,
        disk: Disk,
        folders: Sequence[Path],
        read_only: Sequence[Path] = (),
        fullest: float = 1.0,
    ) -> None:
        self._disk = disk
        self._writable = sorted(set(folders) - set(read_only))
        self._fullest = fullest
        self.all = tuple(dict.fromkeys((*folders, *read_only)))

    def files(self) -> Iterator[tuple[Path, int]]:
        """Path and size of every file."""
        for folder in self.all:
            for name, size in self._disk.names(folder):
                yield folder / name, size

    def for_file(self, number: int) -> Path:
        """Where file `number` of the log goes: in turn to those with room, to all of them if none has."""
        folders = self._writable
        if len(folders) > 1:
            folders = [
                folder for folder in folders if self._disk.used_ratio(folder) <= self._fullest
            ] or folders
        return folders[number % len(folders)]
