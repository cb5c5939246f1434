"""A damaged record in the middle of a log costs that record; what a crash of the machine took is
still cut off.
"""

from __future__ import annotations

import logging
import random
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from roquet.protocol.filters.tags import TagFilter
from roquet.protocol.records.layout import MAGIC
from roquet.protocol.records.record import decode
from roquet.storage.config import StoreConfig
from roquet.storage.fetch import FetchStatus
from roquet.storage.log import holes
from roquet.storage.store import Store
from tests.simulation.disk import Drive
from tests.storage.records import append_one, bodies_in, found_by_key

FILE = 65_536
SECTOR = 512
CONFIG = StoreConfig(
    Path("/s"), [Path("/s/commitlog")], FILE, 20 * 1000, index_slots=50, index_entries=500
)

Damage = Callable[[memoryview], None]


def opened(drive: Drive) -> Store:
    store = Store(CONFIG, lambda: 1_700_000_000_000 + drive.now_ms(), drive.mount())
    store.open()
    return store


def put(store: Store, number: int, topic: str = "T", size: int = 200) -> int:
    key = b"%d" % number
    at = append_one(
        store,
        store.queue(topic, 0),
        key.ljust(size, b"."),
        b"KEYS\x01" + key,
        [key],
        born_host=b"\x7f\0\0\x01\0\0\x12\x34",
    )
    store.end_turn()
    return at


def numbers(store: Store, topic: str = "T") -> list[int]:
    return [int(body.rstrip(b".")) for body in bodies_in(store, topic)]


def bytes_at(drive: Drive, at: int, size: int) -> memoryview:
    """The bytes of the log's first file, as they lie on the drive."""
    file = drive.names.files[Path("/s/commitlog") / f"{0:020d}"]
    return memoryview(file.cached)[at : at + size]


def half_packed(record: memoryview) -> None:
    """What a version of this broker left that took the place for a record before a field of it did
    not fit.
    """
    record[16:] = bytes(len(record) - 16)


def body_bit(record: memoryview) -> None:
    record[100] ^= 0x40


def size_field(record: memoryview) -> None:
    record[:4] = b"\x7f\xff\xff\xff"


def magic(record: memoryview) -> None:
    record[4:8] = b"gone"


def place(record: memoryview) -> None:
    record[28:36] = b"\0\0\0\0\0\1\0\0"


def garbage(record: memoryview) -> None:
    record[:] = random.Random(1).randbytes(len(record)).replace(b"\0", b"x")


def size_beyond_the_end(record: memoryview) -> None:
    """What follows would have to come yet, as far as this record says."""
    record[:4] = (30_000).to_bytes(4, "big")


ANY = pytest.mark.parametrize("damage", [half_packed, body_bit, size_field, magic, place, garbage])


@pytest.fixture
def drive() -> Drive:
    return Drive(random.Random(1))


@ANY
@pytest.mark.parametrize("number", [0, 7, 18])
def test_a_crash_costs_a_damaged_record_and_none_behind_it(
    drive: Drive, damage: Damage, number: int
) -> None:
    store = opened(drive)
    places = [put(store, each) for each in range(20)]
    end = store.log.end
    size = places[number + 1] - places[number]
    damage(bytes_at(drive, places[number], size))
    drive.unmount()
    store = opened(drive)
    assert store.log.end == end
    assert numbers(store) == [each for each in range(20) if each != number]
    assert (store.dispatch.holes, store.dispatch.hole_bytes) == (1, size)
    assert len(found_by_key(store, "T", "19", 32, 0, 1 << 62).records) == 1


@pytest.mark.parametrize("is_behind_the_mark", [True, False])
def test_a_damaged_size_that_leads_beyond_the_logs_end_stops_no_dispatch(
    drive: Drive, *, is_behind_the_mark: bool
) -> None:
    """A master waits for no more bytes: it would take no message any more."""
    store = opened(drive)
    places = [put(store, each) for each in range(20)]
    put(store, 0, "other")
    if not is_behind_the_mark:
        store.make_checkpoint()
    size_beyond_the_end(bytes_at(drive, places[7], 200))
    drive.unmount()
    for path in [path for path in drive.names.files if "other" in path.parts]:
        del drive.names.files[path]
    store = opened(drive)
    assert store.dispatch.lag == 0
    put(store, 20)
    if is_behind_the_mark:
        assert numbers(store) == [each for each in range(21) if each != 7]
    assert numbers(store, "other") == [0]


