"""The real file system."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from roquet.errors import StoreError
from roquet.storage.disk import RealDisk, is_locked_here

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


def is_locked_elsewhere(path: Path) -> bool:
    """Whether another process is refused the lock."""
    program = (
        "import sys, pathlib; from roquet.storage.disk import RealDisk; RealDisk().lock(pathlib.Path(sys.argv[1]))"
    )
    other = subprocess.run([sys.executable, "-c", program, str(path)], capture_output=True, text=True, check=False)
    return "in use by another broker" in other.stderr


def test_a_lock_that_cannot_be_made_says_why_and_can_be_had_later(tmp_path: Path) -> None:
    (tmp_path / "lock").mkdir()
    with pytest.raises(IsADirectoryError):
        RealDisk().lock(tmp_path / "lock")
    (tmp_path / "lock").rmdir()
    RealDisk().lock(tmp_path / "lock").release()
