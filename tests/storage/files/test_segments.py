"""Files of one byte range: which are accepted, what is read from them, in which order they go."""

from __future__ import annotations

import errno
import os
import random
import re
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from roquet.errors import DamagedFiles, StoreError, UnreadableFile
from roquet.storage.files.disk import Disk, RealDisk
from roquet.storage.files.folders import LogFolders
from roquet.storage.files.segments import Durable, Segments, file_name, is_number
from tests.simulation.disk import PAGE_SIZE, Drive

FILE = 4096
FOLDER = Path("/s")


def segments_in(folder: Path, disk: Disk) -> Segments:
    return Segments(disk, LogFolders(disk, [folder]), FILE, "fileSize")


def grown(drive: Drive, count: int, at: int = 0) -> Segments:
    """So many files, the first of which holds byte `at`; each byte says in which file it is."""
    segments = segments_in(FOLDER, drive.mount())
    for number in range(count):
        segments.grow(at).buffer[:] = bytes([number + 1]) * FILE
    return segments


@pytest.fixture
def drive() -> Drive:
    return Drive(random.Random(1))


def names(drive: Drive) -> list[str]:
    return sorted(path.name for path in drive.names.files)


def named(*numbers: int) -> list[str]:
    return [file_name(number * FILE) for number in numbers]


@pytest.mark.parametrize(
    ("name", "expected"), [("0", True), ("0123", True), ("", False), ("1a", False), ("²", False)]
)
def test_only_decimal_digits_are_a_number(name: str, expected: bool) -> None:
    assert is_number(name) == expected


def test_a_files_name_has_20_digits() -> None:
    assert file_name(0) == "0" * 20
    assert file_name((1 << 63) - 1) == "09223372036854775807"


# loading


def test_files_that_were_made_are_found_again(drive: Drive) -> None:
    segments = grown(drive, 3, at=5 * FILE)
    assert (segments.start, segments.capacity_end) == (5 * FILE, 8 * FILE)
    drive.unmount()
    again = segments_in(FOLDER, drive.mount())
    assert (again.start, again.capacity_end, again.starts) == (0, 0, [])
    again.load()
    assert again.starts == segments.starts == [5 * FILE, 6 * FILE, 7 * FILE]
    assert again.read(6 * FILE + 1, 9 * FILE) == b"\2" * (FILE - 1)