def test_a_record_as_large_as_many_sectors_may_be_half_packed(drive: Drive) -> None:
    store = opened(drive)
    places = [put(store, each, size=3000) for each in range(10)]
    half_packed(bytes_at(drive, places[4], places[1]))
    drive.unmount()
    assert numbers(opened(drive)) == [0, 1, 2, 3, 5, 6, 7, 8, 9]


def test_of_a_batch_that_was_half_packed_the_next_record_is_found(drive: Drive) -> None:
    store = opened(drive)
    places = [put(store, each) for each in range(10)]
    bytes_at(drive, places[4] + 16, 3 * places[1] - 16)[:] = bytes(3 * places[1] - 16)
    drive.unmount()
    assert numbers(opened(drive)) == [0, 1, 2, 3, 7, 8, 9]


@ANY
def test_a_damaged_record_is_told_of_once_with_its_place(
    drive: Drive, damage: Damage, caplog: pytest.LogCaptureFixture
) -> None:
    store = opened(drive)
    places = [put(store, each) for each in range(20)]
    damage(bytes_at(drive, places[3], places[1]))
    drive.unmount()
    caplog.set_level(logging.WARNING)
    opened(drive)
    (line,) = (record.getMessage() for record in caplog.records)
    assert f"physical_offset={places[3]} next={places[4]} bytes={places[1]}" in line
    assert "roquet store check" in line


@pytest.mark.parametrize("lost", [(1, 2), (1, 3), (3, 4), (5, 9)])
def test_sectors_that_never_reached_the_drive_end_the_log(
    drive: Drive, lost: tuple[int, int]
) -> None:
    """Another broker may have what was lost: nothing written behind it may count."""
    store = opened(drive)
    places = [put(store, each) for each in range(30)]
    bytes_at(drive, SECTOR * lost[0], SECTOR * (lost[1] - lost[0]))[:] = bytes(
        SECTOR * (lost[1] - lost[0])
    )
    drive.unmount()
    store = opened(drive)
    kept = sum(at + places[1] <= SECTOR * lost[0] for at in places)
    assert numbers(store) == list(range(kept))
    assert store.log.end == places[kept]
    assert store.dispatch.holes == 0


@pytest.mark.parametrize(("before", "was_written"), [(1, False), (2, False), (3, True)])
def test_a_record_whose_first_bytes_are_zeros_does_not_vouch_for_the_sector_they_end(
    drive: Drive, before: int, was_written: bool
) -> None:
    """Two of its size are, in any record below 64 KiB: they are the same whether that sector was
    written or lost.
    """
    store = opened(drive)
    places = [put(store, each) for each in range(3)]
    around_body = places[1] - 200
    put(store, 3, size=2 * SECTOR - before - (store.log.end + around_body) % SECTOR)
    at = put(store, 4)
    assert (at + before) % SECTOR == 0
    lost = bytes_at(drive, at + before - SECTOR, SECTOR - before)
    lost[:] = bytes(len(lost))
    drive.unmount()
    store = opened(drive)
    assert numbers(store) == ([0, 1, 2, 4] if was_written else [0, 1, 2])
    assert store.dispatch.holes == was_written


def test_half_a_record_of_a_slave_whose_other_half_was_lost_ends_the_log(drive: Drive) -> None:
    """A slave writes and syncs parts of records: only the end of a sector is zeros then."""
    store = opened(drive)
    places = [put(store, each) for each in range(30)]
    number = next(each for each, at in enumerate(places) if SECTOR - at % SECTOR in range(60, 200))
    start = places[number] + 20
    rest = SECTOR - start % SECTOR
    bytes_at(drive, start, rest)[:] = bytes(rest)
    drive.unmount()
    assert numbers(opened(drive)) == list(range(number))


def test_what_the_checkpoint_covers_is_durable_whatever_it_looks_like(drive: Drive) -> None:
    store = opened(drive)
    places = [put(store, each) for each in range(30)]
    store.make_checkpoint()
    put(store, 30)
    bytes_at(drive, SECTOR, 2 * SECTOR)[:] = bytes(2 * SECTOR)
    drive.unmount()
    store = opened(drive)
    assert store.max_offset("T", 0) == 31
    assert store.log.end > places[-1]


def test_a_record_of_an_earlier_life_behind_a_hole_does_not_come_back(drive: Drive) -> None:
    """Apache's broker leaves what it cuts off behind the log's end."""
    store = opened(drive)
    places = [put(store, each) for each in range(20)]
    for number in range(10, 20):
        bytes_at(drive, places[number] + 56, 8)[:] = (1_600_000_000_000).to_bytes(8, "big")
    magic(bytes_at(drive, places[10], places[1]))
    drive.unmount()
    drive.signed.clear()
    assert numbers(opened(drive)) == list(range(10))


