"""A walk through a log has each of its bytes: in a record, in a blank, or in a damage."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from roquet.protocol.records.layout import SIZE_MIN
from roquet.storetool.files import DataFile, SegmentFiles, series
from roquet.storetool.read.log_scanner import (
    NO_FILE,
    Damage,
    LogScanner,
    places_of_magic,
    record_at,
)
from tests.storetool.stores import LOG_FILE, START_MS, filled, flip, overwrite

COUNT: Final = 97
NEVER: Final = 1 << 62
"""A physical offset up to which all is dispatched: the log cannot end before it."""


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> tuple[list[int], dict[str, bytes]]:
    """Where the records of a log of several files are, and the files."""
    root = tmp_path_factory.mktemp("store")
    places = filled(root, COUNT)
    return places, {path.name: path.read_bytes() for path in (root / "commitlog").iterdir()}


@pytest.fixture
def places(sound: tuple[list[int], dict[str, bytes]], tmp_path: Path) -> list[int]:
    """Where the records are; the log's files are in `tmp_path`."""
    for name, data in sound[1].items():
        (tmp_path / name).write_bytes(data)
    return sound[0]


def log_of(folder: Path) -> SegmentFiles:
    return series([folder], LOG_FILE)


def walked(scanner: LogScanner) -> list[int]:
    """Physical offsets of the records."""
    return [int(at) for block in scanner.blocks() for at in block.physical]


def path_of(folder: Path, at: int) -> Path:
    return folder / f"{at - at % LOG_FILE:020d}"


def damage(folder: Path, at: int) -> None:
    """The record at a physical offset loses its magic."""
    flip(path_of(folder, at), at % LOG_FILE + 5)


def size_at(folder: Path, at: int) -> int:
    data = path_of(folder, at).read_bytes()
    return int.from_bytes(data[at % LOG_FILE : at % LOG_FILE + 4], "big")


@pytest.mark.parametrize("piece_size", [None, 100, 300, 5000])
def test_all_records_come_in_pieces_of_any_size(
    tmp_path: Path, places: list[int], piece_size: int | None
) -> None:
    read: list[int] = []
    scanner = LogScanner(log_of(tmp_path), 0, read.append, piece_size=piece_size)

    assert walked(scanner) == places
    assert (scanner.start, scanner.damages, scanner.behind) == (0, [], "")
    assert scanner.end == places[-1] + size_at(tmp_path, places[-1]) == sum(read)


def test_a_walk_goes_on_where_it_stopped(tmp_path: Path, places: list[int]) -> None:
    scanner = LogScanner(log_of(tmp_path), 0, piece_size=1000)

    first = [int(at) for at in next(iter(scanner.blocks())).physical]

    assert 0 < len(first) < COUNT
    assert first + walked(scanner) == places
    assert walked(scanner) == []


def test_a_walk_begins_and_ends_at_given_records(tmp_path: Path, places: list[int]) -> None:
    scanner = LogScanner(log_of(tmp_path), 0, start=places[40], limit=places[70])

    assert walked(scanner) == places[40:70]
    assert (scanner.start, scanner.end, scanner.behind) == (places[40], places[70], "")


def test_a_log_without_files_has_no_records(tmp_path: Path) -> None:
    scanner = LogScanner(log_of(tmp_path), 0)

    assert walked(scanner) == []
    assert (scanner.start, scanner.end, scanner.damages, scanner.behind) == (0, 0, [], "")


# damage


def test_a_damaged_record_is_stepped_over_to_the_next(tmp_path: Path, places: list[int]) -> None:
    damage(tmp_path, places[9])
    scanner = LogScanner(log_of(tmp_path), NEVER)

    assert walked(scanner) == places[:9] + places[10:]
    assert scanner.damages == [Damage(places[9], places[10], scanner.damages[0].reason)]


