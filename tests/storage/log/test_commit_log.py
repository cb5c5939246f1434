"""The commit log by itself: where records may stand, which bytes are read, how it is cut."""

from __future__ import annotations

import errno
import random
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from roquet.errors import CorruptRecord, StoreError, UnreadableFile
from roquet.protocol.records.layout import BLANK_SIZE, SIZE_MIN, blank
from roquet.protocol.records.record import Record
from roquet.storage.files.folders import LogFolders
from roquet.storage.files.segments import file_name
from roquet.storage.files.sync_failure import SyncCheckedDisk, SyncHealth
from roquet.storage.log.commit_log import BLOCK_SIZE, RESERVED_AT_ONCE, CommitLog
from roquet.storage.log.write_buffer import WriteBuffer
from tests.simulation.disk import Drive

FILE = 4096
ROOM = FILE - BLANK_SIZE
"""Bytes of records that fit into a file."""


def log_on(drive: Drive, file_size: int = FILE, *, pooled: bool = False) -> CommitLog:
    """The log on a drive that nobody has mounted."""
    health = SyncHealth()
    disk = SyncCheckedDisk(drive.mount(), health)
    pool = WriteBuffer(file_size) if pooled else None
    log = CommitLog(disk, LogFolders(disk, [Path("/s")]), file_size, pool, health)
    log.load()
    return log


@pytest.fixture
def drive() -> Drive:
    return Drive(random.Random(1))


@pytest.fixture
def log(drive: Drive) -> CommitLog:
    return log_on(drive)


def record(at: int, size: int = 100) -> bytes:
    """A sound record of this size, stored at this physical offset."""
    hosts = bytes(8), 1, bytes(8), 0, 0
    empty = Record(0, 0, 0, at, 0, 1, *hosts, b"", "T", "").encode()
    return Record(0, 0, 0, at, 0, 1, *hosts, b"b" * (size - len(empty)), "T", "").encode()


def append(log: CommitLog, size: int = 100) -> int:
    at = log.make_room(size)
    log.write(record(at, size))
    return at


def corrupt(log: CommitLog, at: int, data: bytes) -> None:
    buffer = log.mapped(at)
    buffer[at % FILE : at % FILE + len(data)] = data


# appends


def test_an_empty_log_begins_and_ends_at_0(log: CommitLog) -> None:
    assert (log.start, log.end, log.flushed_to, log.readable_to, log.room) == (0, 0, 0, 0, 0)
    assert (log.read(0, 9), list(log.walk(0)), log.file_starts) == (b"", [], [])
    log.commit()
    log.require_whole()
    assert log.mapped(0) == bytearray()


@pytest.mark.parametrize("pooled", [False, True])
@settings(max_examples=30)
@given(sizes=st.lists(st.integers(SIZE_MIN + 1, ROOM), min_size=1, max_size=15))
def test_records_are_read_as_they_were_appended_and_none_crosses_a_file(
    pooled: bool, sizes: list[int]
) -> None:
    drive = Drive(random.Random(1))
    log = log_on(drive, pooled=pooled)
    places = [append(log, size) for size in sizes]
    log.commit()
    assert log.readable_to == log.end == places[-1] + sizes[-1]
    assert [(at, bytes(data)) for at, data in log.walk(0)] == [
        (at, record(at, size)) for at, size in zip(places, sizes, strict=True)
    ]
    for at, size, following in zip(places, sizes, [*places[1:], None], strict=True):
        assert at % FILE + size + BLANK_SIZE <= FILE
        assert log.record_at(at) == log.record_bytes(at, size) == record(at, size)
        if following is not None and following != at + size:
            assert following == log.next_file(at)
            assert log.is_closed_at(at + size)
            assert log.read(at + size, BLANK_SIZE) == blank(following - at - size)
    assert log.room == FILE - log.end % FILE - BLANK_SIZE