@ANY
def test_a_clock_that_is_set_back_at_a_damaged_record_does_not_end_the_log(
    drive: Drive, damage: Damage
) -> None:
    """No broker that leaves remnants behind the log's end had this store: what stands there was
    written behind it.
    """
    now_ms = 10_000_000
    drive.now_ms = lambda: now_ms
    store = opened(drive)
    for number in range(5):
        put(store, number)
    store.make_checkpoint()
    places = [put(store, number) for number in range(5, 10)]
    now_ms = 0
    for number in range(10, 20):
        put(store, number)
    damage(bytes_at(drive, places[-1], places[-1] - places[-2]))
    end = store.log.end
    drive.unmount()
    store = opened(drive)
    assert numbers(store) == [number for number in range(20) if number != 9]
    assert store.log.end == end


@pytest.mark.parametrize("is_ours", [True, False])
def test_a_start_that_is_cut_short_does_not_say_whose_the_store_was(
    drive: Drive, *, is_ours: bool
) -> None:
    """Apache's remnants are erased at the end of a start only."""
    put(opened(drive), 0)
    drive.unmount()
    if not is_ours:
        drive.signed.clear()
    disk = drive.mount()
    disk.lock(Path("/s/lock"))
    drive.unmount()
    assert drive.mount().lock(Path("/s/lock")).was_ours is is_ours


def test_a_damaged_record_at_the_end_is_no_hole(drive: Drive) -> None:
    store = opened(drive)
    places = [put(store, each) for each in range(20)]
    body_bit(bytes_at(drive, places[19], places[1]))
    drive.unmount()
    store = opened(drive)
    assert numbers(store) == list(range(19))
    assert store.log.end == places[19]


def test_the_offset_of_a_damaged_body_is_given_to_no_other_message(drive: Drive) -> None:
    """The copies of this log have the record: to them its offset is taken, and consumers may be
    past it.
    """
    store = opened(drive)
    places = [put(store, each) for each in range(20)]
    put(store, 100, "other")
    body_bit(bytes_at(drive, places[19], places[1]))
    for _ in range(2):
        drive.unmount()
        store = opened(drive)
        assert store.max_offset("T", 0) == 20
        store.make_checkpoint()
    found = store.fetch("T", 0, 19, 32, TagFilter())
    assert (found.status, found.next_offset) == (FetchStatus.MESSAGE_WAS_REMOVING, 20)
    put(store, 20)
    assert numbers(store) == [*range(19), 20]


@pytest.mark.parametrize("step", [1, 100, 1000, FILE])
@ANY
def test_a_copy_steps_over_the_same_bytes_however_they_come(
    drive: Drive, damage: Damage, step: int
) -> None:
    master = opened(drive)
    places = [put(master, each, "T" if each % 3 else "U") for each in range(20)]
    before = [
        master.fetch("T", 0, offset, 1, TagFilter()).records
        for offset in range(master.max_offset("T", 0))
    ]
    for number in (4, 5, 9):
        damage(bytes_at(drive, places[number], places[1]))
    copy = opened(Drive(random.Random(2)))
    data = bytes(master.log.read(0, FILE))
    for at in range(0, len(data), step):
        copy.log.replicate(at, data[at : at + step])
        copy.replicated()
    assert copy.dispatch.lag == 0
    assert copy.max_offset("T", 0) == master.max_offset("T", 0)
    after = [copy.fetch("T", 0, offset, 1, TagFilter()).records for offset in range(len(before))]
    damaged = [
        offset
        for offset, (mine, theirs) in enumerate(zip(after, before, strict=True))
        if mine != theirs
    ]
    assert damaged == [2, 3]
    if damage is not body_bit:  # then the next one that can be read comes
        assert [after[offset] for offset in damaged] == [before[4], before[4]]


def test_a_copy_that_cannot_go_on_says_so_once(
    drive: Drive, caplog: pytest.LogCaptureFixture
) -> None:
    master = opened(drive)
    places = [put(master, each) for each in range(10)]
    half_packed(bytes_at(drive, places[9], places[1]))
    copy = opened(Drive(random.Random(2)))
    data = bytes(master.log.read(0, FILE))
    copy.log.replicate(0, data)
    for _ in range(20):
        copy.replicated()
    assert copy.dispatch.stopped is not None
    assert copy.dispatch.stopped.at == copy.dispatch.position == places[9]
    (line,) = (record.getMessage() for record in caplog.records)
    assert line.startswith(
        "dispatch stopped at a damaged record, nothing valid follows yet: "
        f"physical_offset={places[9]}"
    )
    put(master, 10)
    copy.log.replicate(copy.log.end, bytes(master.log.read(copy.log.end, FILE)))
    copy.replicated()
    assert copy.dispatch.stopped is None
    assert numbers(copy) == [*range(9), 10]


