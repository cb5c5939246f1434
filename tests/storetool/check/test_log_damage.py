"""Each kind of damage of the log is found, where it is, and nothing else is."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import pytest

from roquet.storetool.check.findings import FindingKind
from tests.storetool.stores import (
    COUNT,
    LOG_FILE,
    checked,
    entry_place,
    file_of,
    flip,
    found,
    overwrite,
    text_of,
)

FIRST: Final = f"{0:020d}"


@pytest.mark.parametrize("number", [0, 7, COUNT - 1])
def test_a_flipped_bit_in_a_body(tmp_path: Path, places: list[int], number: int) -> None:
    name, index = file_of(tmp_path, places[number])
    flip(tmp_path / name, index + 88 + 2)

    assert found(tmp_path) == [(FindingKind.BODY, name, index)]
    assert f"T {number % 2}, queue offset {number // 2}" in text_of(tmp_path)


FIELDS: Final = {"size": 3, "magic": 5, "physical offset": 35, "sysFlag: IPv6": 39, "body size": 87}


@pytest.mark.parametrize("at", FIELDS.values(), ids=FIELDS)
def test_a_flipped_bit_in_a_header_that_breaks_the_record(
    tmp_path: Path, places: list[int], at: int
) -> None:
    name, index = file_of(tmp_path, places[9])
    flip(tmp_path / name, index + at, 0x10)

    assert found(tmp_path) == [(FindingKind.RECORD, name, index)]
    assert f"from physical offset {places[9]} to {places[10] - 1}" in text_of(tmp_path)


@pytest.mark.parametrize("bits", [0x01, 0x02, 0x40])
def test_a_flipped_bit_in_a_record_s_queue_offset(
    tmp_path: Path, places: list[int], bits: int
) -> None:
    name, index = file_of(tmp_path, places[9])
    flip(tmp_path / name, index + 27, bits)

    assert found(tmp_path) == [(FindingKind.OFFSET, name, index)]
    assert "its entry is at 4" in text_of(tmp_path)


@pytest.mark.parametrize("bits", [0x01, 0x02])
def test_a_flipped_bit_in_a_record_s_queue_id(tmp_path: Path, places: list[int], bits: int) -> None:
    name, index = file_of(tmp_path, places[9])
    flip(tmp_path / name, index + 15, bits)

    assert found(tmp_path) == [(FindingKind.ENTRY, *entry_place(1, 4))]
    assert f"a record says queue offset 4 of T {1 ^ bits}" in text_of(tmp_path)


def test_a_flipped_bit_in_a_tag(tmp_path: Path, places: list[int]) -> None:
    name, index = file_of(tmp_path, places[9])
    data = (tmp_path / name).read_bytes()
    flip(tmp_path / name, data.index(b"TAGS\x01", index) + 5)

    assert found(tmp_path) == [(FindingKind.ENTRY, *entry_place(1, 4))]
    assert "has tag code 98, its record" in text_of(tmp_path)


def test_a_lost_file_of_the_log(tmp_path: Path, places: list[int]) -> None:
    path = tmp_path / "commitlog" / f"{LOG_FILE:020d}"
    path.unlink()

    assert found(tmp_path) == [(FindingKind.LOG_FILE, f"commitlog/{path.name}", None)]
    assert f"from {LOG_FILE} to {2 * LOG_FILE - 1}" in text_of(tmp_path)


def test_the_last_file_of_the_log_is_lost(tmp_path: Path, places: list[int]) -> None:
    sorted((tmp_path / "commitlog").iterdir())[-1].unlink()

    findings = checked(tmp_path).findings

    assert all(
        "beyond the log's end at" in each.text
        for each in findings.kept
        if each.kind is not FindingKind.CHECKPOINT
    )
    assert findings.by_kind[FindingKind.ENTRY] == 2
    assert findings.count < 12


def test_a_log_file_that_was_cut_short(tmp_path: Path, places: list[int]) -> None:
    path = tmp_path / "commitlog" / FIRST
    kept = next(at for at in places if at > 2000)
    path.write_bytes(path.read_bytes()[:kept])

    assert found(tmp_path) == [(FindingKind.LOG_FILE, f"commitlog/{FIRST}", None)]
    assert f"has {kept} bytes, the file size is {LOG_FILE}" in text_of(tmp_path)


def test_a_log_file_without_its_blank(tmp_path: Path, places: list[int]) -> None:
    last = max(at for at in places if at < LOG_FILE)
    path = tmp_path / "commitlog" / FIRST
    end = last + int.from_bytes(path.read_bytes()[last : last + 4], "big")
    overwrite(path, end, bytes(8))

    assert found(tmp_path) == [(FindingKind.RECORD, f"commitlog/{FIRST}", end)]


@pytest.mark.parametrize(
    "name", ["commitlog/core.123", "commitlog/.DS_Store", "commitlog/00000000000000000017"]
)
def test_a_stray_file_in_the_log(tmp_path: Path, places: list[int], name: str) -> None:
    (tmp_path / name).write_bytes(b"x")

    assert found(tmp_path) == [(FindingKind.LOG_FILE, name, None)]


def test_two_damaged_places_are_two_findings(tmp_path: Path, places: list[int]) -> None:
    for number in (5, 40):
        name, index = file_of(tmp_path, places[number])
        flip(tmp_path / name, index + 5)

    assert found(tmp_path) == [
        (FindingKind.RECORD, *file_of(tmp_path, places[number])) for number in (5, 40)
    ]
