"""The files of a store are found, sized and read; what does not belong there is said."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from roquet.errors import StoreError
from roquet.storetool.files import (
    QUEUE_FILE_SIZE,
    DataFile,
    SegmentFiles,
    data_pieces,
    find_files,
    find_queues,
    queue_folders,
    read_at,
    series,
)

SIZE: Final = 100


def put(folder: Path, start: int, data: bytes = bytes(SIZE)) -> Path:
    """A segment that begins at `start`."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{start:020d}"
    path.write_bytes(data)
    return path


def counted(start: int, size: int = SIZE) -> bytes:
    """Bytes of which each says its offset (mod 256)."""
    return bytes((start + number) % 256 for number in range(size))


def starts(found: SegmentFiles) -> list[int]:
    return [file.start for file in found.files]


def complaints(found: SegmentFiles) -> dict[str, str]:
    return {stray.path.name: stray.text for stray in found.strays}


# segments


def test_segments_come_in_the_order_of_their_offsets_from_all_folders(tmp_path: Path) -> None:
    for folder, start in (("b", 0), ("a", 100), ("b", 200)):
        put(tmp_path / folder, start)

    found = series([tmp_path / "a", tmp_path / "b"])

    assert starts(found) == [0, 100, 200]
    assert (found.start, found.end, found.file_size) == (0, 300, SIZE)
    assert (found.strays, found.gaps) == ([], [])


@pytest.mark.parametrize("is_there", [True, False])
def test_without_segments_no_size_is_known(tmp_path: Path, is_there: bool) -> None:
    folder = tmp_path / "log"
    if is_there:
        folder.mkdir()

    found = series([folder])

    assert (found.files, found.start, found.end, found.file_size) == ([], 0, 0, 0)
    assert found.file_at(0) is None
    assert found.read(0, 10) == b""
    assert found.place(5) == (folder / f"{0:020d}", 5)


def test_a_newest_file_without_bytes_is_passed_over(tmp_path: Path) -> None:
    put(tmp_path, 0)
    put(tmp_path, 100, b"")

    found = series([tmp_path])

    assert (starts(found), found.strays, found.end) == ([0], [], 100)


def test_an_older_file_without_bytes_is_reported(tmp_path: Path) -> None:
    put(tmp_path, 0, b"")
    put(tmp_path, 100)

    found = series([tmp_path])

    assert complaints(found) == {f"{0:020d}": "has 0 bytes, the file size is 100"}


def test_the_size_is_the_most_frequent_one_that_fits_its_file_s_name(tmp_path: Path) -> None:
    for start in (0, 100, 200):
        put(tmp_path, start)
    put(tmp_path, 300, bytes(7))  # 300 is no multiple of 7
    put(tmp_path, 400, bytes(40))

    found = series([tmp_path])

    assert found.file_size == SIZE
    assert complaints(found) == {
        f"{300:020d}": "has 7 bytes, the file size is 100",
        f"{400:020d}": "has 40 bytes, the file size is 100",
    }
    assert starts(found) == [0, 100, 200, 300, 400]


def test_of_two_sizes_that_are_equally_frequent_the_larger_counts(tmp_path: Path) -> None:
    put(tmp_path, 0)
    put(tmp_path, 100, bytes(50))

    assert series([tmp_path]).file_size == SIZE


def test_a_name_that_is_no_multiple_of_the_size_is_reported_and_left_out(tmp_path: Path) -> None:
    put(tmp_path, 0)
    put(tmp_path, 130)

    found = series([tmp_path], SIZE)

    assert starts(found) == [0]
    assert complaints(found) == {f"{130:020d}": "its name is no multiple of the file size 100"}
    assert found.gaps == []


def test_a_segment_in_two_folders_is_reported_once_and_read_once(tmp_path: Path) -> None:
    first = put(tmp_path / "a", 0)
    second = put(tmp_path / "b", 0)

    found = series([tmp_path / "a", tmp_path / "b"])

    assert found.files == [DataFile(first, 0, SIZE)]
    (stray,) = found.strays
    assert (stray.path, stray.text) == (second, f"is there twice, also as {first}")


def test_missing_segments_between_others_are_one_gap(tmp_path: Path) -> None:
    for start in (100, 400, 600):
        put(tmp_path, start)

    found = series([tmp_path])

    assert found.gaps == [(200, 400), (500, 600)]
    assert (found.start, found.end) == (100, 700)
    assert [found.file_at(at) is not None for at in (99, 100, 199, 200, 399, 400)] == [
        False, True, True, False, False, True,
    ]  # fmt: skip