def test_a_search_that_takes_long_is_done_in_parts(
    drive: Drive, monkeypatch: pytest.MonkeyPatch
) -> None:
    master = opened(drive)
    places = [put(master, each) for each in range(100)]
    bytes_at(drive, places[1], places[98] - places[1])[:] = bytes(places[98] - places[1])
    copy = opened(Drive(random.Random(2)))
    copy.log.replicate(0, bytes(master.log.read(0, FILE)))
    monkeypatch.setattr(holes, "_PIECE", 1024)
    monkeypatch.setattr(copy.dispatch, "_hole_ends", holes.HoleScanner(copy.log, at_once=4096))
    copy.replicated()
    assert copy.dispatch.lag > 0
    while copy.dispatch.lag:
        copy.replicated()
    assert numbers(copy) == [0, 98, 99]


def test_a_message_that_looks_like_a_record_is_none_behind_a_hole(drive: Drive) -> None:
    store = opened(drive)
    at = [put(store, each) for each in range(3)]
    forged = replace(
        decode(store.log.record_at(at[2]) or b""),
        physical_offset=store.log.end + 88,
        body=b"!",
    )
    place = append_one(store, store.queue("T", 0), forged.encode())
    put(store, 4)
    bytes_at(drive, place, 100)[30] ^= 1
    drive.unmount()
    assert numbers(opened(drive)) == [0, 1, 2, 4]


def test_damage_up_to_a_files_end_is_stepped_over_into_the_next_file(drive: Drive) -> None:
    store = opened(drive)
    places: list[int] = []
    while not places or places[-1] < FILE:
        places.append(put(store, len(places)))
    put(store, len(places))
    last = len(places) - 2
    bytes_at(drive, places[last], FILE - places[last])[:] = b"x" * (FILE - places[last])
    drive.unmount()
    assert numbers(opened(drive)) == [each for each in range(len(places) + 1) if each != last]


@pytest.mark.parametrize("second", [body_bit, size_field, magic, garbage])
@pytest.mark.parametrize("first", [body_bit, size_field, magic, garbage])
def test_damaged_neighbours_are_given_to_nobody_and_keep_their_offsets(
    drive: Drive, first: Damage, second: Damage
) -> None:
    """A bad block of a drive is larger than most messages."""
    store = opened(drive)
    places = [put(store, number) for number in range(20)]
    for place, damage in zip(places[7:10], (first, second, body_bit), strict=False):
        damage(bytes_at(drive, place, places[1]))
    drive.unmount()
    store = opened(drive)
    assert numbers(store) == [number for number in range(20) if number not in (7, 8, 9)]
    assert store.max_offset("T", 0) == 20


def test_the_offsets_of_damaged_bodies_at_a_queues_end_are_given_to_no_other_message(
    drive: Drive,
) -> None:
    store = opened(drive)
    places = [put(store, number) for number in range(10)]
    put(store, 0, "other")
    for place in places[7:]:
        body_bit(bytes_at(drive, place, places[1]))
    drive.unmount()
    store = opened(drive)
    assert store.max_offset("T", 0) == 10
    assert numbers(store) == list(range(7))


