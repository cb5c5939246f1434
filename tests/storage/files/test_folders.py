"""A log in several folders.

See docs/storage/files.md#several-directories-for-the-commit-log.
"""

from __future__ import annotations

from pathlib import Path

from roquet.storage.files.disk import RealDisk
from roquet.storage.files.folders import LogFolders
from roquet.storage.files.segments import Segments, file_name

FILE_SIZE = 4096


class UsedDisk(RealDisk):
    """Drives that are as full as a test says, by folder name."""

    def __init__(self, **used: float) -> None:
        super().__init__()
        self.used = used

    def used_ratio(self, folder: Path) -> float:
        return self.used.get(folder.name, 0.5)


def grown(disk: RealDisk, folders: LogFolders, count: int) -> list[Path]:
    """The files of a log after so many were added."""
    segments = Segments(disk, folders, FILE_SIZE, "fileSize")
    segments.load()
    for _ in range(count):
        segments.grow()
    segments.close()
    return [path for path, _ in folders.files()]


def names(folder: Path, *numbers: int) -> list[Path]:
    return [folder / file_name(number * FILE_SIZE) for number in numbers]


def test_files_go_to_the_folders_in_turn(tmp_path: Path) -> None:
    a, b = tmp_path / "a", tmp_path / "b"
    folders = LogFolders(RealDisk(), [b, a])
    assert grown(RealDisk(), folders, 5) == names(b, 1, 3) + names(a, 0, 2, 4)


def test_a_read_only_folder_and_a_full_one_get_no_new_file(tmp_path: Path) -> None:
    a, b, c = (tmp_path / name for name in "abc")
    disk = UsedDisk(b=0.86)
    assert grown(disk, LogFolders(disk, [a, b]), 2) == names(a, 0) + names(b, 1)
    folders = LogFolders(disk, [a, b, c], read_only=[a], fullest=0.85)
    assert grown(disk, folders, 2) == names(a, 0) + names(b, 1) + names(c, 2, 3)
    disk.used["c"] = 0.9
    assert grown(disk, folders, 2) == names(a, 0) + names(b, 1, 4) + names(c, 2, 3, 5)
