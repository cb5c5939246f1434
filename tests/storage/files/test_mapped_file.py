"""Mapped files of the machine's file system."""

from __future__ import annotations

import errno
import os
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest

from roquet.errors import UnreadableFile
from roquet.storage.files.mapped_file import GONE, MappedFile

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
    file = MappedFile(tmp_path / "a", FILE_SIZE)
    file.buffer[4000:4010] = b"0123456789"
    file.write(4005, memoryview(b"xyz" * 3000))
    expected = bytes(4000) + b"01234" + b"xyz" * 3000
    assert bytes(file.buffer[: len(expected)]) == expected
    file.close()
    assert (tmp_path / "a").read_bytes() == expected.ljust(FILE_SIZE, b"\0")


@pytest.mark.skipif(sys.platform == "win32", reason="has no limit on the size of files")
def test_a_write_that_finds_room_for_a_part_leaves_nothing(tmp_path: Path) -> None:
    file = MappedFile(tmp_path / "a", FILE_SIZE)
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
    with room_up_to(FILE_SIZE - 1), pytest.raises(OSError, match="too large"):
        MappedFile(tmp_path / "a", FILE_SIZE)
    file = MappedFile(tmp_path / "a", FILE_SIZE)
    assert file.is_new
    file.close()


def test_a_file_that_is_closed_again_closes_nobody_elses_descriptor(tmp_path: Path) -> None:
    file = MappedFile(tmp_path / "a", FILE_SIZE)
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
    file = MappedFile(tmp_path / "a", FILE_SIZE)
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

    file = MappedFile(tmp_path / "a", FILE_SIZE)
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