def test_a_search_does_not_read_what_stands_elsewhere(
    drive: Drive, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A body may be full of heads of records: none of them is read further than to where it says it
    stands.
    """
    heads = b"".join(
        (40_000 - number).to_bytes(4, "big") + MAGIC.to_bytes(4, "big") for number in range(1000)
    )
    store = opened(drive)
    body = heads.ljust(9000, b".")
    place = append_one(store, store.queue("T", 0), body)
    behind = put(store, 1)
    for number in range(2, 150):
        put(store, number)
    bytes_at(drive, place, 8)[:4] = b"\x7f\xff\xff\xff"
    read = 0
    read_of_log = store.log.read

    def counted(physical: int, size_max: int) -> bytes:
        nonlocal read
        data = read_of_log(physical, size_max)
        read += len(data)
        return data

    monkeypatch.setattr(store.log, "read", counted)
    assert holes.HoleScanner(store.log).find(place) == behind
    assert read < 4 * FILE


@pytest.mark.parametrize("lost", [(50, 51), (40, 61), (75, 76), (94, 101), (0, 3)])
def test_a_search_by_time_skips_no_message_for_a_damaged_one(
    drive: Drive, lost: tuple[int, int]
) -> None:
    """A blank has no time; whoever took it for an early one went on behind it, past all that is
    sought before it.
    """
    seconds = iter(range(1_000_000))
    drive.now_ms = lambda: 1000 * next(seconds)
    store = opened(drive)
    stored_ms: dict[int, int] = {}
    places = []
    for number in range(102):
        places.append(put(store, number))
        stored_ms[number] = store.store_time("T", 0, number)
    for number in range(*lost):
        body_bit(bytes_at(drive, places[number], 200))
    drive.unmount()
    store = opened(drive)
    left = [number for number in range(102) if not lost[0] <= number < lost[1]]
    assert numbers(store) == left
    for number in left:
        assert store.offset_at_time("T", 0, stored_ms[number]) == number
    for number in range(*lost):
        assert store.offset_at_time("T", 0, stored_ms[number]) in (
            lost[0] - 1,
            *range(*lost),
            lost[1],
        )


@ANY
@pytest.mark.parametrize("has_checkpoint", [True, False])
def test_after_a_clean_stop_damage_costs_one_record(
    drive: Drive, damage: Damage, *, has_checkpoint: bool
) -> None:
    """Queues that somebody deleted are completed from a log with a hole."""
    store = opened(drive)
    places = [put(store, each) for each in range(20)]
    store.close()
    damage(bytes_at(drive, places[5], places[1]))
    drive.unmount()
    disk = drive.mount()
    disk.delete(Path("/s/consumequeue/T/0") / f"{0:020d}")
    if not has_checkpoint:
        disk.delete(Path("/s/checkpoint"))
    store = Store(CONFIG, lambda: 1_700_000_000_000, disk)
    store.open()
    assert numbers(store) == [each for each in range(20) if each != 5]


@ANY
@pytest.mark.parametrize("count", [1, 3])
def test_the_offset_of_a_queues_last_record_is_given_to_no_other_message(
    drive: Drive, damage: Damage, count: int
) -> None:
    """It was acknowledged with it. Its entry was written, though not in front of the checkpoint's
    mark.
    """
    store = opened(drive)
    for number in range(5):
        put(store, number)
    store.make_checkpoint()
    places = [put(store, number) for number in range(5, 10)]
    put(store, 0, "other")
    for place in places[-count:]:
        damage(bytes_at(drive, place, places[1] - places[0]))
    for _ in range(2):
        drive.unmount()
        store = opened(drive)
        assert store.max_offset("T", 0) == 10
        store.make_checkpoint()
    put(store, 10)
    assert numbers(store) == [*range(10 - count), 10]
    assert numbers(store, "other") == [0]


def test_entries_that_a_power_failure_left_name_no_damaged_record(drive: Drive) -> None:
    """One that is of an earlier life of the queue takes the offset of no record that is there."""
    store = opened(drive)
    places = [put(store, number) for number in range(8)]
    magic(bytes_at(drive, places[5], places[1]))
    queue = store.queue("T", 0)
    for offset, at in ((5, places[6]), (6, places[7]), (7, places[5])):
        queue._buffer[20 * offset : 20 * offset + 8] = at.to_bytes(8, "big")
    drive.unmount()
    store = opened(drive)
    assert numbers(store) == [0, 1, 2, 3, 4, 6, 7]
    assert store.max_offset("T", 0) == 8


@pytest.mark.parametrize("is_clean", [True, False])
def test_what_is_read_again_in_front_of_the_mark_is_verified(
    drive: Drive, *, is_clean: bool
) -> None:
    """The whole log is dispatched for one queue that is lost: its damaged bodies are handed out to
    nobody.
    """
    store = opened(drive)
    places: list[int] = []
    while store.log.end < 5 * FILE:
        places.append(put(store, len(places)))
        put(store, 0, "other")
    store.make_checkpoint()
    store.close() if is_clean else None
    body_bit(bytes_at(drive, places[7], 200))
    drive.unmount()
    disk = drive.mount()
    for path in [path for path in drive.names.files if "T" in path.parts]:
        disk.delete(path)
    store = Store(CONFIG, lambda: 1_700_000_000_000, disk)
    store.open()
    assert numbers(store) == [number for number in range(len(places)) if number != 7]
    assert (store.max_offset("T", 0), store.dispatch.holes) == (len(places), 1)
