"""A queue by itself: what a crash may leave of its files, and where it goes on then."""

from __future__ import annotations

import errno
import random
from pathlib import Path

import pytest

from roquet.errors import UnreadableFile
from roquet.storage.files.disk import RealDisk
from roquet.storage.files.segments import file_name
from roquet.storage.queues.consume_queue import BLANK_ENTRY, ENTRY_SIZE, ConsumeQueue
from tests.simulation.disk import Drive

FILE_SIZE = 20 * ENTRY_SIZE


def loaded(folder: Path) -> ConsumeQueue:
    queue = ConsumeQueue(RealDisk(), folder, FILE_SIZE, "orders", 0)
    queue.load()
    return queue


def put(queue: ConsumeQueue, offset: int, physical: int, size: int, tag_code: int) -> None:
    queue.make_room(1, offset)
    queue.put(offset, physical, size, tag_code, 0)


@pytest.mark.parametrize("blanks", [0, 5])
def test_a_file_without_an_entry_says_nothing_about_where_the_queue_begins(
    tmp_path: Path, blanks: int
) -> None:
    (tmp_path / file_name(0)).write_bytes((BLANK_ENTRY * blanks).ljust(FILE_SIZE, b"\0"))
    queue = loaded(tmp_path)
    put(queue, 13, 32768, 100, 7)
    assert (queue.min_offset, queue.max_offset) == (13, 14)
    queue.close()
    queue = loaded(tmp_path)
    queue.correct_min_offset(0)
    assert (queue.min_offset, queue.max_offset, queue.entry(13)) == (13, 14, (32768, 100, 7))
    queue.close()


def test_entries_that_were_never_written_are_cut_in_whatever_file_they_are(tmp_path: Path) -> None:
    """Loading looks at the last files only; what a crash left of the others is for `truncate` to
    find.
    """
    queue = loaded(tmp_path)
    for offset in range(100):
        put(queue, offset, offset * 50, 50, 0)
    queue.close()
    for start in range(FILE_SIZE, 5 * FILE_SIZE, FILE_SIZE):
        (tmp_path / file_name(start)).write_bytes(bytes(FILE_SIZE))
    queue = loaded(tmp_path)
    queue.truncate(5_000)
    assert (queue.max_offset, queue.log_end) == (20, 1_000)
    put(queue, 20, 1_000, 50, 0)
    queue.close()
    queue = loaded(tmp_path)
    assert (queue.max_offset, queue.entry(20)) == (21, (1_000, 50, 0))
    queue.close()


def test_truncation_keeps_whole_files_that_lie_before_the_end(tmp_path: Path) -> None:
    queue = loaded(tmp_path)
    for offset in range(60):
        put(queue, offset, offset * 50, 50, 0)
    queue.truncate(2_025)
    assert (queue.max_offset, queue.log_end) == (41, 2_050)
    queue.truncate(1_000)
    assert (queue.max_offset, queue.log_end) == (20, 1_000)
    queue.truncate(0)
    assert (queue.max_offset, queue.log_end) == (0, 0)
    queue.close()


def test_a_sync_that_ends_after_a_deletion_says_nothing_of_what_came_in_its_place() -> None:
    drive = Drive(random.Random(1))
    queue = ConsumeQueue(drive.mount(), Path("/q"), 20 * 10, "T", 0)
    for offset in range(5):
        queue.make_room(1)
        put(queue, offset, 100 * offset, 100, 0)
    work = queue.sync_work()
    assert work is not None
    queue.delete_newest_first()
    queue.make_room(1)
    put(queue, 0, 500, 100, 0)
    work()
    assert queue.sync_work() is not None


def test_a_queue_whose_files_cannot_all_be_deleted_ends_with_what_is_left() -> None:
    drive = Drive(random.Random(1))
    disk = drive.mount()
    queue = ConsumeQueue(disk, Path("/q"), 20 * 10, "T", 0)
    for offset in range(25):
        queue.make_room(1)
        put(queue, offset, 100 * offset, 100, 0)
    drive.undeletable[Path("/q/00000000000000000200")] = 0
    with pytest.raises(OSError, match="not permitted"):
        queue.delete_newest_first()
    assert (queue.min_offset, queue.max_offset, queue.log_end) == (0, 20, 2000)
    queue.make_room(1)
    put(queue, 20, 2000, 100, 7)
    assert [queue.entry(offset) for offset in (0, 19, 20)] == [
        (0, 100, 0),
        (1900, 100, 0),
        (2000, 100, 7),
    ]
    drive.undeletable.clear()
    queue.delete_newest_first()
    assert (queue.max_offset, disk.names(Path("/q"))) == (0, [])


@pytest.mark.parametrize(("kept", "min_offset"), [(0, 0), (200, 10), (400, 20), (600, 25)])
def test_a_queue_that_cannot_be_deleted_whole_begins_later(kept: int, min_offset: int) -> None:
    drive = Drive(random.Random(1))
    disk = drive.mount()
    queue = ConsumeQueue(disk, Path("/q"), 20 * 10, "T", 0)
    queue.make_room(45)
    for offset in range(25):
        put(queue, offset, 100 * offset, 100, 0)
    drive.undeletable[Path(f"/q/{kept:020d}")] = 0
    with pytest.raises(OSError, match="not permitted"):
        queue.delete_oldest_first()
    assert (queue.min_offset, queue.max_offset, queue.log_end) == (min_offset, 25, 2500)
    drive.undeletable.clear()
    queue.delete_oldest_first()
    assert (queue.max_offset, disk.names(Path("/q"))) == (0, [])


def test_a_file_that_was_deleted_before_its_folder_could_be_synced_is_gone() -> None:
    drive = Drive(random.Random(1))
    disk = drive.mount()
    queue = ConsumeQueue(disk, Path("/q"), 20 * 10, "T", 0)
    queue.make_room(1)
    put(queue, 0, 0, 100, 0)
    drive.refuse("sync", errno.EMFILE)
    with pytest.raises(OSError, match="open files"):
        queue.delete_newest_first()
    assert (queue.max_offset, disk.names(Path("/q"))) == (0, [])
    queue.make_room(1)
    put(queue, 0, 700, 100, 0)
    assert queue.entry(0) == (700, 100, 0)


def test_entries_of_two_files_find_room_only_where_both_are_whole() -> None:
    drive = Drive(random.Random(1))
    queue = ConsumeQueue(drive.mount(), Path("/q"), 20 * 10, "T", 0)
    queue.make_room(15)
    put(queue, 0, 0, 100, 0)
    drive.lost_from[Path(f"/q/{200:020d}")] = 0
    with pytest.raises(UnreadableFile):
        queue.make_room(14)
    queue.make_room(9)


@pytest.mark.parametrize("leap", [1, 12, 20])
def test_a_queue_that_ends_with_blanks_ends_where_they_say_before_and_after_a_start(
    tmp_path: Path, leap: int
) -> None:
    queue = loaded(tmp_path)
    for offset in range(10):
        put(queue, offset, offset * 50, 50, 0)
    queue.blank_to(10 + leap, 1)
    assert (queue.max_offset, queue.log_end) == (10 + leap, 500)
    assert {queue.entry(offset) for offset in range(10, 10 + leap)} == {(500, 2**31 - 1, 0)}
    queue.close()
    queue = loaded(tmp_path)
    assert (queue.max_offset, queue.log_end) == (10 + leap, 500)
    queue.truncate(501)
    assert queue.max_offset == 10 + leap
    queue.close()
