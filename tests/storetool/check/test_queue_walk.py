"""A queue's records are compared with its entries as they come, in any pieces."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Final

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from roquet.storage.queues.consume_queue import BLANK_ENTRY, ENTRY, ENTRY_SIZE
from roquet.storetool.check.queue_walk import QueueRecords, QueueWalk, records_of
from roquet.storetool.read.column_scan import RecordColumns
from roquet.storetool.read.queue_entries import QueueEntries, entries_of
from tests.storetool.queues import SIZE, entries, written
from tests.storetool.stores import START_MS, files_of, filled

STORE_MS: Final = 5000


def records(
    offsets: Sequence[int], places: Sequence[int] | None = None, *, delayed: bool = False
) -> QueueRecords:
    """Records of one queue; record `n` is where entry `n` of `entries` says, or at `places`."""
    count = len(offsets)
    numbers = np.array(offsets, np.int64)
    rows = RecordColumns(
        ["T"],
        physical=SIZE * numbers if places is None else np.array(places, np.int64),
        size=np.full(count, SIZE),
        topic=np.zeros(count, np.int64),
        queue_id=np.zeros(count, np.int64),
        queue_offset=numbers,
        store_ms=np.full(count, STORE_MS),
        tag_code=numbers,
        is_queued=np.ones(count, bool),
        is_delayed=np.full(count, delayed),
        key_physical=np.empty(0, np.int64),
        key_hash=np.empty(0, np.int64),
        bad_bodies=[],
    )
    return records_of(rows, np.arange(count))


def suspects(walk: QueueWalk) -> list[int]:
    """Queue offsets of the records that did not match."""
    return [int(offset) for part in walk.suspects for offset in part["offset"]]


@pytest.fixture(scope="module")
def queue(tmp_path_factory: pytest.TempPathFactory) -> QueueEntries:
    """Entries 0 to 29; those of 7 and 12 are wrong, 20 is unused, and 21 a blank."""
    content = entries(0, 30)
    content[7] = ENTRY.pack(9999, SIZE, 7)
    content[12] = ENTRY.pack(12 * SIZE, SIZE + 1, 12)
    content[20] = bytes(ENTRY_SIZE)
    content[21] = BLANK_ENTRY
    return written(tmp_path_factory.mktemp("queue"), 0, content)


def test_records_of_a_queue_keep_their_values() -> None:
    found = records([4, 5], delayed=True)

    assert found.tolist() == [(4, 400, SIZE, 4, STORE_MS, True), (5, 500, SIZE, 5, STORE_MS, True)]


def test_records_that_match_leave_nothing_behind(queue: QueueEntries) -> None:
    walk = QueueWalk(queue)

    walk.take(records(range(3, 7)))

    assert (walk.first, walk.next, walk.has_fit) == (3, 7, True)
    assert (walk.suspects, walk.jumps, walk.misnumbered) == ([], [], [])


@given(cuts=st.sets(st.integers(1, 29)))
def test_in_any_pieces_the_same_records_do_not_match(queue: QueueEntries, cuts: set[int]) -> None:
    walk = QueueWalk(queue)

    bounds = [0, *sorted(cuts), 30]
    for start, end in pairwise(bounds):
        walk.take(records(range(start, end)))

    assert suspects(walk) == [7, 12, 20, 21]
    assert (walk.first, walk.next, walk.jumps, walk.misnumbered) == (0, 30, [], [])


@pytest.mark.parametrize(
    ("code", "fits"), [(STORE_MS - 1, False), (STORE_MS, True), (STORE_MS + 1, True)]
)
def test_a_delayed_record_is_due_when_it_is_stored_or_later(
    tmp_path: Path, code: int, fits: bool
) -> None:
    walk = QueueWalk(written(tmp_path, 0, [ENTRY.pack(0, SIZE, code)]))

    assert walk.fits(records([0], delayed=True)).tolist() == [fits]


def test_a_record_with_another_tag_code_does_not_match(tmp_path: Path) -> None:
    walk = QueueWalk(written(tmp_path, 0, [ENTRY.pack(0, SIZE, 1), ENTRY.pack(SIZE, SIZE, 1)]))

    assert walk.fits(records([0, 1])).tolist() == [False, True]


def test_records_beyond_the_entries_do_not_match(queue: QueueEntries) -> None:
    walk = QueueWalk(queue)

    assert walk.fits(records([29, 30, 31])).tolist() == [True, False, False]


# queue offsets that do not follow


def test_a_gap_that_the_entries_have_too_is_a_jump(queue: QueueEntries) -> None:
    walk = QueueWalk(queue)

    walk.take(records([0, 1, 4, 5]))

    assert walk.jumps == [(2, 4, 4 * SIZE)]
    assert (suspects(walk), walk.next) == ([], 6)


def test_several_records_beyond_a_gap_jump_though_they_have_no_entries(
    queue: QueueEntries,
) -> None:
    walk = QueueWalk(queue)

    walk.take(records([28, 29, 40, 41]))

    assert walk.jumps == [(30, 40, 40 * SIZE)]
    assert (suspects(walk), walk.next) == ([40, 41], 42)


def test_a_record_with_another_offset_than_its_entry_is_misnumbered(queue: QueueEntries) -> None:
    walk = QueueWalk(queue)

    walk.take(records([0, 1, 66, 3], [0, 100, 200, 300]))

    assert walk.misnumbered == [(2, 200, 66)]
    assert (suspects(walk), walk.jumps, walk.next) == ([], [], 4)


def test_a_lone_record_beyond_a_gap_that_no_entry_has_is_a_suspect(queue: QueueEntries) -> None:
    walk = QueueWalk(queue)

    walk.take(records([0, 1, 66], [0, 100, 250]))

    assert (walk.misnumbered, suspects(walk), walk.jumps, walk.next) == ([], [66], [], 2)


def test_records_that_repeat_offsets_are_suspects_and_those_after_them_are_not(
    queue: QueueEntries,
) -> None:
    """Records 2 and 3 come a second time, elsewhere; the run goes on with 4 and 5."""
    walk = QueueWalk(queue)

    walk.take(records([0, 1, 2, 3]))
    walk.take(records([2, 3, 4, 5], [7000, 7100, 400, 500]))

    assert suspects(walk) == [2, 3]
    assert [int(part["at"][0]) for part in walk.suspects] == [7000]
    assert (walk.next, walk.jumps) == (6, [])


def test_records_of_a_deleted_topic_are_forgotten_when_it_begins_again(
    queue: QueueEntries,
) -> None:
    walk = QueueWalk(queue)

    walk.take(records([40, 41, 50, 51]))
    assert (suspects(walk), len(walk.jumps)) == ([40, 41, 50, 51], 1)
    walk.take(records([0, 1, 2]))

    assert (walk.suspects, walk.jumps, walk.misnumbered) == ([], [], [])
    assert (walk.first, walk.next, walk.has_fit) == (0, 3, True)


def test_a_queue_that_has_matched_does_not_begin_again(queue: QueueEntries) -> None:
    walk = QueueWalk(queue)

    walk.take(records([7, 8, 9]))
    walk.take(records([0, 1]))

    assert suspects(walk) == [7]
    assert (walk.first, walk.next) == (7, 2)


# extension units


@pytest.fixture
def noted(tmp_path: Path) -> QueueWalk:
    """A queue of 3 entries with extension units."""
    filled(tmp_path, 6, ext_file_size=240)
    return QueueWalk(entries_of(files_of(tmp_path), "T", 0))


def test_a_unit_says_what_its_record_says(noted: QueueWalk) -> None:
    address = int(noted.entries.read(0, 1)["tag_code"][0])
    (record,) = records([0])
    record["store_ms"], record["tag_code"] = START_MS + 1, ord("a")

    assert noted.wrong_unit(address, record) == ""
    record["tag_code"] = ord("b")
    assert noted.wrong_unit(address, record) == (
        "its extension unit has the tag code 97, the record's is 98"
    )
    record["store_ms"] += 1
    assert noted.wrong_unit(address, record) == (
        "its extension unit is of a record that was stored at 1700000000001, "
        "this one at 1700000000002"
    )
    assert noted.wrong_unit(address + 5000, record) == (
        "it has the address of an extension unit, but there is none"
    )


def test_the_unit_of_a_delayed_record_has_its_delivery_time(noted: QueueWalk) -> None:
    address = int(noted.entries.read(0, 1)["tag_code"][0])
    (record,) = records([0], delayed=True)
    record["store_ms"] = START_MS + 1

    assert "tag code 97" in noted.wrong_unit(address, record)


def test_entries_with_units_match_by_them(noted: QueueWalk) -> None:
    found = noted.entries.read(0, 2)
    rows = records([0, 1], found["physical"].tolist())
    rows["size"] = found["size"]
    rows["store_ms"] = START_MS + 1, START_MS + 99
    rows["tag_code"] = ord("a"), ord("b")

    assert noted.fits(rows).tolist() == [True, False]
