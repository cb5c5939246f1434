"""The real file system."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from roquet.storage.disk import RealDisk

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