def test_a_damage_at_a_file_s_end_goes_up_to_its_blank(tmp_path: Path, places: list[int]) -> None:
    last = max(at for at in places if at < LOG_FILE)
    blank = last + size_at(tmp_path, last)
    damage(tmp_path, last)
    scanner = LogScanner(log_of(tmp_path), NEVER)

    assert walked(scanner) == [at for at in places if at != last]
    assert [(each.start, each.end) for each in scanner.damages] == [(last, blank)]


def test_a_damaged_blank_is_a_damage_up_to_the_next_file(tmp_path: Path, places: list[int]) -> None:
    last = max(at for at in places if at < LOG_FILE)
    blank = last + size_at(tmp_path, last)
    overwrite(path_of(tmp_path, 0), blank, bytes(8))
    scanner = LogScanner(log_of(tmp_path), NEVER)

    assert walked(scanner) == places
    assert scanner.damages == [Damage(blank, LOG_FILE, "no record begins here")]


def test_a_missing_file_is_a_damage_whatever_is_dispatched(
    tmp_path: Path, places: list[int]
) -> None:
    path_of(tmp_path, LOG_FILE).unlink()
    scanner = LogScanner(log_of(tmp_path), 1)

    found = walked(scanner)

    assert scanner.damages == [Damage(LOG_FILE, 2 * LOG_FILE, NO_FILE)]
    assert found == [at for at in places if not LOG_FILE <= at < 2 * LOG_FILE]


def test_records_behind_a_damage_that_no_queue_has_are_not_the_log_s(
    tmp_path: Path, places: list[int]
) -> None:
    damage(tmp_path, places[60])
    scanner = LogScanner(log_of(tmp_path), places[60])

    assert walked(scanner) == places[:60]
    assert (scanner.end, scanner.damages) == (places[60], [])
    assert scanner.behind.endswith(
        f"; older records follow from {places[61]} on, no queue has them"
    )


def test_a_torn_record_at_the_end_is_said(tmp_path: Path, places: list[int]) -> None:
    path = path_of(tmp_path, places[-1])
    path.write_bytes(path.read_bytes()[: places[-1] % LOG_FILE + 50].ljust(LOG_FILE, b"\0"))
    scanner = LogScanner(log_of(tmp_path), 0)

    assert walked(scanner) == places[:-1]
    assert (scanner.end, scanner.damages) == (places[-1], [])
    assert scanner.behind != ""


def test_a_record_that_is_written_while_it_is_read_is_no_damage(
    tmp_path: Path, places: list[int]
) -> None:
    at = places[-1]
    path, whole = path_of(tmp_path, at), path_of(tmp_path, at).read_bytes()
    path.write_bytes(whole[: at % LOG_FILE + 50].ljust(LOG_FILE, b"\0"))

    class Completed(SegmentFiles):
        """A broker completes the record as soon as somebody has read its beginning."""

        def read(self, start: int, size: int) -> bytes:
            data = super().read(start, size)
            if start == at:
                path.write_bytes(whole)
            return data

    found = log_of(tmp_path)
    scanner = LogScanner(Completed(found.folders, found.file_size, found.files), NEVER)

    assert walked(scanner) == places[:-1]
    assert (scanner.end, scanner.damages, scanner.behind) == (at, [], "")
    assert walked(scanner) == [at]


