"""The real file system."""

from __future__ import annotations

import errno
import os
import shutil
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from roquet.common import files
from roquet.errors import UnreadableFile
from roquet.storage.files.disk import RealDisk

if sys.platform != "win32":
    import resource

FILE_SIZE = 65_536


def test_folders_are_named_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    disk = RealDisk()
    path = tmp_path / "queue" / "0" / "file"
    file = disk.open(path, FILE_SIZE)
    assert file.is_new
    file.close()
    synced: list[Path] = []
    monkeypatch.setattr(files, "sync", synced.append)
    disk.sync_names(path)
    disk.sync_names(path)
    assert synced == [path.parent, path.parent.parent, tmp_path, path.parent]
    again = disk.open(path, FILE_SIZE)
    assert not again.is_new
    again.close()


@pytest.fixture
def disk() -> RealDisk:
    return RealDisk()


def test_a_folder_that_does_not_exist_is_empty(disk: RealDisk, tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"x")
    for folder in tmp_path / "none", tmp_path / "file":
        assert (disk.names(folder), disk.folders(folder)) == ([], [])


def test_files_and_folders_are_told_apart_and_sorted(disk: RealDisk, tmp_path: Path) -> None:
    for name in "b", "a":
        (tmp_path / name).write_bytes(name.encode() * 3)
        (tmp_path / f"folder-{name}").mkdir()
    assert disk.names(tmp_path) == [("a", 3), ("b", 3)]
    assert disk.folders(tmp_path) == ["folder-a", "folder-b"]


def test_a_known_file_must_exist_with_its_size_and_is_logged_once(
    disk: RealDisk, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "a"
    for _ in range(2):
        with pytest.raises(UnreadableFile, match=r"does not exist any more: '.*/a'$"):
            disk.reopen(path, FILE_SIZE)
    assert not path.exists(), "it is not made anew"
    path.write_bytes(b"short")
    with pytest.raises(UnreadableFile, match="has 5 bytes, it was created with 65536"):
        disk.require_file(path, FILE_SIZE)
    assert path.read_bytes() == b"short"
    assert len(caplog.records) == 1
    disk.require_file(path, 5)
    path.write_bytes(b"x".ljust(FILE_SIZE))
    file = disk.reopen(path, FILE_SIZE)
    assert (file.is_new, file.read(0, 1)) == (False, b"x")
    file.close()


def test_files_are_replaced_and_deleted_whether_they_exist_or_not(
    disk: RealDisk, tmp_path: Path
) -> None:
    path = tmp_path / "a"
    assert disk.read(path) is None
    for data in b"one", b"":
        disk.replace(path, data)
        assert disk.read(path) == data
    assert [name for name, _ in disk.names(tmp_path)] == ["a"]
    for _ in range(2):
        disk.delete(path)
        assert disk.read(path) is None
    disk.delete(tmp_path / "none" / "a")


def test_only_an_empty_folder_is_deleted(disk: RealDisk, tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    disk.open(folder / "a", FILE_SIZE).close()
    with pytest.raises(OSError, match="not empty"):
        disk.delete_folder(folder)
    disk.delete(folder / "a")
    for _ in range(2):
        disk.delete_folder(folder)
    assert disk.folders(tmp_path) == []


def test_the_name_of_a_file_that_is_gone_needs_no_sync(disk: RealDisk, tmp_path: Path) -> None:
    path = tmp_path / "folder" / "a"
    disk.open(path, FILE_SIZE).close()
    path.unlink()
    path.parent.rmdir()
    disk.sync_names(path)
    assert disk.folders(tmp_path) == []


def test_cached_pages_can_be_forgotten_and_the_bytes_stay(disk: RealDisk, tmp_path: Path) -> None:
    disk.replace(tmp_path / "a", b"data")
    disk.forget_cached(tmp_path / "a")
    assert disk.read(tmp_path / "a") == b"data"


def test_the_time_of_a_files_last_write_is_in_milliseconds(disk: RealDisk, tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_bytes(b"x")
    os.utime(path, ns=(0, 1_700_000_000_123_999_999))
    assert disk.modified_ms(path) == 1_700_000_000_123
    with pytest.raises(FileNotFoundError):
        disk.modified_ms(tmp_path / "none")


@pytest.mark.parametrize(
    ("used", "free", "expected"), [(0, 100, 0.0), (1, 999, 0.01), (850, 150, 0.85), (0, 0, 0.0)]
)
def test_the_used_share_is_rounded_up_and_that_of_the_next_folder_that_exists(
    disk: RealDisk,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    used: int,
    free: int,
    expected: float,
) -> None:
    asked: list[Path] = []

    def usage(folder: Path) -> SimpleNamespace:
        asked.append(folder)
        return SimpleNamespace(total=10_000, used=used, free=free)

    monkeypatch.setattr(shutil, "disk_usage", usage)
    assert disk.used_ratio(tmp_path / "not" / "yet") == expected
    assert asked == [tmp_path]


@pytest.mark.skipif(sys.platform == "win32", reason="has no limit of descriptors")
def test_a_new_queue_gets_no_file_when_descriptors_are_short(tmp_path: Path) -> None:
    RealDisk().require_descriptors(tmp_path)
    used = os.open(os.devnull, os.O_RDONLY)
    os.close(used)
    before, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (used + 2, hard))
    try:
        with pytest.raises(
            OSError, match=r"file descriptors of the process .*ulimit -n"
        ) as refused:
            RealDisk().require_descriptors(tmp_path / "queue")
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (before, hard))
    assert (refused.value.errno, refused.value.filename) == (errno.EMFILE, str(tmp_path / "queue"))
