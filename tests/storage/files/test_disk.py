"""The real file system."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from roquet.common import files
from roquet.errors import StoreError
from roquet.storage.files.disk import RealDisk
from roquet.storage.files.file_lock import is_locked_here

if sys.platform != "win32":
    import resource

FILE_SIZE = 65_536


@contextmanager
def room_up_to(size: int) -> Iterator[None]:
    """Let no byte of a file from `size` on be written."""
    before, limit = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, limit))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (before, limit))


def test_what_is_written_stands_in_the_mapping_and_in_the_file(tmp_path: Path) -> None:
    file = RealDisk().open(tmp_path / "a", FILE_SIZE)
    file.buffer[4000:4010] = b"0123456789"
    file.write(4005, memoryview(b"xyz" * 3000))
    expected = bytes(4000) + b"01234" + b"xyz" * 3000
    assert bytes(file.buffer[: len(expected)]) == expected
    file.close()
    assert (tmp_path / "a").read_bytes() == expected.ljust(FILE_SIZE, b"\0")


@pytest.mark.skipif(sys.platform == "win32", reason="has no limit on the size of files")
def test_a_write_that_finds_room_for_a_part_leaves_nothing(tmp_path: Path) -> None:
    file = RealDisk().open(tmp_path / "a", FILE_SIZE)
    file.write(0, b"kept" * 1000)
    with room_up_to(10_000), pytest.raises(OSError, match="too large"):
        file.write(8000, b"lost" * 1000)
    assert bytes(file.buffer[:]) == (b"kept" * 1000).ljust(FILE_SIZE, b"\0")
    file.write(8000, b"here" * 1000)
    assert bytes(file.buffer[8000:12_000]) == b"here" * 1000
    file.close()


@pytest.mark.skipif(sys.platform == "win32", reason="has no limit on the size of files")
def test_a_file_that_could_not_be_made_is_new_at_the_next_attempt(tmp_path: Path) -> None:
    """Only the name of a new file is made durable."""
    disk = RealDisk()
    with room_up_to(FILE_SIZE - 1), pytest.raises(OSError, match="too large"):
        disk.open(tmp_path / "a", FILE_SIZE)
    file = disk.open(tmp_path / "a", FILE_SIZE)
    assert file.is_new
    file.close()


def test_a_file_that_is_closed_again_closes_nobody_elses_descriptor(tmp_path: Path) -> None:
    file = RealDisk().open(tmp_path / "a", FILE_SIZE)
    file.close()
    with (tmp_path / "b").open("wb") as other:
        file.close()
        file.discard()
        other.write(b"still open")
        other.flush()
        os.fsync(other.fileno())
    assert (tmp_path / "b").read_bytes() == b"still open"


def test_a_closed_file_is_neither_written_nor_synced_through_the_descriptor_of_another(
    tmp_path: Path,
) -> None:
    file = RealDisk().open(tmp_path / "a", FILE_SIZE)
    file.close()
    with (tmp_path / "b").open("wb"):
        with pytest.raises(OSError, match="Bad file descriptor"):
            file.sync(0, 1)
        with pytest.raises((OSError, ValueError)):
            file.write(0, b"x")
        with pytest.raises(OSError, match="Bad file descriptor"):
            file.reserve(0, 1)
    assert (tmp_path / "b").read_bytes() == b""


@pytest.mark.skipif(sys.platform != "linux", reason="a sync is another call there")
def test_a_file_that_is_discarded_while_a_thread_syncs_it_is_closed_after_that(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    began, may_end, synced = threading.Event(), threading.Event(), list[int]()

    def slow_sync(number: int) -> None:
        began.set()
        may_end.wait(10)
        synced.append(os.fstat(number).st_ino)

    file = RealDisk().open(tmp_path / "a", FILE_SIZE)
    inode = (tmp_path / "a").stat().st_ino
    monkeypatch.setattr(os, "fdatasync", slow_sync)
    syncing = threading.Thread(target=file.sync, args=(0, 1))
    syncing.start()
    assert began.wait(10)
    file.discard()
    with (tmp_path / "b").open("wb"):
        may_end.set()
        file.sync(0, 1)  # waits for the one that runs, and has nothing to do then
        syncing.join()
    assert synced == [inode]
    with pytest.raises(OSError, match="Bad file descriptor"):
        file.reserve(0, 1)


def test_a_lock_is_released_once(tmp_path: Path) -> None:
    lock = RealDisk().lock(tmp_path / "lock")
    lock.release()
    with (tmp_path / "b").open("wb") as other:
        lock.release()
        os.fsync(other.fileno())
    assert not is_locked_here(tmp_path / "lock")


def test_a_lock_is_given_once_in_one_process_too_and_by_any_name(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path)
    held = RealDisk().lock(tmp_path / "lock")
    for path in tmp_path / "lock", tmp_path / "link" / "lock":
        with pytest.raises(StoreError, match="in use by another broker"):
            RealDisk().lock(path)
    assert is_locked_here(tmp_path / "link" / "lock")
    assert is_locked_elsewhere(tmp_path / "lock"), "nothing that was tried took it away"
    held.release()
    assert not is_locked_here(tmp_path / "lock")
    RealDisk().lock(tmp_path / "lock").release()


def test_a_lock_says_whether_only_our_brokers_had_the_store(tmp_path: Path) -> None:
    """Apache's write "lock" into it at each start."""
    path = tmp_path / "lock"

    def was_ours(*, signs: bool) -> bool:
        lock = RealDisk().lock(path)
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
        "import sys, pathlib; from roquet.storage.files.disk import RealDisk; "
        "RealDisk().lock(pathlib.Path(sys.argv[1]))"
    )
    other = subprocess.run(
        [sys.executable, "-c", program, str(path)], capture_output=True, text=True, check=False
    )
    return "in use by another broker" in other.stderr


def test_a_lock_that_cannot_be_made_says_why_and_can_be_had_later(tmp_path: Path) -> None:
    (tmp_path / "lock").mkdir()
    with pytest.raises(IsADirectoryError):
        RealDisk().lock(tmp_path / "lock")
    (tmp_path / "lock").rmdir()
    RealDisk().lock(tmp_path / "lock").release()


@pytest.mark.skipif(sys.platform != "linux", reason="syncs by other calls")
def test_a_file_whose_sync_failed_is_never_synced_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The system would say that all is well."""
    file = RealDisk().open(tmp_path / "a", FILE_SIZE)
    asked: list[int] = []

    def fail_once(descriptor: int) -> None:
        asked.append(descriptor)
        if len(asked) == 1:
            raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(os, "fdatasync", fail_once)
    for _ in range(3):
        with pytest.raises(OSError, match=r"Errno 5\] .*/a'$"):
            file.sync(0, 1)
    assert len(asked) == 1
    file.close()


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
