"""Each chain of an index file leads from its slot over older entries to all of them."""

from __future__ import annotations

from collections.abc import Set
from pathlib import Path
from struct import pack
from typing import Final

import numpy as np
import pytest

from roquet.storage.index.layout import ENTRY, HEADER, SLOT
from roquet.storetool.check.findings import FindingKind, Findings
from roquet.storetool.check.index_chains import ChainCheck
from roquet.storetool.read.index_files import (
    COUNT_AT,
    PREVIOUS_AT,
    USED_SLOTS_AT,
    IndexReader,
    Shape,
)
from tests.storetool.stores import overwrite

SHAPE: Final = Shape(slots=5, entries=10)
HASHES: Final = (0, 1, 5, 1, 10, 2)
"""Of entries 1 to 6: 1, 3 and 5 are of slot 0, 2 and 4 of slot 1, and 6 of slot 2."""
NONE: Final[frozenset[int]] = frozenset()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A sound file with the entries `HASHES`."""
    slots = np.zeros(SHAPE.slots, SLOT)
    entries = np.zeros(SHAPE.entries, ENTRY)
    for number, hashed in enumerate(HASHES, 1):
        slot = hashed % SHAPE.slots
        entries[number] = (hashed, 100 * number, 0, slots[slot])
        slots[slot] = number
    header = HEADER.pack(1, 2, 100, 600, 3, len(HASHES) + 1)
    path = tmp_path / "index"
    path.write_bytes(header + slots.tobytes() + entries.tobytes())
    return path


def found(path: Path, known: Set[int] = NONE, *, is_growing: bool = False) -> list[str]:
    return [each[2] for each in everything(path, known, is_growing=is_growing)]


def everything(
    path: Path, known: Set[int] = NONE, *, is_growing: bool = False
) -> list[tuple[FindingKind, int | None, str]]:
    findings = Findings()
    reader = IndexReader(path, SHAPE)
    ChainCheck(reader, "index", findings, known, is_growing=is_growing).check()
    assert all(each.file == "index" for each in findings.kept)
    return [(each.kind, each.offset, each.text) for each in findings.kept]


def put_previous(path: Path, number: int, previous: int) -> int:
    at = SHAPE.entry_at(number) + PREVIOUS_AT
    overwrite(path, at, pack(">i", previous))
    return at


def put_slot(path: Path, slot: int, number: int) -> int:
    at = HEADER.size + 4 * slot
    overwrite(path, at, pack(">i", number))
    return at


def put_hash(path: Path, number: int, hashed: int) -> None:
    overwrite(path, SHAPE.entry_at(number), pack(">i", hashed))


@pytest.mark.parametrize("is_growing", [False, True])
def test_a_sound_file_has_no_findings(path: Path, is_growing: bool) -> None:
    assert found(path, is_growing=is_growing) == []


def test_an_empty_file_has_no_findings(path: Path) -> None:
    path.write_bytes(bytes(SHAPE.file_size))

    assert found(path) == []


def test_a_header_may_count_as_many_entries_as_there_is_room_for(path: Path) -> None:
    overwrite(path, COUNT_AT, pack(">i", 11))
    assert everything(path) == [
        (
            FindingKind.INDEX_FILE,
            COUNT_AT,
            "the header says 10 entries, the file has room for 9",
        )
    ]

    overwrite(path, COUNT_AT, pack(">i", 10))
    assert not any("has room" in text for text in found(path))


@pytest.mark.parametrize("previous", [5, 6, 7, -1, 1 << 30])
def test_an_entry_follows_an_older_one(path: Path, previous: int) -> None:
    at = put_previous(path, 5, previous)

    assert everything(path) == [
        (
            FindingKind.INDEX_ENTRY,
            at,
            f"entry 5 has entry {previous} as the one before it: it is not older",
        )
    ]


def test_an_entry_follows_one_of_its_own_slot(path: Path) -> None:
    put_previous(path, 5, 4)

    assert found(path) == ["entry 5 has entry 4 as the one before it: it is of another slot"]


@pytest.mark.parametrize("number", [7, -2, 1 << 30])
def test_a_slot_has_an_entry_that_exists(path: Path, number: int) -> None:
    at = put_slot(path, 4, number)

    assert everything(path) == [
        (FindingKind.INDEX_ENTRY, at, f"slot 4 has entry {number}, which does not exist")
    ]


def test_a_slot_has_an_entry_of_its_own(path: Path) -> None:
    put_slot(path, 4, 6)

    assert found(path) == ["slot 4 has entry 6, which is of another slot"]


@pytest.mark.parametrize("number", [1, 3, 5])
def test_an_entry_that_no_chain_reaches_cannot_be_found(path: Path, number: int) -> None:
    before = {1: 0, 3: 1, 5: 3}[number]
    if number == 5:
        put_slot(path, 0, before)
    else:
        put_previous(path, number + 2, before)

    assert everything(path) == [
        (
            FindingKind.INDEX_ENTRY,
            SHAPE.entry_at(number),
            f"entry {number} is in no chain: its key cannot be found",
        )
    ]


def test_what_no_chain_reaches_is_not_said_if_a_chain_is_broken(path: Path) -> None:
    put_previous(path, 5, 4)
    put_slot(path, 2, 0)

    assert len(found(path)) == 1


def test_the_header_counts_the_slots_in_use(path: Path) -> None:
    overwrite(path, USED_SLOTS_AT, pack(">i", 2))

    assert everything(path) == [
        (
            FindingKind.INDEX_FILE,
            USED_SLOTS_AT,
            "the header says that 2 slots are in use, but 3 are",
        )
    ]
    assert found(path, is_growing=True) == []


def test_an_entry_that_is_known_to_be_wrong_is_not_reported_by_its_neighbours(path: Path) -> None:
    put_hash(path, 3, 4)

    assert found(path) == [
        "entry 3 has entry 1 as the one before it: it is of another slot",
        "entry 5 has entry 3 as the one before it: it is of another slot",
    ]
    assert found(path, {3}) == []


def test_a_newest_entry_that_is_known_to_be_wrong_is_not_reported_by_its_slot(path: Path) -> None:
    put_hash(path, 6, 4)

    assert found(path) == ["slot 2 has entry 6, which is of another slot"]
    assert found(path, {6}) == []


def test_a_broker_that_adds_an_entry_has_written_it_before_the_header(path: Path) -> None:
    """Entry and slot are there, the header still has the old number."""
    overwrite(path, SHAPE.entry_at(7), pack(">iqii", 3, 700, 0, 0))
    put_slot(path, 3, 7)

    assert found(path, is_growing=True) == []
    assert found(path) == ["slot 3 has entry 7, which does not exist"]


def test_a_growing_file_has_no_entries_beyond_its_room(path: Path) -> None:
    put_slot(path, 3, 1 << 30)

    assert "slot 3 has entry 1073741824, which does not exist" in found(path, is_growing=True)