@pytest.mark.parametrize(("size", "fits"), [(ROOM, True), (ROOM + 1, False), (1 << 40, False)])
def test_a_record_fits_into_a_file_with_the_blank_that_closes_it(
    log: CommitLog, size: int, *, fits: bool
) -> None:
    if fits:
        assert (append(log, size), append(log)) == (0, FILE)
        return
    for ask in (log.make_room, log.place):
        with pytest.raises(ValueError, match=f"a record of {size} bytes does not fit into a file"):
            ask(size)
    assert (log.end, log.file_starts) == (0, [])


@pytest.mark.parametrize(("left", "at"), [(0, 100), (1, FILE)])
def test_a_file_is_closed_when_the_next_record_leaves_no_room_for_a_blank(
    log: CommitLog, left: int, at: int
) -> None:
    append(log, 100)
    assert log.make_room(ROOM - 100 + left) == at == log.end
    assert log.is_closed_at(100) == (at == FILE)


def test_bytes_that_were_placed_are_the_logs_once_they_are_taken(log: CommitLog) -> None:
    for expected in 0, 100, FILE:
        buffer, index, at = log.place(100 if expected < FILE else ROOM - 150)
        assert (at, index, log.end) == (expected, expected % FILE, expected)
        data = record(at)
        buffer[index : index + len(data)] = data
        assert log.record_at(at) is None, "not yet in the log"
        log.take(at + len(data))
        assert log.record_at(at) == data


def test_no_more_is_taken_than_room_was_made_for(log: CommitLog) -> None:
    log.make_room(100)
    for end in (0, FILE - BLANK_SIZE + 1):
        with pytest.raises(AssertionError, match="no room was made"):
            log.take(end)
    log.take(FILE - BLANK_SIZE)
    assert log.end == FILE - BLANK_SIZE


