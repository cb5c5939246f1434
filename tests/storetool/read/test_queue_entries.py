"""The entries of a queue are read as columns, from files that a broker may be changing."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from roquet.storage.queues.consume_queue import BLANK_ENTRY, BLANK_RECORD_SIZE, ENTRY, ENTRY_SIZE
from roquet.storage.queues.ext import ADDRESS_MAX, ADDRESS_OF_FIRST
from roquet.storetool.read.queue_entries import QueueEntries, dispatched_to, entries_of
from tests.storetool.queues import SIZE, entries, written
from tests.storetool.stores import START_MS, Broker, files_of, filled


def codes(found: QueueEntries, offset: int, count: int) -> list[int]:
    return [int(code) for code in found.read(offset, count)["tag_code"]]


@pytest.mark.parametrize("count", [1, 9, 10, 11, 20, 25])
def test_a_queue_ends_behind_its_last_entry(tmp_path: Path, count: int) -> None:
    found = written(tmp_path, 30, entries(30, count))

    assert (found.first, found.end()) == (30, 30 + count)
    assert found.log_end() == SIZE * (30 + count)


def test_a_queue_without_files_is_empty(tmp_path: Path) -> None:
    found = written(tmp_path, 0, [])

    assert (found.first, found.end(), found.log_end()) == (0, 0, 0)
    assert (len(found.read(0, 5)), len(found.between(0, 1 << 40))) == (0, 0)
    assert found.slots(0, 2)["size"].tolist() == [0, 0]
    assert list(found.walk(0, 5)) == []


def test_a_segment_made_ahead_has_no_entries(tmp_path: Path) -> None:
    found = written(tmp_path, 0, [*entries(0, 10), bytes(ENTRY_SIZE)])

    assert len(found.files.files) == 2
    assert (found.end(), found.log_end()) == (10, 10 * SIZE)


def test_a_queue_whose_segments_are_all_unused_ends_where_it_begins(tmp_path: Path) -> None:
    found = written(tmp_path, 20, [bytes(ENTRY_SIZE)] * 20)

    assert (found.first, found.end(), found.log_end()) == (20, 20, 0)


@pytest.mark.parametrize("size", [0, -1])
def test_a_queue_ends_before_an_unused_slot_of_its_last_segment(tmp_path: Path, size: int) -> None:
    found = written(tmp_path, 0, [*entries(0, 13), ENTRY.pack(SIZE * 13, size, 0), *entries(14, 2)])

    assert found.end() == 13


def test_an_unused_slot_of_an_earlier_segment_does_not_end_the_queue(tmp_path: Path) -> None:
    found = written(tmp_path, 0, [*entries(0, 4), bytes(ENTRY_SIZE), *entries(5, 10)])

    assert found.end() == 15


def test_the_last_entry_may_be_a_blank(tmp_path: Path) -> None:
    blank = ENTRY.pack(777, BLANK_RECORD_SIZE, 0)
    found = written(tmp_path, 0, [*entries(0, 3), blank])

    assert (found.end(), found.log_end()) == (4, 777)


def test_a_read_goes_on_in_the_next_segment_and_ends_at_a_missing_one(tmp_path: Path) -> None:
    found = written(tmp_path, 0, entries(0, 40), without=20)

    assert codes(found, 8, 4) == [8, 9, 10, 11]
    assert codes(found, 18, 10) == [18, 19]
    assert codes(found, 20, 10) == []
    assert codes(found, 38, 10) == [38, 39]
    assert codes(found, 5, 0) == []


def test_slots_have_zeros_for_what_is_missing(tmp_path: Path) -> None:
    found = written(tmp_path, 10, entries(10, 30), without=20)

    slots = found.slots(8, 25)

    assert slots["tag_code"].tolist() == [0, 0, *range(10, 20), *[0] * 10, 30, 31, 32]
    assert (slots["size"] > 0).tolist() == [
        *[False] * 2, *[True] * 10, *[False] * 10, *[True] * 3,
    ]  # fmt: skip


def test_a_walk_has_each_entry_once_and_stops_at_its_end(tmp_path: Path) -> None:
    found = written(tmp_path, 0, entries(0, 35))

    pieces = list(found.walk(3, 31))

    assert [offset for offset, _ in pieces] == [3]
    assert [int(code) for _, piece in pieces for code in piece["tag_code"]] == list(range(3, 31))


def test_a_walk_stops_at_a_missing_segment(tmp_path: Path) -> None:
    found = written(tmp_path, 0, entries(0, 40), without=20)

    assert [(offset, len(piece)) for offset, piece in found.walk(15, 40)] == [(15, 5)]


@given(first=st.integers(0, 4000), size=st.integers(-1, 2000))
def test_entries_between_two_physical_offsets_are_those_of_all(
    queue: QueueEntries, first: int, size: int
) -> None:
    every = queue.read(0, 35)

    found = queue.between(first, first + size)

    is_between = (every["physical"] >= first) & (every["physical"] < first + size)
    is_between &= (every["size"] > 0) & (every["size"] != BLANK_RECORD_SIZE)
    assert found.tolist() == every[is_between].tolist()


@pytest.fixture(scope="module")
def queue(tmp_path_factory: pytest.TempPathFactory) -> QueueEntries:
    """Blanks fill its beginning, slots after the last entry are unused."""
    return written(tmp_path_factory.mktemp("queue"), 0, [*[BLANK_ENTRY] * 12, *entries(12, 23)])


def test_a_queue_whose_files_are_deleted_meanwhile_has_nothing_between(tmp_path: Path) -> None:
    found = written(tmp_path, 0, entries(0, 20))
    for file in found.files.files:
        file.path.unlink()

    assert len(found.between(0, 1 << 40)) == 0
    assert found.end() == 0


# extension units


def test_units_are_read_by_their_address(tmp_path: Path) -> None:
    filled(tmp_path, 20, ext_file_size=240)
    found = entries_of(files_of(tmp_path), "T", 0)

    addresses = found.read(0, 10)["tag_code"].tolist()

    assert all(address <= ADDRESS_MAX for address in addresses)
    units = [found.unit(address) for address in addresses]
    assert [unit and (unit.tag_code, unit.store_ms) for unit in units] == [
        (ord("a"), START_MS + 1 + 2 * number) for number in range(10)
    ]


@pytest.mark.parametrize("address", [ADDRESS_OF_FIRST + 1_000_000, ADDRESS_MAX])
def test_there_is_no_unit_beyond_the_last(tmp_path: Path, address: int) -> None:
    filled(tmp_path, 20, ext_file_size=240)

    assert entries_of(files_of(tmp_path), "T", 0).unit(address) is None


def test_a_queue_without_units_has_none(tmp_path: Path) -> None:
    filled(tmp_path, 2)

    assert entries_of(files_of(tmp_path), "T", 0).unit(ADDRESS_OF_FIRST) is None


# queues of a store


def test_a_queue_that_the_store_does_not_have_is_empty(tmp_path: Path) -> None:
    filled(tmp_path, 4)
    files = files_of(tmp_path)

    found = entries_of(files, "T", 9)

    assert (found.end(), found.log_end()) == (0, 0)
    assert found.files.file_size == files.queue_file_size


def test_a_store_is_dispatched_up_to_the_highest_record_of_any_queue(tmp_path: Path) -> None:
    broker = Broker(tmp_path)
    broker.fill(5, "A")
    broker.fill(5, "B")
    end = broker.store.log.end
    broker.fill(1, "A", 1)
    last = broker.store.log.end
    assert dispatched_to(files_of(tmp_path)) == last > end
    broker.stop()


def test_a_store_without_queues_is_dispatched_to_nowhere(tmp_path: Path) -> None:
    Broker(tmp_path).stop()

    assert dispatched_to(files_of(tmp_path)) == 0