@settings(max_examples=30)
@given(
    hits=st.lists(st.tuples(st.integers(0, COUNT - 1), st.integers(0, 60)), max_size=4),
    piece_size=st.sampled_from([200, 1000, None]),
)
def test_every_byte_is_in_a_record_a_blank_or_a_damage(
    sound: tuple[list[int], dict[str, bytes]],
    scratch: Path,
    hits: list[tuple[int, int]],
    piece_size: int | None,
) -> None:
    places, files = sound
    for name, data in files.items():
        (scratch / name).write_bytes(data)
    for number, byte in hits:
        flip(path_of(scratch, places[number]), places[number] % LOG_FILE + byte, 0x55)
    scanner = LogScanner(log_of(scratch), NEVER, piece_size=piece_size)

    at = 0
    parts = [(block.at, block.at + int(block.ends[-1])) for block in scanner.blocks()]
    for start, end in sorted(parts + [(each.start, each.end) for each in scanner.damages]):
        if start != at:  # a blank up to the end of its file
            assert start == at - at % LOG_FILE + LOG_FILE
            assert int.from_bytes(
                path_of(scratch, at).read_bytes()[at % LOG_FILE :][:4], "big"
            ) == (start - at)
        at = end
    assert at == scanner.end
    hit = {places[number] for number, _ in hits}
    assert {each.start for each in scanner.damages} <= hit


@pytest.fixture(scope="module")
def scratch(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder for the files of each example."""
    return tmp_path_factory.mktemp("log")


# single records


def test_a_record_is_read_by_its_physical_offset(tmp_path: Path, places: list[int]) -> None:
    log = log_of(tmp_path)

    records = [record_at(log, at) for at in places]

    read = [record for record in records if not isinstance(record, str)]
    assert [(record.physical, record.store_ms) for record in read] == [
        (at, START_MS + 1 + number) for number, at in enumerate(places)
    ]


def cut(path: Path, at: int, size: int) -> None:
    path.write_bytes(path.read_bytes()[: at + size])


NO_RECORDS: Final[dict[str, tuple[Callable[[Path, int], None], str]]] = {
    "a deleted file": (lambda path, at: path.unlink(), NO_FILE),
    "a file that ends before": (lambda path, at: cut(path, at, 0), NO_FILE),
    "a file that ends in its head": (lambda path, at: cut(path, at, SIZE_MIN - 1), NO_FILE),
    "a file that ends in it": (lambda path, at: cut(path, at, SIZE_MIN), "its file ends within"),
    "zeros": (lambda path, at: overwrite(path, at, bytes(8)), "no record begins there"),
    "a size beyond its file": (lambda path, at: flip(path, at + 1), "no record begins there"),
    "another physical offset": (lambda path, at: flip(path, at + 35), "physical offset"),
}


@pytest.mark.parametrize("kind", NO_RECORDS)
def test_what_is_no_record_says_why(tmp_path: Path, places: list[int], kind: str) -> None:
    change, why = NO_RECORDS[kind]
    log = log_of(tmp_path)
    change(path_of(tmp_path, places[3]), places[3])

    found = record_at(log, places[3])

    assert isinstance(found, str)
    assert why in found


def test_a_place_between_records_has_none(tmp_path: Path, places: list[int]) -> None:
    assert record_at(log_of(tmp_path), places[3] + 1) == "no record begins there"
    assert record_at(log_of(tmp_path), 1 << 40) == NO_FILE


def test_every_record_and_blank_is_among_the_places_of_magic(
    tmp_path: Path, places: list[int]
) -> None:
    log = log_of(tmp_path)
    file = log.files[0]
    last = max(at for at in places if at < LOG_FILE)
    own = [at for at in places if at < LOG_FILE] + [last + size_at(tmp_path, last)]

    assert list(places_of_magic(file, 0)) == own
    assert list(places_of_magic(file, own[5])) == own[5:]
    assert list(places_of_magic(file, LOG_FILE)) == []


def test_a_magic_across_two_reads_is_found_once(tmp_path: Path, places: list[int]) -> None:
    record = path_of(tmp_path, 0).read_bytes()[: size_at(tmp_path, 0)]
    at_once = 1 << 20
    wanted = [at_once * number - 4 - split for number, split in enumerate(range(5), 1)]
    data = bytearray(b"x" * (6 * at_once))
    for at in wanted:
        data[at : at + len(record)] = record
    path = tmp_path / "long"
    path.write_bytes(data)

    assert list(places_of_magic(DataFile(path, 0, len(data)), 0)) == wanted