def test_room_on_the_drive_is_reserved_much_at_a_time(drive: Drive) -> None:
    size = 3 * RESERVED_AT_ONCE
    log = log_on(drive, size)
    reserved = list[int]()

    def count() -> None:
        drive.failure = errno.ENOSPC
        try:
            log.make_room(1000)
        except OSError:
            reserved.append(log.end)
            drive.failure = None
            log.make_room(1000)
        drive.failure = None

    log.make_room(1000)
    while log.end < size - 2000:
        count()
        log.write(bytes(1000))
    assert [at // RESERVED_AT_ONCE for at in reserved] == [0, 1]


def test_a_file_that_cannot_be_made_leaves_the_log_at_its_start_and_the_record_out(
    drive: Drive, log: CommitLog
) -> None:
    append(log, ROOM - 50)
    drive.refuse("create", errno.ENOSPC)
    with pytest.raises(OSError, match="No space"):
        log.make_room(100)
    assert (log.end, log.file_starts, log.is_closed_at(ROOM - 50)) == (FILE, [0], True)
    assert append(log) == FILE


def test_a_blank_that_finds_no_room_leaves_the_log_as_it_was() -> None:
    drive = Drive(random.Random(1))
    log = log_on(drive, 2 * RESERVED_AT_ONCE)
    append(log, 2 * RESERVED_AT_ONCE - 3000)
    drive.unmount()
    log = log_on(drive, 2 * RESERVED_AT_ONCE)
    end = 2 * RESERVED_AT_ONCE - 3000
    log.truncate(end)
    drive.failure = errno.ENOSPC
    with pytest.raises(OSError, match="No space"):
        log.make_room(5000)
    assert (log.end, log.is_closed_at(end)) == (end, False)


def test_records_that_wait_in_the_buffer_are_not_readable_until_they_are_committed(
    drive: Drive,
) -> None:
    log = log_on(drive, pooled=True)
    append(log)
    append(log)
    assert (log.end, log.readable_to, log.read(0, FILE), log.record_at(0)) == (200, 0, b"", None)
    drive.failure = errno.ENOSPC
    with pytest.raises(OSError, match="No space"):
        log.commit()
    drive.failure = None
    assert log.readable_to == 0
    log.commit()
    assert (log.readable_to, log.record_at(100)) == (200, record(100))


# a slave's log


@settings(max_examples=30)
@given(st.lists(st.integers(1, 3 * FILE), min_size=1, max_size=8), st.booleans())
def test_a_copy_has_its_masters_bytes_at_their_place(sizes: list[int], pooled: bool) -> None:
    start = 7 * FILE
    log = log_on(Drive(random.Random(1)), pooled=pooled)
    data = random.Random(1).randbytes(sum(sizes))
    at = 0
    for size in sizes:
        log.replicate(start + at, data[at : at + size])
        at += size
    log.commit()
    assert (log.start, log.end) == (start, start + len(data))
    assert b"".join(log.copies(start, log.end)) == data


@pytest.mark.parametrize("physical", [0, 99, 101, FILE])
def test_a_copy_takes_bytes_at_its_end_only(log: CommitLog, physical: int) -> None:
    append(log)
    with pytest.raises(ValueError, match=f"bytes for offset {physical}, the log ends at 100"):
        log.replicate(physical, b"x")
    assert log.end == 100


def test_an_empty_copy_begins_where_a_file_does(log: CommitLog) -> None:
    with pytest.raises(ValueError, match="bytes for offset 5, the log ends at 0"):
        log.replicate(5, b"x")
    log.replicate(3 * FILE, b"")
    assert (log.start, log.end, log.flushed_to) == (3 * FILE, 3 * FILE, 3 * FILE)


def test_a_copy_that_finds_no_room_ends_behind_what_was_written(
    drive: Drive, log: CommitLog
) -> None:
    drive.room = 0
    log.replicate(0, b"")
    with pytest.raises(OSError, match="No space"):
        log.replicate(0, b"x" * 10)
    drive.room = None
    log.replicate(0, b"x" * 10)
    drive.room = 0
    with pytest.raises(OSError, match="No space"):
        log.replicate(10, b"y" * FILE)
    assert (log.end, log.read(0, FILE)) == (FILE, b"x" * 10 + b"y" * (FILE - 10))


# reads


def test_a_read_ends_with_its_file_and_with_the_log(log: CommitLog) -> None:
    append(log, ROOM)
    append(log, 100)
    assert [len(log.read(at, 1 << 40)) for at in (0, FILE - 5, FILE, FILE + 99, FILE + 100)] == [
        FILE, 5, 100, 1, 0,
    ]  # fmt: skip
    assert len(b"".join(log.copies(10, log.end))) == log.end - 10
    assert list(log.copies(5, 5)) == []
    assert list(log.copies(log.end, log.end + 5)) == []


@pytest.mark.parametrize("at", [-1, 1, 50, 99, 101, 200, 250, 1 << 40])
def test_no_record_begins_elsewhere(log: CommitLog, at: int) -> None:
    append(log)
    append(log)
    assert log.record_at(at) is None


def test_a_record_that_names_another_place_or_is_incomplete_is_none(log: CommitLog) -> None:
    """Clients may ask for any offset."""
    log.replicate(0, record(0) + record(900) + record(200) + record(300)[:99])
    assert [log.record_at(at) is not None for at in range(0, 400, 100)] == [
        True, False, True, False,
    ]  # fmt: skip


def test_bytes_that_an_entry_names_are_given_as_long_as_the_log_has_all_of_them(
    log: CommitLog,
) -> None:
    append(log, ROOM)
    append(log, 100)
    named = [(0, ROOM), (FILE, 100), (FILE + 1, 100), (FILE, 101), (FILE - 8, 9), (-1, 1)]
    assert [log.record_bytes(*each) is not None for each in named] == [
        True, True, False, False, False, False,
    ]  # fmt: skip
    log.forget_before(FILE)
    assert [log.record_bytes(*each) is not None for each in named[:2]] == [False, True]


@pytest.mark.parametrize("file_size", [FILE, 1 << 20])
@settings(max_examples=25)
@given(st.lists(st.integers(SIZE_MIN + 1, ROOM), min_size=1, max_size=12), st.data())
def test_runs_of_records_are_read_as_each_by_itself(
    file_size: int, sizes: list[int], data: st.DataObject
) -> None:
    """Those that are near each other are read at once."""
    log = log_on(Drive(random.Random(1)), file_size)
    places = [append(log, size) for size in sizes]
    wanted = data.draw(st.lists(st.sampled_from(range(len(sizes))), min_size=1, unique=True))
    firsts = [places[number] for number in sorted(wanted)]
    ends = [places[number] + sizes[number] for number in sorted(wanted)]
    assert log.runs(firsts, ends) == [log.record_at(at) for at in firsts]


def test_runs_far_from_each_other_are_read_one_by_one(drive: Drive) -> None:
    log = log_on(drive, 1 << 20)
    places = [append(log, size) for size in (100, 300_000, 100)]
    drive.lost_from[Path("/s") / file_name(0)] = places[2] + 100
    firsts = [places[0], places[2]]
    assert log.runs(firsts, [at + 100 for at in firsts]) == [record(at) for at in firsts]


@pytest.mark.parametrize("size", [200, 1 << 31 - 1])
def test_a_damaged_size_reads_no_more_than_the_log_has(log: CommitLog, size: int) -> None:
    append(log)
    corrupt(log, 0, size.to_bytes(4, "big"))
    assert log.record_at(0) is None
    with pytest.raises(CorruptRecord) as damaged:
        list(log.blocks(0, is_whole=True))
    assert damaged.value.at == 0


def test_a_record_whose_end_is_missing_ends_a_walk_unless_no_more_bytes_follow(
    log: CommitLog,
) -> None:
    """On a slave the rest of it may still come."""
    log.replicate(0, record(0) + record(100)[:60])
    assert [len(block) for block in log.blocks(0)] == [1]
    walk = log.blocks(0, is_whole=True)
    assert len(next(walk)) == 1
    with pytest.raises(CorruptRecord, match="size 100, beyond the log's end") as damaged:
        next(walk)
    assert damaged.value.at == 100


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"\0\0\0\x64" + bytes(4), "size 100, magic 0x00000000"),
        (bytes(8), "size 0, magic 0x00000000"),
        (b"\xff" * 8, "size 4294967295, magic 0xffffffff"),
    ],
)
def test_a_walk_ends_where_neither_a_record_nor_a_blank_begins(
    log: CommitLog, data: bytes, reason: str
) -> None:
    for _ in range(3):
        append(log)
    corrupt(log, 100, data)
    walk = log.walk(0)
    assert next(walk)[0] == 0
    with pytest.raises(CorruptRecord) as damaged:
        next(walk)
    assert (damaged.value.at, damaged.value.reason) == (100, reason)


