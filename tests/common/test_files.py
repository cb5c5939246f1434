"""Whole files that a crash leaves as they were or as they are to be; failing writes are logged."""

from __future__ import annotations

import errno
import os
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from roquet.common.files import (
    backup_of,
    damaged_of,
    is_file_name,
    made_folders,
    read_with_backup,
    remove_unfinished,
    replace,
    replace_with_backup,
)


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_a_file_is_replaced_and_its_folders_are_made(tmp_path: Path) -> None:
    path = tmp_path / "a" / "b" / "file"
    replace(path, b"old")
    replace(path, b"new")
    assert path.read_bytes() == b"new"
    assert names(path.parent) == ["file"]


def test_what_it_held_before_is_the_backup(tmp_path: Path) -> None:
    path = tmp_path / "file"
    for data in (b"1", b"2", b"2"):
        replace_with_backup(path, data)
    assert (path.read_bytes(), backup_of(path).read_bytes()) == (b"2", b"1")


def test_a_backup_takes_the_place_of_a_file_that_is_damaged_or_gone(tmp_path: Path) -> None:
    path = tmp_path / "file"
    assert read_with_backup(path, int) == (None, [])
    path.write_bytes(b"odd")
    found, problems = read_with_backup(path, int)
    assert (found, [each for each, _ in problems]) == (None, [path])
    backup_of(path).write_bytes(b"7")
    found, problems = read_with_backup(path, int)
    assert (found, [each for each, _ in problems], path.read_bytes()) == (7, [path], b"7")
    assert damaged_of(path).read_bytes() == b"odd"
    path.unlink()
    found, problems = read_with_backup(path, int)
    assert (found, [each for each, _ in problems], path.read_bytes()) == (7, [path], b"7")
    assert read_with_backup(path, int) == (7, [])


def test_a_write_that_fails_leaves_the_old_file_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "file"
    replace(path, b"old")

    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match=r"No space left on device: .*file\.tmp"):
        replace(path, b"new")
    assert path.read_bytes() == b"old"
    assert names(tmp_path) == ["file"]


def test_threads_that_replace_the_same_file_do_not_meet(tmp_path: Path) -> None:
    path = tmp_path / "file"
    texts = [bytes([number]) * 5000 for number in range(8)]
    with ThreadPoolExecutor(8) as threads:
        list(threads.map(lambda number: replace(path, texts[number % 8]), range(200)))
    assert path.read_bytes() in texts
    assert names(tmp_path) == ["file"]


def test_what_a_crash_left_is_removed(tmp_path: Path) -> None:
    path = tmp_path / "file"
    for name in ("file", "file.tmp", "file.bak.tmp", "other.tmp"):
        (tmp_path / name).touch()
    remove_unfinished(path)
    assert names(tmp_path) == ["file", "other.tmp"]


def test_folders_that_were_made_are_told_outermost_first(tmp_path: Path) -> None:
    folder = tmp_path / "a" / "b" / "c"
    assert made_folders(folder) == [tmp_path / "a", tmp_path / "a" / "b", folder]
    assert made_folders(folder) == []


@pytest.mark.skipif(sys.platform == "win32", reason="syncs no folders")
def test_the_names_of_file_and_new_folders_are_synced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[Path] = []
    fsync = os.fsync

    def noted(descriptor: int) -> None:
        synced.append(Path(os.readlink(f"/proc/self/fd/{descriptor}")))
        fsync(descriptor)

    if not Path("/proc/self/fd").exists():
        pytest.skip("no /proc to look into")
    monkeypatch.setattr(os, "fsync", noted)
    replace(tmp_path / "a" / "b" / "file", b"x")
    assert synced == [
        tmp_path,
        tmp_path / "a",
        tmp_path / "a" / "b" / "file.tmp",
        tmp_path / "a" / "b",
    ]


@pytest.mark.parametrize(
    ("name", "elsewhere", "on_windows"),
    [
        ("10.0.0.1@7#a", True, True),
        ("%RETRY%group", True, True),
        ("host:9876", True, False),
        ("a\\b", True, False),
        ("ends.", True, False),
        ("ends ", True, False),
        ("a/b", False, False),
        ("a\0b", False, False),
        ("..", False, False),
        ("", False, False),
    ],
)
def test_each_system_has_names_that_no_file_can_have(
    name: str, elsewhere: bool, on_windows: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    for platform, allowed in ("linux", elsewhere), ("darwin", elsewhere), ("win32", on_windows):
        monkeypatch.setattr(sys, "platform", platform)
        assert is_file_name(name) is allowed
