"""Index files are read as Apache's broker and ours lay them out."""

from __future__ import annotations

from pathlib import Path
from struct import pack
from typing import Final

import pytest

from roquet.storage.index.layout import HEADER, key_hash
from roquet.storetool.read.index_files import (
    COUNT_AT,
    ENTRIES_DEFAULT,
    PREVIOUS_AT,
    SLOTS_DEFAULT,
    USED_SLOTS_AT,
    IndexHeader,
    IndexReader,
    Shape,
    read_header,
    shape_of,
)
from tests.storetool.stores import SHAPE, filled, overwrite

GOLDEN: Final = Path(__file__).parents[2] / "golden" / "store"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """An index file that is full: it has room for 39 of the 40 keys."""
    filled(tmp_path, 20)
    return min((tmp_path / "index").iterdir())


def test_a_header_says_from_where_to_where_it_indexes(tmp_path: Path) -> None:
    places = filled(tmp_path, 10)

    header = read_header(next((tmp_path / "index").iterdir()))

    assert (header.begin_at, header.end_at) == (places[0], places[-1])
    assert header.count == 21
    keys = [f"T-{number:08d}" for number in range(10)] + [f"k{number}" for number in range(5)]
    assert header.used_slots == len({key_hash("T", key) % SHAPE.slots for key in keys})


@pytest.mark.parametrize("size", [0, HEADER.size - 1])
def test_the_header_of_a_short_file_is_that_of_an_empty_one(tmp_path: Path, size: int) -> None:
    path = tmp_path / "index"
    path.write_bytes(bytes(size))

    assert read_header(path) == IndexHeader(0, 0, 0, 1)


def test_a_deleted_file_reads_as_an_empty_one(tmp_path: Path) -> None:
    reader = IndexReader(tmp_path / "none", SHAPE)

    assert reader.header() == IndexHeader(0, 0, 0, 1)
    assert (len(reader.slots()), len(reader.entries(1, 5))) == (0, 0)


def test_entries_are_counted_from_one(tmp_path: Path, path: Path) -> None:
    reader = IndexReader(path, SHAPE)

    entries = reader.entries(1, 3)

    assert entries["hash"].tolist() == [
        key_hash("T", key) for key in ("T-00000000", "k0", "T-00000001")
    ]
    assert (entries["at"][0], entries["at"][1]) == (0, 0)
    assert entries["at"][2] > 0


def test_entries_end_with_the_file(path: Path) -> None:
    reader = IndexReader(path, SHAPE)

    assert len(reader.entries(SHAPE.entries - 1, 5)) == 1
    assert len(reader.entries(SHAPE.entries, 5)) == 0


def test_each_slot_has_the_newest_entry_of_its_chain(path: Path) -> None:
    reader = IndexReader(path, SHAPE)

    slots = reader.slots()

    count = reader.header().count
    hashes = reader.entries(1, count - 1)["hash"] % SHAPE.slots
    expected = [0] * SHAPE.slots
    for number, slot in enumerate(hashes.tolist(), 1):
        expected[slot] = number
    assert slots.tolist() == expected


def test_the_fields_named_by_their_bytes_are_there(path: Path) -> None:
    reader = IndexReader(path, SHAPE)
    header = reader.header()
    data = path.read_bytes()

    assert data[USED_SLOTS_AT:COUNT_AT] == pack(">i", header.used_slots)
    assert data[COUNT_AT : COUNT_AT + 4] == pack(">i", header.count)
    newest = reader.entries(header.count - 1, 1)
    at = SHAPE.entry_at(header.count - 1) + PREVIOUS_AT
    assert data[at : at + 4] == pack(">i", newest["previous"][0])


def test_apache_s_default_shape_has_its_file_size() -> None:
    assert Shape() == Shape(SLOTS_DEFAULT, ENTRIES_DEFAULT)
    assert Shape().file_size == 40 + 4 * 5_000_000 + 20 * 20_000_000


# the shape of a file that does not say it


def test_the_shape_of_a_file_is_found(path: Path) -> None:
    assert shape_of(path) == SHAPE


@pytest.mark.parametrize("name", ["clean", "crashed"])
def test_the_shape_of_apache_s_files_is_found(name: str) -> None:
    path = next((GOLDEN / name / "index").iterdir())

    assert shape_of(path) == Shape(20, 60)


def test_a_file_without_entries_does_not_show_its_shape(tmp_path: Path) -> None:
    path = tmp_path / "index"
    path.write_bytes(bytes(SHAPE.file_size))

    assert shape_of(path) is None


def test_a_file_whose_only_record_is_the_log_s_first_does_not_show_its_shape(
    tmp_path: Path,
) -> None:
    """Its offset is 0, and zeros are everywhere."""
    filled(tmp_path, 1)

    assert shape_of(next((tmp_path / "index").iterdir())) is None


def test_a_newest_entry_that_no_slot_names_does_not_show_the_shape(path: Path) -> None:
    overwrite(path, HEADER.size, bytes(4 * SHAPE.slots))

    assert shape_of(path) is None


def test_a_newest_entry_with_a_negative_hash_does_not_show_the_shape(path: Path) -> None:
    """Although the slot that has its number is the one that its hash would belong to."""
    newest = read_header(path).count - 1
    hashed = int(IndexReader(path, SHAPE).entries(newest, 1)["hash"][0])
    overwrite(path, SHAPE.entry_at(newest), pack(">i", hashed % SHAPE.slots - SHAPE.slots))

    assert shape_of(path) is None


def test_a_count_that_the_file_has_no_room_for_does_not_show_the_shape(path: Path) -> None:
    overwrite(path, COUNT_AT, pack(">i", 5000))

    assert shape_of(path) is None


def test_the_newest_record_s_offset_in_other_bytes_is_passed_over(tmp_path: Path) -> None:
    """It is in two slots, then in an entry of the same record before the newest one."""
    filled(tmp_path, 10)
    path = next((tmp_path / "index").iterdir())
    header, reader = read_header(path), IndexReader(path, SHAPE)
    assert reader.entries(header.count - 2, 2)["at"].tolist() == [header.end_at] * 2
    slots = reader.slots().tolist()
    free = next(n for n in range(SHAPE.slots) if slots[n : n + 2] == [0, 0])
    overwrite(path, HEADER.size + 4 * free, pack(">q", header.end_at))

    assert shape_of(path) == SHAPE
