"""The lock of a store: one process has it, and it says which kind of broker had it last."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from roquet.errors import StoreError
from roquet.storage.files.file_lock import FileLock, is_locked_here


def test_a_lock_is_released_once(tmp_path: Path) -> None:
    lock = FileLock(tmp_path / "lock")
    lock.release()
    with (tmp_path / "b").open("wb") as other:
        lock.release()
        os.fsync(other.fileno())
    assert not is_locked_here(tmp_path / "lock")


def test_a_lock_is_given_once_in_one_process_too_and_by_any_name(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path)
    held = FileLock(tmp_path / "lock")
    for path in tmp_path / "lock", tmp_path / "link" / "lock":
        with pytest.raises(StoreError, match="in use by another broker"):
            FileLock(path)
    assert is_locked_here(tmp_path / "link" / "lock")
    assert is_locked_elsewhere(tmp_path / "lock"), "nothing that was tried took it away"
    held.release()
    assert not is_locked_here(tmp_path / "lock")
    FileLock(tmp_path / "lock").release()


def test_a_lock_says_whether_only_our_brokers_had_the_store(tmp_path: Path) -> None:
    """Apache's write "lock" into it at each start."""
    path = tmp_path / "lock"

    def was_ours(*, signs: bool) -> bool:
        lock = FileLock(path)
        if signs:
            lock.sign()
        lock.release()
        return lock.was_ours

    assert [was_ours(signs=signs) for signs in (False, True, False, True)] == [
        False,
        False,
        True,
        True,
    ]
    path.write_bytes(b"lock")
    assert [was_ours(signs=signs) for signs in (False, False, True, False)] == [
        False,
        False,
        False,
        True,
    ]


def is_locked_elsewhere(path: Path) -> bool:
    """Whether another process is refused the lock."""
    program = (
        "import sys, pathlib; from roquet.storage.files.file_lock import FileLock; "
        "FileLock(pathlib.Path(sys.argv[1]))"
    )
    other = subprocess.run(
        [sys.executable, "-c", program, str(path)], capture_output=True, text=True, check=False
    )
    return "in use by another broker" in other.stderr


def test_a_lock_that_cannot_be_made_says_why_and_can_be_had_later(tmp_path: Path) -> None:
    (tmp_path / "lock").mkdir()
    with pytest.raises(IsADirectoryError):
        FileLock(tmp_path / "lock")
    (tmp_path / "lock").rmdir()
    FileLock(tmp_path / "lock").release()


def test_the_lock_file_says_who_had_it_last_in_four_bytes(tmp_path: Path) -> None:
    path = tmp_path / "new" / "folder" / "lock"
    lock = FileLock(path)
    assert (lock.was_ours, path.read_bytes()) == (False, b"lock")
    lock.sign()
    assert (lock.was_ours, path.read_bytes()) == (False, b"ours")
    lock.release()
    again = FileLock(path)
    assert (again.was_ours, path.read_bytes()) == (True, b"ours")
    again.release()


@pytest.mark.parametrize("content", [b"", b"our", b"lock", b"OURS", b"0123456789"])
def test_a_lock_file_with_anything_else_is_not_ours(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "lock"
    path.write_bytes(content)
    lock = FileLock(path)
    assert not lock.was_ours
    lock.sign()
    assert path.read_bytes()[:4] == b"ours"
    lock.release()


def test_a_path_that_was_never_locked_is_not_locked_here(tmp_path: Path) -> None:
    assert not is_locked_here(tmp_path / "lock")
    assert not (tmp_path / "lock").exists()
