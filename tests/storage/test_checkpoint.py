"""The checkpoint file: what is read back of it, whole or damaged, and what Apache reads."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from roquet.storage.checkpoint import Checkpoint, CheckpointMark
from tests.protocol.strategies import int64
from tests.simulation.disk import Drive, MountedDisk

PATH = Path("/s/checkpoint")
MARK = CheckpointMark(1000, 900, 1_700_000_000_000, 20260101000000000, 7, 5, 3, 40)
marks = st.builds(CheckpointMark, *[int64] * 8)


def loaded(disk: MountedDisk) -> Checkpoint:
    checkpoint = Checkpoint(disk, PATH)
    checkpoint.load()
    return checkpoint


def read_back(data: bytes) -> Checkpoint:
    disk = Drive(random.Random(1)).mount()
    disk.replace(PATH, data)
    return loaded(disk)


def saved(mark: CheckpointMark | None, store_ms: int = 5000) -> bytes:
    disk = Drive(random.Random(1)).mount()
    checkpoint = loaded(disk)
    checkpoint.note(store_ms, mark)
    checkpoint.save()
    return disk.read(PATH) or b""


def times(checkpoint: Checkpoint) -> tuple[int, int, int]:
    return checkpoint.log_ms, checkpoint.queues_ms, checkpoint.index_ms


@settings(max_examples=40)
@given(int64, st.none() | marks)
def test_what_is_saved_is_loaded(store_ms: int, mark: CheckpointMark | None) -> None:
    found = read_back(saved(mark, store_ms))
    assert (times(found), found.mark, found.damage) == ((store_ms,) * 3, mark, "")


def test_a_missing_file_is_no_damage() -> None:
    found = loaded(Drive(random.Random(1)).mount())
    assert (times(found), found.mark, found.damage, found.safe_ms) == ((0, 0, 0), None, "", 0)


def test_apache_finds_its_three_times_and_a_file_of_its_size() -> None:
    data = saved(MARK, 5000)
    assert len(data) == 4096
    assert data[:24] == (5000).to_bytes(8, "big") * 3
    assert not any(data[24:64])


@pytest.mark.parametrize("size", [0, 1, 23])
def test_a_file_without_all_times_says_so_and_has_none(size: int) -> None:
    found = read_back(saved(MARK)[:size])
    assert (times(found), found.mark, found.damage) == (
        (0, 0, 0), None, f"the file has {size} bytes",
    )  # fmt: skip


def test_the_mark_stays_when_apache_writes_other_times() -> None:
    found = read_back(bytes(range(24)) + saved(MARK)[24:])
    assert times(found)[0] == int.from_bytes(bytes(range(8)), "big")
    assert (found.mark, found.damage) == (MARK, "")


@pytest.mark.parametrize("size", [24, 64, 4096])
def test_a_file_of_apaches_has_no_mark_and_is_no_damage(size: int) -> None:
    found = read_back(saved(MARK)[:24].ljust(size, b"\0"))
    assert (times(found), found.mark, found.damage) == ((5000,) * 3, None, "")


@given(st.integers(64, 135), st.integers(1, 255))
def test_a_mark_with_a_damaged_byte_is_told_of_and_does_not_give_wrong_numbers(
    at: int, change: int
) -> None:
    """The count of entries has a checksum of its own: without it the rest of the mark counts."""
    data = bytearray(saved(MARK))
    data[at] ^= change
    found = read_back(bytes(data))
    assert found.damage == "its mark does not have its checksum"
    assert found.mark == (None if at < 124 else replace(MARK, entry_count=-1))
    assert times(found) == (5000,) * 3


def test_a_mark_of_an_earlier_version_has_no_count_of_entries() -> None:
    for size in 124, 130, 136, 4096:
        found = read_back(saved(MARK)[:124].ljust(size, b"\0"))
        assert (found.mark, found.damage) == (replace(MARK, entry_count=-1), "")


@pytest.mark.parametrize("size", [133, 135])
def test_a_count_of_entries_without_all_bytes_is_damage(size: int) -> None:
    found = read_back(saved(MARK)[:size])
    assert found.mark == replace(MARK, entry_count=-1)
    assert found.damage == "its mark does not have its checksum"


def test_times_and_mark_stay_unless_new_ones_are_given() -> None:
    checkpoint = loaded(Drive(random.Random(1)).mount())
    checkpoint.note(5000, MARK)
    checkpoint.note(0, None)
    assert (times(checkpoint), checkpoint.mark) == ((5000,) * 3, MARK)
    later = replace(MARK, position=2000)
    checkpoint.note(6000, later)
    assert (times(checkpoint), checkpoint.mark) == ((6000,) * 3, later)


def test_a_saved_checkpoint_survives_a_crash() -> None:
    drive = Drive(random.Random(1))
    checkpoint = loaded(drive.mount())
    checkpoint.note(5000, MARK)
    checkpoint.save()
    drive.crash()
    assert loaded(drive.mount()).mark == MARK


@pytest.mark.parametrize(
    ("log_ms", "queues_ms", "safe_ms"),
    [(9000, 8000, 5000), (8000, 9000, 5000), (3000, 3000, 0), (2999, 9000, 0), (0, 9000, 0)],
)
def test_records_are_safe_three_seconds_before_the_earlier_time(
    log_ms: int, queues_ms: int, safe_ms: int
) -> None:
    checkpoint = loaded(Drive(random.Random(1)).mount())
    checkpoint.log_ms, checkpoint.queues_ms = log_ms, queues_ms
    assert checkpoint.safe_ms == safe_ms


@pytest.mark.parametrize(
    ("queues", "entries", "expected"), [(0, 0, (3, 40)), (2, 39, (1, 1)), (9, 99, (0, -1))]
)
def test_a_mark_without_some_queues_counts_no_fewer_than_none(
    queues: int, entries: int, expected: tuple[int, int]
) -> None:
    less = MARK.without(queues, entries)
    assert (less.queue_count, less.entry_count) == expected
    assert replace(less, queue_count=3, entry_count=40) == MARK