def test_bytes_too_near_to_a_files_end_for_a_blank_are_damage(log: CommitLog) -> None:
    log.replicate(0, record(0, FILE - 5) + bytes(5) + record(FILE))
    walk = log.walk(0)
    assert next(walk)[0] == 0
    with pytest.raises(CorruptRecord, match="too near to the file's end"):
        next(walk)


def test_a_record_larger_than_a_block_is_walked_over(drive: Drive) -> None:
    log = log_on(drive, 4 * BLOCK_SIZE)
    sizes = [100, BLOCK_SIZE + 1, 2 * BLOCK_SIZE, 100]
    places = [append(log, size) for size in sizes]
    assert [(at, len(data)) for at, data in log.walk(0)] == list(zip(places, sizes, strict=True))


def test_a_file_that_was_cut_is_noticed_before_its_bytes_are_used(
    drive: Drive, log: CommitLog
) -> None:
    append(log)
    log.require_whole()
    drive.lost_from[Path("/s") / file_name(0)] = 50
    for access in (log.require_whole, lambda: log.mapped(0), lambda: log.read(0, 100)):
        with pytest.raises(UnreadableFile):
            access()
    with pytest.raises(UnreadableFile):
        log.replicate(100, b"x")
    assert log.end == 100


def test_a_file_is_checked_once_while_the_log_remembers_it(drive: Drive, log: CommitLog) -> None:
    append(log)
    log.remember_checked_file(True)
    log.mapped(0)
    drive.lost_from[Path("/s") / file_name(0)] = 50
    log.mapped(0)
    log.remember_checked_file(False)
    with pytest.raises(UnreadableFile):
        log.mapped(0)
    log.remember_checked_file(True)
    with pytest.raises(UnreadableFile):
        log.mapped(0)


