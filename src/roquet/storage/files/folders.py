"""The folders of a log's files, and the choice of the folder for its next file.

See docs/storage/files.md#several-directories-for-the-commit-log.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from roquet.storage.files.disk import Disk


class LogFolders:
    """One or several folders that share the files of one log.

    :param read_only: folders, also if they are among `folders`, whose files are read and which get
        no new file.
    :param fullest: a folder whose drive is used beyond this share (0 to 1) gets no new file while
        another folder can have it.
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
        """The folder for file `number` of the log.

        The folders whose drives have room take turns; if none has room, all of them do.
        """
        folders = self._writable
        if len(folders) > 1:
            folders = [
                folder for folder in folders if self._disk.used_ratio(folder) <= self._fullest
            ] or folders
        return folders[number % len(folders)]
