"""Each kind of damage of the index is found, where it is, and nothing else is."""

from __future__ import annotations

import shutil
from pathlib import Path
from struct import pack

import pytest

from roquet.storetool.check.findings import FindingKind
from tests.storetool.stores import (
    SHAPE,
    checked,
    flip,
    found,
    overwrite,
    text_of,
)


def index_file(root: Path, number: int = 0) -> Path:
    return sorted((root / "index").iterdir())[number]


def at_of_entry(number: int) -> int:
    return SHAPE.entry_at(number)


@pytest.mark.parametrize("number", [1, 17, 39])
def test_an_index_entry_that_points_elsewhere(
    tmp_path: Path, places: list[int], number: int
) -> None:
    path = index_file(tmp_path, 1)
    flip(path, at_of_entry(number) + 11, 0x04)

    assert found(tmp_path) == [(FindingKind.INDEX_ENTRY, f"index/{path.name}", at_of_entry(number))]
    assert f"entry {number} " in text_of(tmp_path)


def test_an_index_entry_with_another_hash(tmp_path: Path, places: list[int]) -> None:
    path = index_file(tmp_path, 1)
    flip(path, at_of_entry(17) + 3)

    assert found(tmp_path) == [(FindingKind.INDEX_ENTRY, f"index/{path.name}", at_of_entry(17))]


def test_an_index_entry_that_names_a_later_one(tmp_path: Path, places: list[int]) -> None:
    path = index_file(tmp_path)
    overwrite(path, at_of_entry(17) + 16, pack(">i", 20))

    assert found(tmp_path) == [
        (FindingKind.INDEX_ENTRY, f"index/{path.name}", at_of_entry(17) + 16)
    ]


def test_an_index_entry_out_of_its_chain(tmp_path: Path, places: list[int]) -> None:
    path = index_file(tmp_path)
    slots = [
        int.from_bytes(path.read_bytes()[40 + 4 * n : 44 + 4 * n], "big")
        for n in range(SHAPE.slots)
    ]
    newest = next(slot for slot in slots if slot)
    overwrite(path, 40 + 4 * slots.index(newest), bytes(4))

    assert {(kind, file) for kind, file, _ in found(tmp_path)} == {
        (FindingKind.INDEX_ENTRY, f"index/{path.name}")
    }
    assert (
        checked(tmp_path).findings.kept[0].text
        == f"entry {newest} is in no chain: its key cannot be found"
    )


def test_a_slot_that_names_no_entry(tmp_path: Path, places: list[int]) -> None:
    path = index_file(tmp_path)
    data = path.read_bytes()
    slot = next(n for n in range(SHAPE.slots) if not any(data[40 + 4 * n : 44 + 4 * n]))
    overwrite(path, 40 + 4 * slot, pack(">i", 1 << 20))

    assert found(tmp_path) == [(FindingKind.INDEX_ENTRY, f"index/{path.name}", 40 + 4 * slot)]


def test_an_index_header_with_impossible_counts(tmp_path: Path, places: list[int]) -> None:
    path = index_file(tmp_path, -1)
    overwrite(path, 32, pack(">i", 7_000))

    assert found(tmp_path) == [(FindingKind.INDEX_FILE, f"index/{path.name}", 32)]


def test_a_lost_index_file_in_the_middle(tmp_path: Path, places: list[int]) -> None:
    index_file(tmp_path, 1).unlink()

    ((kind, _, _),) = found(tmp_path)

    assert kind is FindingKind.INDEX_MISSING
    assert "39 keys" in text_of(tmp_path)


def test_an_index_file_of_another_size(tmp_path: Path, places: list[int]) -> None:
    path = index_file(tmp_path, -1).with_name("2" * 17)
    path.write_bytes(b"short")

    assert found(tmp_path) == [(FindingKind.INDEX_FILE, f"index/{path.name}", None)]


def test_a_lost_index(tmp_path: Path, places: list[int]) -> None:
    shutil.rmtree(tmp_path / "index")

    assert found(tmp_path) == [(FindingKind.CHECKPOINT, "checkpoint", 64)]
    assert "its index file" in text_of(tmp_path)