# ends


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda drive, path: drive.lost_from.update({path: 7}), "has 7 bytes, .*; restore the"),
        (lambda drive, path: drive.remove(path), "is missing; restore the file"),
    ],
)
def test_a_log_with_a_damaged_file_cannot_be_loaded(
    drive: Drive, log: CommitLog, damage: Callable[[Drive, Path], None], message: str
) -> None:
    log.replicate(0, bytes(3 * FILE))
    drive.unmount()
    damage(drive, Path("/s") / file_name(FILE))
    with pytest.raises(StoreError, match=message):
        log_on(drive)


@pytest.mark.parametrize("end", [0, 50, 100, FILE, FILE + 100, 2 * FILE])
def test_nothing_of_a_truncated_tail_comes_back(drive: Drive, log: CommitLog, end: int) -> None:
    log.replicate(0, b"x" * 3 * FILE)
    log.sync_work(log.end)()
    log.synced(log.end)
    log.truncate(end)
    assert (log.end, log.flushed_to, log.readable_to) == (end, end, end)
    drive.crash()
    again = log_on(drive)
    assert again.end <= end + -end % FILE
    assert b"".join(again.copies(0, again.end)) == (b"x" * end).ljust(again.end, b"\0")


def test_a_truncated_log_goes_on_at_its_end(log: CommitLog) -> None:
    for _ in range(50):
        append(log)
    log.truncate(100)
    assert (append(log), [at for at, _ in log.walk(0)]) == (100, [0, 100])


def test_an_empty_log_that_was_truncated_keeps_its_end(log: CommitLog) -> None:
    log.replicate(5 * FILE, b"x")
    log.truncate(5 * FILE)
    assert (log.start, log.end, log.file_starts) == (5 * FILE, 5 * FILE, [])


@pytest.mark.parametrize("pooled", [False, True])
def test_synced_bytes_survive_a_crash(drive: Drive, *, pooled: bool) -> None:
    log = log_on(drive, pooled=pooled)
    places = [append(log) for _ in range(50)]
    end = log.end
    work = log.sync_work(end)
    assert log.flushed_to == 0
    work()
    log.synced(end)
    assert log.flushed_to == end
    log.synced(10)
    assert log.flushed_to == end, "it only grows"
    drive.crash()
    again = log_on(drive)
    assert [again.record_at(at) for at in places] == [record(at) for at in places]


def test_what_recovery_does_not_know_to_be_durable_is_synced_again(log: CommitLog) -> None:
    append(log)
    log.reset_flushed_to(60)
    assert log.flushed_to == 60
    log.reset_flushed_to(1 << 40)
    assert log.flushed_to == log.end == 100


def test_after_a_failed_sync_nothing_is_appended_cut_or_counted_as_durable(
    drive: Drive, log: CommitLog
) -> None:
    append(log)
    drive.failure = errno.EIO
    with pytest.raises(OSError, match="Input/output"):
        log.sync_work(100)()
    drive.failure = None
    log.synced(100)
    log.refuse_appends()
    refused = (lambda: log.make_room(9), lambda: log.replicate(100, b"x"), lambda: log.truncate(0))
    for attempt in refused:
        with pytest.raises(OSError, match="no file of the store is synced any more"):
            attempt()
    assert (log.end, log.flushed_to, log.record_at(0)) == (100, 0, record(0))


def test_a_log_whose_file_was_deleted_while_it_was_in_use_has_a_failed_sync(
    drive: Drive, log: CommitLog
) -> None:
    append(log)
    drive.remove(Path("/s") / file_name(0))
    with pytest.raises(UnreadableFile):
        log.sync_work(100)()
    log.synced(100)
    with pytest.raises(OSError, match="no file of the store is synced any more"):
        log.make_room(FILE // 2 * 2 - BLANK_SIZE)
    assert log.flushed_to == 0


def test_a_log_that_lost_its_oldest_files_begins_with_the_next_one(log: CommitLog) -> None:
    log.replicate(0, bytes(3 * FILE))
    assert [deletion.path.name for deletion in log.forget_before(FILE + 1)] == [file_name(0)]
    assert (log.start, log.file_starts, log.record_at(0)) == (FILE, [FILE, 2 * FILE], None)
    log.close()
    assert log.file_starts == []
