"""A log in several folders.

See docs/storage/files.md#several-directories-for-the-commit-log.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

import pytest

from roquet.errors import DamagedFiles, StoreError
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


def test_a_file_in_two_folders_is_named(tmp_path: Path) -> None:
    for name in "ab":
        (tmp_path / name).mkdir()
        (tmp_path / name / file_name(0)).write_bytes(bytes(FILE_SIZE))
    with pytest.raises(StoreError, match=f"{tmp_path}/b/0+ exists twice, also as {tmp_path}/a/0+"):
        Segments(
            RealDisk(),
            LogFolders(RealDisk(), [tmp_path / "a", tmp_path / "b"]),
            FILE_SIZE,
            "fileSize",
        ).load()


@pytest.mark.parametrize(
    ("starts", "sizes", "told"),
    [
        (
            (0,),
            (FILE_SIZE * 2,),
            f"has {FILE_SIZE * 2} bytes, .*#set fileSize={FILE_SIZE * 2} or restore the file",
        ),
        (
            (0, FILE_SIZE),
            (FILE_SIZE, 7),
            "has 7 bytes, the configured file size is .*#restore the file",
        ),
    ],
)
def test_files_of_another_size_say_which_setting_they_were_made_with(
    tmp_path: Path, starts: Sequence[int], sizes: Sequence[int], told: str
) -> None:
    for start, size in zip(starts, sizes, strict=True):
        (tmp_path / file_name(start)).write_bytes(bytes(size))
    with pytest.raises(DamagedFiles) as damaged:
        Segments(RealDisk(), LogFolders(RealDisk(), [tmp_path]), FILE_SIZE, "fileSize").load()
    assert re.search(f"{told}$", f"{damaged.value}#{damaged.value.advice}")


def test_a_log_of_smaller_files_is_not_to_be_moved_away_by_halves(tmp_path: Path) -> None:
    for number in range(3):
        (tmp_path / file_name(FILE_SIZE // 2 * number)).write_bytes(bytes(FILE_SIZE // 2))
    with pytest.raises(StoreError, match=f"bytes; set fileSize={FILE_SIZE // 2} or move it away$"):
        Segments(RealDisk(), LogFolders(RealDisk(), [tmp_path]), FILE_SIZE, "fileSize").load()