@pytest.mark.parametrize(
    "name", ["core.1", "0", f"{0:021d}", f"{'٣' * 20}", f"+{0:019d}", f"{0:020d}.bak"]
)
def test_a_file_of_another_name_does_not_belong_there(tmp_path: Path, name: str) -> None:
    put(tmp_path, 0)
    (tmp_path / name).write_bytes(bytes(SIZE))

    found = series([tmp_path])

    assert starts(found) == [0]
    assert "does not belong here" in complaints(found)[name]


def test_a_folder_with_the_name_of_a_segment_does_not_belong_there(tmp_path: Path) -> None:
    (tmp_path / f"{0:020d}").mkdir()

    found = series([tmp_path])

    assert (starts(found), list(complaints(found))) == ([], [f"{0:020d}"])


def test_a_file_in_place_of_the_folder_has_no_segments(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(b"")

    assert series([path]).files == []


def test_a_folder_that_cannot_be_read_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match=r"cannot be read: File name too long"):
        series([tmp_path / ("x" * 300)])


def test_a_place_is_a_segment_and_a_byte_in_it_also_where_none_is(tmp_path: Path) -> None:
    path = put(tmp_path, 100)
    found = series([tmp_path])

    assert found.place(100) == (path, 0)
    assert found.place(199) == (path, 99)
    assert found.place(250) == (tmp_path / f"{200:020d}", 50)


def test_later_segments_are_seen_when_one_looks_again(tmp_path: Path) -> None:
    put(tmp_path, 0)
    found = series([tmp_path])
    put(tmp_path, 100)
    (tmp_path / f"{0:020d}").unlink()

    assert starts(found) == [0]
    found.look_again()

    assert starts(found) == [100]


def test_a_series_without_a_size_stays_empty_when_one_looks_again(tmp_path: Path) -> None:
    found = series([tmp_path])
    put(tmp_path, 0)

    found.look_again()

    assert found.files == []


# reading


def test_a_read_ends_with_its_segment(tmp_path: Path) -> None:
    for start in (0, 100):
        put(tmp_path, start, counted(start))
    found = series([tmp_path])

    assert found.read(90, 30) == counted(90, 10)
    assert found.read(100, 30) == counted(100, 30)
    assert found.read(200, 1) == b""


def test_a_deleted_segment_reads_as_nothing(tmp_path: Path) -> None:
    path = put(tmp_path, 0)
    found = series([tmp_path])
    path.unlink()

    assert found.read(0, 10) == b""
    assert found.read_spans([(0, 10), (20, 30)]) == [b"", b""]
    assert list(data_pieces(path, 0)) == []


@pytest.fixture(scope="module")
def holed(tmp_path_factory: pytest.TempPathFactory) -> SegmentFiles:
    """Segments at 0, 100 and 300, for all examples."""
    folder = tmp_path_factory.mktemp("log")
    for start in (0, 100, 300):
        put(folder, start, counted(start))
    return series([folder])


@given(spans=st.lists(st.tuples(st.integers(0, 399), st.integers(0, 60)), max_size=8))
def test_spans_are_what_single_reads_are(holed: SegmentFiles, spans: list[tuple[int, int]]) -> None:
    asked = [
        (start, min(start + size, start - start % SIZE + SIZE)) for start, size in sorted(spans)
    ]

    read = holed.read_spans(asked)

    assert read == [holed.read(start, end - start) for start, end in asked]
    assert b"".join(read) == b"".join(
        counted(start, end - start) for start, end in asked if start < 200 or start >= 300
    )


def test_a_file_is_read_from_a_byte_on_as_far_as_it_goes(tmp_path: Path) -> None:
    path = put(tmp_path, 0, b"0123456789")

    assert read_at(path, 3, 4) == b"3456"
    assert read_at(path, 8, 4) == b"89"
    assert read_at(path, 10, 4) == b""
    assert read_at(path, 3, 0) == b""
    assert read_at(tmp_path / "none", 0, 4) == b""