@pytest.mark.parametrize(
    "name",
    [
        "core",
        "0",
        "²".rjust(20, "0"),
        file_name(FILE // 2),
        "0" + file_name(0),
        file_name((1 << 63) - FILE + 1),
        file_name(1 << 63),
    ],
)
def test_a_file_that_does_not_belong_there_is_named_and_stays(tmp_path: Path, name: str) -> None:
    (tmp_path / file_name(0)).write_bytes(bytes(FILE))
    (tmp_path / name).write_bytes(bytes(FILE))
    told = f"{tmp_path / name} does not belong among files of {FILE} bytes; move it away"
    with pytest.raises(StoreError, match=re.escape(told)):
        segments_in(tmp_path, RealDisk()).load()
    assert (tmp_path / name).exists()


def test_the_last_file_ends_within_a_signed_long(tmp_path: Path) -> None:
    last = (1 << 63) - FILE
    (tmp_path / file_name(last)).write_bytes(bytes(FILE))
    segments = segments_in(tmp_path, RealDisk())
    segments.load()
    assert (segments.start, segments.capacity_end) == (last, 1 << 63)


def test_a_last_file_without_bytes_is_deleted(tmp_path: Path) -> None:
    for start, size in (0, FILE), (FILE, 0):
        (tmp_path / file_name(start)).write_bytes(bytes(size))
    segments = segments_in(tmp_path, RealDisk())
    segments.load()
    assert segments.starts == [0]
    assert [path.name for path in tmp_path.iterdir()] == [file_name(0)]


@pytest.mark.parametrize(
    ("sizes", "told"),
    [
        ((0, FILE), f"/{file_name(0)} has 0 bytes, the configured file size is {FILE}$"),
        ((FILE, 7, 8), f"/{file_name(FILE)} has 7 bytes"),
        ((FILE, None, FILE), f"/{file_name(2 * FILE)}: the file before it, {file_name(FILE)}, is"),
        ((FILE, None, None, FILE), f"the file before it, {file_name(2 * FILE)}, is missing$"),
    ],
)
def test_the_first_damage_is_named_and_all_files_can_be_dropped(
    tmp_path: Path, sizes: Sequence[int | None], told: str
) -> None:
    for number, size in enumerate(sizes):
        if size is not None:
            (tmp_path / file_name(number * FILE)).write_bytes(bytes(size))
    segments = segments_in(tmp_path, RealDisk())
    with pytest.raises(DamagedFiles, match=told) as damaged:
        segments.load()
    assert damaged.value.advice == "restore the file"
    segments.delete_newest_first()
    assert (segments.starts, list(tmp_path.iterdir())) == ([], [])


@pytest.mark.parametrize(
    ("sizes", "told"),
    [
        (
            (FILE * 2,),
            f"has {FILE * 2} bytes, .*#set fileSize={FILE * 2} or restore the file",
        ),
        ((FILE, 7), "has 7 bytes, the configured file size is .*#restore the file"),
    ],
)
def test_files_of_another_size_say_which_setting_they_were_made_with(
    tmp_path: Path, sizes: Sequence[int], told: str
) -> None:
    for number, size in enumerate(sizes):
        (tmp_path / file_name(number * FILE)).write_bytes(bytes(size))
    with pytest.raises(DamagedFiles) as damaged:
        segments_in(tmp_path, RealDisk()).load()
    assert re.search(f"{told}$", f"{damaged.value}#{damaged.value.advice}")


def test_a_log_of_smaller_files_is_not_to_be_moved_away_by_halves(tmp_path: Path) -> None:
    for number in range(3):
        (tmp_path / file_name(FILE // 2 * number)).write_bytes(bytes(FILE // 2))
    with pytest.raises(StoreError, match=f"bytes; set fileSize={FILE // 2} or move it away$"):
        segments_in(tmp_path, RealDisk()).load()


def test_a_file_in_two_folders_is_named(tmp_path: Path) -> None:
    folders = [tmp_path / "a", tmp_path / "b"]
    for folder in folders:
        folder.mkdir()
        (folder / file_name(0)).write_bytes(bytes(FILE))
    segments = Segments(RealDisk(), LogFolders(RealDisk(), folders), FILE, "fileSize")
    with pytest.raises(StoreError, match=f"{tmp_path}/b/0+ exists twice, also as {tmp_path}/a/0+"):
        segments.load()


def test_a_look_at_the_folder_says_whether_all_files_are_whole(drive: Drive) -> None:
    segments = grown(drive, 2)
    assert (segments.is_whole, segments.has_whole_file) == (True, True)
    first, second = sorted(drive.names.files)
    drive.lost_from[second] = 100
    assert (segments.is_whole, segments.has_whole_file) == (False, True)
    drive.remove(first)
    assert (segments.is_whole, segments.has_whole_file) == (False, False)


def test_a_deleted_file_is_logged_once_whether_it_was_open_or_not(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    disk = RealDisk()
    made = segments_in(tmp_path, disk)
    for _ in range(3):
        made.grow()
    made.close()
    segments = segments_in(tmp_path, disk)
    segments.load()
    assert segments.read(0, 1) == b"\0"
    for number in range(2):
        (tmp_path / file_name(number * FILE)).unlink()
    for _ in range(2):
        segments.look_for_names()
    told = [record.getMessage() for record in caplog.records]
    assert len(told) == 2
    assert f"path={tmp_path / file_name(0)}" in told[0]
    assert f"path={tmp_path / file_name(FILE)} reason=it does not exist any more" in told[1]
    segments.close()


def test_after_cached_pages_are_forgotten_names_are_durable_and_bytes_are_the_drives(
    drive: Drive,
) -> None:
    """Only files that end after the given byte are concerned."""
    segments = grown(drive, 3)
    segments.sync(0, 2 * FILE)
    drive.failure = errno.EIO
    with pytest.raises(OSError, match="Input/output"):
        segments.sync(2 * FILE, 3 * FILE)
    drive.failure = None
    drive.unmount()
    disk = drive.mount()
    stray = FOLDER / "notes"
    disk.open(stray, 1)
    segments_in(FOLDER, disk).forget_cached(2 * FILE)
    drive.crash()
    again = segments_in(FOLDER, drive.mount())
    assert set(names(drive)) == {*named(0, 1, 2), "notes"}
    drive.names.files.pop(stray)
    again.load()
    assert [again.read(at, at + 1) for at in (0, FILE)] == [b"\1", b"\2"]


# bytes


@settings(max_examples=40)
@given(st.integers(-FILE, 5 * FILE), st.integers(-FILE, 5 * FILE))
def test_pieces_cover_what_exists_of_a_range_once(start: int, end: int) -> None:
    segments = grown(Drive(random.Random(1)), 3, at=FILE)
    data = b"".join(
        bytes(file.buffer[first:last]) for file, first, last in segments.pieces(start, end)
    )
    everything = bytes(FILE) + b"".join(bytes([number]) * FILE for number in (1, 2, 3))
    assert data == everything[max(FILE, start) : max(FILE, end)]


@settings(max_examples=40)
@given(st.integers(0, 5 * FILE), st.integers(0, 5 * FILE))
def test_a_read_ends_with_the_file_that_holds_its_first_byte(start: int, end: int) -> None:
    segments = grown(Drive(random.Random(1)), 3, at=FILE)
    number = start // FILE
    expected = max(0, min(end, (number + 1) * FILE) - start) if 1 <= number <= 3 else 0
    assert segments.read(start, end) == bytes([number]) * expected


@pytest.mark.parametrize("at", [-1, -FILE, FILE - 1, 3 * FILE, 1 << 62])
def test_no_file_holds_a_byte_outside_of_the_range(drive: Drive, at: int) -> None:
    segments = grown(drive, 2, at=FILE)
    assert segments.file_at(at) is None
    assert segments.read(at, at + 1) == b""


@pytest.mark.parametrize(("at", "start"), [(0, 0), (FILE - 1, 0), (FILE, FILE), (7777, FILE)])
def test_the_first_file_holds_the_byte_that_is_asked_for(drive: Drive, at: int, start: int) -> None:
    segments = segments_in(FOLDER, drive.mount())
    segments.grow(at)
    segments.grow(at)
    assert segments.starts == [start, start + FILE]


def test_a_file_that_cannot_be_made_changes_nothing(drive: Drive) -> None:
    segments = grown(drive, 1)
    drive.failure = errno.ENOSPC
    with pytest.raises(OSError, match="No space"):
        segments.grow()
    drive.failure = None
    assert (segments.starts, segments.is_whole) == ([0], True)
    segments.grow()
    assert segments.starts == [0, FILE]


@pytest.mark.skipif(not hasattr(os, "SEEK_DATA"), reason="cannot tell what is sparse")
def test_sparse_parts_and_files_are_passed_over(tmp_path: Path) -> None:
    size = 64 * 1024
    disk = RealDisk()
    segments = Segments(disk, LogFolders(disk, [tmp_path]), size, "fileSize")
    assert segments.next_data(0) == 0
    for _ in range(4):
        segments.grow()
    file = segments.file_at(2 * size)
    assert file is not None
    file.write(size // 2, b"x")
    assert segments.next_data(0) == segments.next_data(2 * size) == 2 * size + size // 2
    assert segments.next_data(2 * size + size // 2) == 2 * size + size // 2
    assert segments.next_data(3 * size) == 4 * size
    assert segments.next_data(5 * size) == 5 * size
    segments.close()


def test_bytes_are_erased_to_the_end_of_their_file_only(drive: Drive) -> None:
    segments = grown(drive, 3)
    segments.erase(FILE + 10)
    assert segments.read(FILE, 2 * FILE) == b"\2" * 10 + bytes(FILE - 10)
    assert segments.read(2 * FILE, 3 * FILE) == b"\3" * FILE
    segments.erase(3 * FILE)
    assert segments.read(2 * FILE, 3 * FILE) == b"\3" * FILE


# durable ends


def test_a_durable_end_moves_once_its_bytes_and_the_rest_of_their_file_are_synced(
    drive: Drive,
) -> None:
    size = 3 * PAGE_SIZE
    disk = drive.mount()
    segments, durable = Segments(disk, LogFolders(disk, [FOLDER]), size, "fileSize"), Durable(0)
    for _ in range(3):
        segments.grow().buffer[:] = b"x" * size
    work = segments.sync_work(durable, size + 1)
    assert durable.end == 0
    work()
    assert durable.end == size + 1
    synced = [bytes(file.durable) for _, file in sorted(drive.names.files.items())]
    assert synced == [b"x" * size, b"x" * size, bytes(size)]
    segments.sync_work(durable, 10)()
    assert durable.end == size + 1, "it only grows"


def test_a_sync_that_fails_leaves_the_durable_end_as_it_was(drive: Drive) -> None:
    segments, durable = grown(drive, 2), Durable(5)
    work = segments.sync_work(durable, 2 * FILE)
    drive.failure = errno.EIO
    with pytest.raises(OSError, match="Input/output"):
        work()
    assert durable.end == 5


def test_a_sync_of_bytes_that_are_truncated_meanwhile_marks_no_new_bytes_as_durable(
    drive: Drive,
) -> None:
    segments, before = grown(drive, 2), Durable(100)
    work = segments.sync_work(before, 2 * FILE)
    after = before.truncated(200)
    work()
    assert (before.end, after.end) == (2 * FILE, 100)
    assert before.truncated(50).end == 50


# deletions


@pytest.mark.parametrize(
    ("end", "left"), [(0, 0), (1, 1), (FILE, 1), (FILE + 1, 2), (3 * FILE, 3), (9 * FILE, 3)]
)
def test_files_that_begin_at_an_end_or_after_it_are_dropped(
    drive: Drive, end: int, left: int
) -> None:
    segments = grown(drive, 3)
    segments.delete_from(end)
    assert segments.starts == [number * FILE for number in range(left)]
    assert names(drive) == named(*range(left))


def test_a_drop_that_fails_leaves_the_files_before_and_a_deletion_those_after(
    drive: Drive,
) -> None:
    segments = grown(drive, 5)
    kept = FOLDER / file_name(2 * FILE)
    drive.undeletable[kept] = 0
    with pytest.raises(OSError, match="not permitted"):
        segments.delete_newest_first()
    assert names(drive) == named(0, 1, 2)
    with pytest.raises(OSError, match="not permitted"):
        segments.delete_oldest_first()
    assert names(drive) == named(2)
    assert segments.read(2 * FILE, 2 * FILE + 1) == b"\3", "it is opened again"
    drive.undeletable.clear()
    segments.delete_oldest_first()
    assert (names(drive), segments.starts) == ([], [])


def test_a_file_is_forgotten_whose_deletion_may_not_be_durable(drive: Drive) -> None:
    segments = grown(drive, 2)
    drive.refuse("sync", errno.EIO)
    with pytest.raises(OSError, match="Input/output"):
        segments.delete_newest_first()
    assert segments.starts == [0]
    segments.delete_newest_first()
    assert names(drive) == []


@pytest.mark.parametrize(
    ("start", "forgotten"), [(0, 0), (FILE - 1, 0), (FILE, 1), (3 * FILE - 1, 2), (9 * FILE, 3)]
)
def test_files_that_end_before_a_start_are_forgotten_oldest_first_and_deleted_by_a_call(
    drive: Drive, start: int, forgotten: int
) -> None:
    segments = grown(drive, 3)
    data = segments.read(0, 3)
    deletions = segments.forget_before(start)
    assert [deletion.path.name for deletion in deletions] == named(*range(forgotten))
    assert segments.starts == [number * FILE for number in range(forgotten, 3)]
    assert (names(drive), data) == (named(0, 1, 2), b"\1\1\1")
    for deletion in deletions:
        deletion()
    assert names(drive) == named(*range(forgotten, 3))


def test_a_file_that_somebody_deleted_counts_as_very_old(drive: Drive) -> None:
    drive.now_ms = lambda: 77
    segments = grown(drive, 2)
    assert [segments.modified_ms(start) for start in (0, FILE)] == [77, 77]
    drive.remove(FOLDER / file_name(0))
    assert [segments.modified_ms(start) for start in (0, FILE)] == [0, 77]


def test_closed_segments_have_no_files_and_can_be_loaded_again(drive: Drive) -> None:
    segments = grown(drive, 2)
    segments.close()
    assert (segments.starts, segments.capacity_end, segments.file_at(0)) == ([], 0, None)
    segments.load()
    assert segments.read(FILE, FILE + 2) == b"\2\2"


# a range whose files are being rebuilt


def test_lost_segments_refuse_each_access_and_name_their_folder(drive: Drive) -> None:
    segments = grown(drive, 1)
    segments.delete_newest_first()
    lost = segments.lost()
    for access in (lambda: lost.read(0, 1), lambda: lost.file_at(0), lost.grow):
        with pytest.raises(UnreadableFile, match=r"being rebuilt from the log: '/s'") as refused:
            access()
        assert refused.value.errno == errno.EIO
    lost.delete_newest_first()
    assert (lost.is_whole, lost.capacity_end, names(drive)) == (True, 0, [])