@pytest.mark.skipif(sys.platform != "linux", reason="syncs by other calls")
def test_a_file_whose_sync_failed_is_never_synced_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The system would say that all is well."""
    file = MappedFile(tmp_path / "a", FILE_SIZE)
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


def test_a_new_file_has_zeros_and_keeps_its_bytes_when_it_is_opened_again(tmp_path: Path) -> None:
    file = MappedFile(tmp_path / "a", FILE_SIZE)
    assert (file.is_new, file.size, file.read(0, FILE_SIZE)) == (True, FILE_SIZE, bytes(FILE_SIZE))
    file.buffer[7:9] = b"xy"
    file.close()
    again = MappedFile(tmp_path / "a", FILE_SIZE)
    assert (again.is_new, again.read(6, 4)) == (False, b"\0xy\0")
    again.close()


def test_a_file_of_another_size_gets_the_size_that_is_asked_for(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"short")
    file = MappedFile(tmp_path / "a", FILE_SIZE)
    assert file.read(0, 6) == b"short\0"
    assert (tmp_path / "a").stat().st_size == FILE_SIZE
    file.close()


@pytest.mark.parametrize(("at", "size", "expected"), [(0, 0, 0), (FILE_SIZE - 3, 9, 3)])
def test_a_read_ends_at_the_files_end(tmp_path: Path, at: int, size: int, expected: int) -> None:
    file = MappedFile(tmp_path / "a", FILE_SIZE)
    assert file.read(at, size) == bytes(expected) == bytes(file.buffer[at : at + size])
    file.close()


@pytest.mark.skipif(sys.platform == "win32", reason="a mapped file cannot be truncated")
def test_a_truncated_file_gives_its_first_bytes_and_is_logged_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = MappedFile(tmp_path / "a", FILE_SIZE)
    file.require_whole()
    os.truncate(tmp_path / "a", 5000)
    assert file.read(4000, 1000) == bytes(1000)
    for _ in range(2):
        with pytest.raises(UnreadableFile, match=r"truncated at byte 5000: '.*/a'$") as refused:
            file.read(4000, 1001)
        with pytest.raises(UnreadableFile, match="shorter than it was made"):
            file.require_whole()
    assert refused.value.errno == errno.EIO
    (line,) = [record.getMessage() for record in caplog.records]
    assert f"path={tmp_path / 'a'} reason=it was truncated at byte 5000" in line
    file.close()


def test_a_read_of_a_closed_file_is_no_damage_of_the_file(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = MappedFile(tmp_path / "a", FILE_SIZE)
    file.close()
    with pytest.raises(OSError, match="Bad file descriptor") as refused:
        file.read(0, 1)
    assert not isinstance(refused.value, UnreadableFile)
    assert not caplog.records


def test_bytes_that_a_response_still_refers_to_stay_when_the_file_is_closed(
    tmp_path: Path,
) -> None:
    file = MappedFile(tmp_path / "a", FILE_SIZE)
    file.buffer[:3] = b"abc"
    with memoryview(file.buffer)[:3] as held:
        file.close()
        assert bytes(held) == b"abc"


@pytest.mark.skipif(not hasattr(os, "SEEK_DATA"), reason="cannot tell what is sparse")
def test_data_is_looked_for_up_to_the_files_end(tmp_path: Path) -> None:
    file = MappedFile(tmp_path / "a", FILE_SIZE)
    assert file.next_data(0) == FILE_SIZE
    file.write(FILE_SIZE // 2, b"x")
    found = [
        file.next_data(at) for at in (0, FILE_SIZE // 2 + 1, FILE_SIZE - 1, FILE_SIZE, 1 << 40)
    ]
    assert found == [FILE_SIZE // 2, FILE_SIZE // 2 + 1, FILE_SIZE, FILE_SIZE, FILE_SIZE]
    file.close()


@pytest.mark.skipif(not hasattr(os, "posix_fallocate"), reason="reserves when a file is made")
def test_reserved_bytes_have_their_room_on_the_drive(tmp_path: Path) -> None:
    file = MappedFile(tmp_path / "a", FILE_SIZE)
    before = (tmp_path / "a").stat().st_blocks
    file.reserve(8192, 8192 + 16_384)
    assert ((tmp_path / "a").stat().st_blocks - before) * 512 >= 16_384
    assert file.read(0, FILE_SIZE) == bytes(FILE_SIZE)
    with pytest.raises(OSError, match=r"Invalid argument: '.*/a'$"):
        file.reserve(5, 5)
    file.close()


def moved(path: Path) -> None:
    path.rename(path.with_name("b"))


def replaced(path: Path) -> None:
    path.with_name("b").write_bytes(path.read_bytes())
    path.with_name("b").rename(path)


def without_folder(path: Path) -> None:
    path.parent.rename(path.parent.with_name("elsewhere"))


def below_a_file(path: Path) -> None:
    without_folder(path)
    path.parent.write_bytes(b"")


@pytest.mark.skipif(sys.platform == "win32", reason="a mapped file cannot be deleted")
@pytest.mark.parametrize("loss", [Path.unlink, moved, replaced, without_folder, below_a_file])
def test_a_file_that_lost_its_name_is_synced_and_told_of_each_time_but_logged_once(
    tmp_path: Path, loss: Callable[[Path], None], caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "folder" / "a"
    path.parent.mkdir()
    file = MappedFile(path, FILE_SIZE)
    os.link(path, tmp_path / "backup")
    file.sync(0, 1)
    file.buffer[:1] = b"x"
    loss(path)
    for told in (partial(file.sync, 0, 1), file.require_name):
        with pytest.raises(UnreadableFile, match=GONE):
            told()
    assert len([line for line in caplog.messages if f"path={path};" in line]) == 1
    assert file.read(0, 1) == b"x"
    file.discard()
    file.require_name()


@pytest.mark.skipif(sys.platform == "win32", reason="a mapped file cannot be deleted")
def test_a_name_that_cannot_be_looked_up_counts_as_there(tmp_path: Path) -> None:
    path = tmp_path / "folder" / "a"
    path.parent.mkdir()
    file = MappedFile(path, FILE_SIZE)
    without_folder(path)
    path.parent.symlink_to(path.parent)
    with pytest.raises(OSError, match="symbolic links"):
        path.stat()
    file.require_name()
    file.close()


def test_where_a_descriptor_cannot_sync_mapped_pages_the_mapping_is_flushed_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A flush must begin at a multiple of the system's granularity."""
    synced: list[int] = []
    monkeypatch.setattr(sys, "platform", "darwin")
    monkeypatch.setattr(os, "fsync", synced.append)
    file = MappedFile(tmp_path / "a", FILE_SIZE)
    file.buffer[5000:5004] = b"data"
    for start, end in (0, 1), (5000, 5004), (FILE_SIZE - 1, FILE_SIZE):
        file.sync(start, end)
    assert len(synced) == 3
    file.close()