def test_pieces_have_all_bytes_but_those_of_holes(tmp_path: Path) -> None:
    path = tmp_path / "sparse"
    hole = 8 << 20
    with path.open("wb") as file:
        file.write(b"head")
        file.seek(hole)
        file.write(b"tail")

    pieces = list(data_pieces(path, 1))

    whole = bytearray(path.stat().st_size)
    for at, data in pieces:
        whole[at : at + len(data)] = data
    assert bytes(whole[1:4]) == b"ead"
    assert bytes(whole[4:hole]) == bytes(hole - 4)
    assert bytes(whole[hole:]) == b"tail"
    assert pieces[0][0] == 1
    if hasattr(os, "SEEK_DATA"):
        assert sum(len(data) for _, data in pieces) < hole // 2


@pytest.mark.parametrize("at", [10, 4000])
def test_there_are_no_pieces_from_the_end_on(tmp_path: Path, at: int) -> None:
    path = put(tmp_path, 0, bytes(10))

    assert list(data_pieces(path, at)) == []


# stores


def test_queues_are_folders_of_numbers_below_topics(tmp_path: Path) -> None:
    for place in ("U/0", "T/1", "T/0", "T/x", "T/-1"):
        (tmp_path / place).mkdir(parents=True)
    (tmp_path / "T" / "7").write_bytes(b"")
    (tmp_path / "file").write_bytes(b"")

    assert [(topic, number) for topic, number, _ in queue_folders(tmp_path)] == [
        ("T", 0), ("T", 1), ("U", 0),
    ]  # fmt: skip


def test_queues_have_apache_s_file_size_unless_another_is_known(tmp_path: Path) -> None:
    folder = tmp_path / "consumequeue" / "T" / "0"
    put(folder, 0, bytes(200))

    default = find_queues(tmp_path, 0)["T", 0]
    known = find_queues(tmp_path, 200)["T", 0]

    assert default.file_size == QUEUE_FILE_SIZE
    assert complaints(default) == {
        f"{0:020d}": f"has 200 bytes, the file size is {QUEUE_FILE_SIZE}"
    }
    assert (known.file_size, known.strays) == (200, [])


def test_a_store_has_log_queues_and_index(tmp_path: Path) -> None:
    put(tmp_path / "commitlog", 0)
    put(tmp_path / "consumequeue" / "T" / "0", 0, bytes(200))
    put(tmp_path / "consumequeue" / "T" / "1", 0, bytes(30))  # no whole number of entries
    (tmp_path / "index").mkdir()
    for name in ("20260102030405006", "20250102030405006", "2026", "x" * 17):
        (tmp_path / "index" / name).write_bytes(b"")

    found = find_files(tmp_path)

    assert (found.log.file_size, found.queue_file_size) == (SIZE, 200)
    assert list(found.queues) == [("T", 0), ("T", 1)]
    assert [path.name for path in found.index] == ["20250102030405006", "20260102030405006"]


def test_sizes_that_are_given_are_not_guessed(tmp_path: Path) -> None:
    put(tmp_path / "commitlog", 0)
    put(tmp_path / "consumequeue" / "T" / "0", 0, bytes(200))

    found = find_files(tmp_path, [tmp_path / "commitlog"], 50, 400)

    assert (found.log.file_size, found.queue_file_size) == (50, 400)
    assert found.queues["T", 0].file_size == 400


@pytest.mark.parametrize("only", ["commitlog", "consumequeue", "checkpoint"])
def test_one_part_of_a_store_makes_it_one(tmp_path: Path, only: str) -> None:
    if only == "commitlog":
        put(tmp_path / "commitlog", 0)
    elif only == "consumequeue":
        (tmp_path / only).mkdir()
    else:
        (tmp_path / only).write_bytes(b"")

    found = find_files(tmp_path)

    assert bool(found.log.files) is (only == "commitlog")
    assert (found.queues, found.queue_file_size, found.index) == ({}, 0, [])


def test_a_folder_without_a_store_is_refused(tmp_path: Path) -> None:
    (tmp_path / "commitlog").mkdir()

    with pytest.raises(StoreError, match=r"is not a store: .* name its folder with --commitlog"):
        find_files(tmp_path)
    with pytest.raises(StoreError, match="is not a folder"):
        find_files(tmp_path / "none")


def test_a_log_elsewhere_makes_a_folder_a_store(tmp_path: Path) -> None:
    put(tmp_path / "drive" / "log", 0)
    (tmp_path / "store").mkdir()

    found = find_files(tmp_path / "store", [tmp_path / "drive" / "log"])

    assert starts(found.log) == [0]
    assert found.name(tmp_path / "store" / "index" / "1") == str(Path("index", "1"))
    assert found.name(found.log.files[0].path) == str(found.log.files[0].path)
