"""Each kind of damage of consume queues is found, where it is, and nothing else is."""

from __future__ import annotations

import shutil
from pathlib import Path
from struct import pack
from typing import Final

import pytest

from roquet.protocol.records.message import SCHEDULE_TOPIC
from roquet.storetool.check.findings import FindingKind
from tests.storetool.stores import (
    LOG_FILE,
    Broker,
    checked,
    entry_place,
    file_of,
    filled,
    flip,
    found,
    read_entry,
    text_of,
    write_entry,
)

FIRST: Final = f"{0:020d}"


@pytest.mark.parametrize(
    ("at", "said"), [(7, "points to"), (11, "bytes, its record"), (19, "has tag code")]
)
def test_a_flipped_bit_in_a_queue_entry(
    tmp_path: Path, places: list[int], at: int, said: str
) -> None:
    name, index = entry_place(0, 13)
    flip(tmp_path / name, index + at)

    assert found(tmp_path) == [(FindingKind.ENTRY, name, index)]
    assert said in text_of(tmp_path)
    assert "queue offset 13 of T 0" in text_of(tmp_path)


def test_swapped_entries(tmp_path: Path, places: list[int]) -> None:
    before, behind = read_entry(tmp_path, 0, 11), read_entry(tmp_path, 0, 12)
    write_entry(tmp_path, 0, 11, behind)
    write_entry(tmp_path, 0, 12, before)

    assert found(tmp_path) == [
        (FindingKind.ENTRY, *entry_place(0, 11)),
        (FindingKind.ENTRY, *entry_place(0, 12)),
    ]


def test_a_zeroed_entry(tmp_path: Path, places: list[int]) -> None:
    write_entry(tmp_path, 0, 11, bytes(20))

    assert found(tmp_path) == [(FindingKind.ENTRY_MISSING, *entry_place(0, 11))]
    assert text_of(tmp_path).startswith("queue offset 11 of T 0: there is no entry")


@pytest.mark.parametrize("number", [0, 4])
def test_a_lost_queue_file_at_an_end(tmp_path: Path, places: list[int], number: int) -> None:
    name, _ = entry_place(1, number * 10)
    (tmp_path / name).unlink()

    assert found(tmp_path) == [(FindingKind.ENTRY_MISSING, name, 0)]
    last = min(number * 10 + 9, 47)
    assert f"queue offsets {number * 10} to {last} of T 1: there is no such file" in text_of(
        tmp_path
    )


def test_a_lost_queue_file_in_the_middle(tmp_path: Path, places: list[int]) -> None:
    name, _ = entry_place(1, 10)
    (tmp_path / name).unlink()

    assert found(tmp_path) == [(FindingKind.QUEUE_FILE, name, None)]


@pytest.mark.parametrize("folder", ["consumequeue/T/1", "consumequeue/T"])
def test_a_lost_queue_folder(tmp_path: Path, places: list[int], folder: str) -> None:
    shutil.rmtree(tmp_path / folder)

    assert {kind for kind, _, _ in found(tmp_path)} == {FindingKind.ENTRY_MISSING}
    assert (
        "queue offsets 0 to 47 of T 1: there is no such file"
        in checked(tmp_path).findings.kept[-1].text
    )


def test_a_stray_file_in_a_queue(tmp_path: Path, places: list[int]) -> None:
    name = "consumequeue/T/0/core"
    (tmp_path / name).write_bytes(b"")

    assert found(tmp_path) == [(FindingKind.QUEUE_FILE, name, None)]


def test_an_entry_behind_the_end_of_the_log(tmp_path: Path, places: list[int]) -> None:
    broker = Broker(tmp_path)
    end = broker.store.log.end
    broker.stop()
    write_entry(tmp_path, 0, 49, pack(">qiq", end, 100, 97))
    name, index = entry_place(0, 49)

    assert found(tmp_path) == [(FindingKind.ENTRY, name, index)]
    assert f"beyond the log's end at {end}" in text_of(tmp_path)


def test_a_torn_tail_after_a_clean_stop(tmp_path: Path, places: list[int]) -> None:
    name, index = file_of(tmp_path, places[-1])
    data = (tmp_path / name).read_bytes()
    (tmp_path / name).write_bytes(data[: index + 50].ljust(LOG_FILE, b"\0"))

    kinds = {(kind, file) for kind, file, _ in found(tmp_path)}

    assert (FindingKind.ENTRY, entry_place(0, 48)[0]) in kinds
    assert kinds - {(FindingKind.ENTRY, entry_place(0, 48)[0])} <= {
        (FindingKind.CHECKPOINT, "checkpoint"),
        *(
            (FindingKind.INDEX_ENTRY, f"index/{path.name}")
            for path in (tmp_path / "index").iterdir()
        ),
    }


def test_a_delayed_message_that_is_due_before_it_was_stored(tmp_path: Path) -> None:
    broker = Broker(tmp_path)
    broker.delayed()
    broker.stop()
    entry = read_entry(tmp_path, 0, 0, SCHEDULE_TOPIC)
    write_entry(tmp_path, 0, 0, entry[:12] + pack(">q", 5), SCHEDULE_TOPIC)

    assert found(tmp_path) == [(FindingKind.ENTRY, *entry_place(0, 0, SCHEDULE_TOPIC))]
    assert "is due at 5, before it was stored" in text_of(tmp_path)


@pytest.mark.parametrize("at", [9, 17], ids=["tag code", "store time"])
def test_a_wrong_extension_unit(tmp_path: Path, at: int) -> None:
    filled(tmp_path, 20, ext_file_size=240)
    flip(tmp_path / "consumequeue_ext" / "T" / "0" / FIRST, 3 * 20 + at)

    assert found(tmp_path) == [(FindingKind.EXT_UNIT, *entry_place(0, 3))]


def test_a_zeroed_entry_of_a_damaged_record_is_a_gap(tmp_path: Path, places: list[int]) -> None:
    name, index = file_of(tmp_path, places[9])
    flip(tmp_path / name, index + 5)
    assert [kind for kind, _, _ in found(tmp_path)] == [FindingKind.RECORD]
    write_entry(tmp_path, 1, 4, bytes(20))

    assert {kind for kind, _, _ in found(tmp_path)} == {FindingKind.RECORD, FindingKind.OFFSET}
    assert f"T 1 goes from queue offset 3 to 5 at physical offset {places[11]}" in [
        each.text for each in checked(tmp_path).findings.kept
    ]


@pytest.mark.parametrize(("topic", "is_sound"), [("%LMQ%light", True), ("copy", False)])
def test_only_entries_of_light_queues_may_point_to_records_of_other_topics(
    tmp_path: Path, places: list[int], topic: str, is_sound: bool
) -> None:
    queues = tmp_path / "consumequeue"
    shutil.copytree(queues / "T", queues / topic)

    kinds = [kind for kind, _, _ in found(tmp_path)]

    assert kinds == [] if is_sound else set(kinds) == {FindingKind.ENTRY}
    assert is_sound or len(kinds) == len(places)
