"""Each kind of damage is found, where it is, and nothing else is."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from struct import pack
from typing import Final

import pytest

from roquet.protocol.records.message import SCHEDULE_TOPIC
from roquet.storage.checkpoint import Checkpoint
from roquet.storage.files.disk import RealDisk
from roquet.storetool.check.findings import Kind
from tests.storetool.stores import (
    LOG_FILE,
    QUEUE_FILE,
    SHAPE,
    Broker,
    checked,
    file_of,
    filled,
    flip,
    found,
    overwrite,
)

COUNT: Final = 97
FIRST: Final = f"{0:020d}"


@pytest.fixture
def places(tmp_path: Path) -> list[int]:
    return [int(at) for at in filled(tmp_path, COUNT)]


def entry_place(queue_id: int, offset: int, topic: str = "T") -> tuple[str, int]:
    at = offset * 20
    return f"consumequeue/{topic}/{queue_id}/{at - at % QUEUE_FILE:020d}", at % QUEUE_FILE


def write_entry(root: Path, queue_id: int, offset: int, data: bytes, topic: str = "T") -> None:
    name, index = entry_place(queue_id, offset, topic)
    overwrite(root / name, index, data)


def read_entry(root: Path, queue_id: int, offset: int, topic: str = "T") -> bytes:
    name, index = entry_place(queue_id, offset, topic)
    return (root / name).read_bytes()[index : index + 20]


def text_of(root: Path) -> str:
    (finding,) = checked(root).findings.kept
    return finding.text


# the log


@pytest.mark.parametrize("number", [0, 7, COUNT - 1])
def test_a_flipped_bit_in_a_body(tmp_path: Path, places: list[int], number: int) -> None:
    name, index = file_of(tmp_path, places[number])
    flip(tmp_path / name, index + 88 + 2)

    assert found(tmp_path) == [(Kind.BODY, name, index)]
    assert f"T {number % 2}, queue offset {number // 2}" in text_of(tmp_path)


FIELDS: Final = {"size": 3, "magic": 5, "physical offset": 35, "sysFlag: IPv6": 39, "body size": 87}


@pytest.mark.parametrize("at", FIELDS.values(), ids=FIELDS)
def test_a_flipped_bit_in_a_header_that_breaks_the_record(
    tmp_path: Path, places: list[int], at: int
) -> None:
    name, index = file_of(tmp_path, places[9])
    flip(tmp_path / name, index + at, 0x10)

    assert found(tmp_path) == [(Kind.RECORD, name, index)]
    assert f"from physical offset {places[9]} to {places[10] - 1}" in text_of(tmp_path)


@pytest.mark.parametrize("bits", [0x01, 0x02, 0x40])
def test_a_flipped_bit_in_a_record_s_queue_offset(
    tmp_path: Path, places: list[int], bits: int
) -> None:
    name, index = file_of(tmp_path, places[9])
    flip(tmp_path / name, index + 27, bits)

    assert found(tmp_path) == [(Kind.OFFSET, name, index)]
    assert "its entry is at 4" in text_of(tmp_path)


@pytest.mark.parametrize("bits", [0x01, 0x02])
def test_a_flipped_bit_in_a_record_s_queue_id(tmp_path: Path, places: list[int], bits: int) -> None:
    name, index = file_of(tmp_path, places[9])
    flip(tmp_path / name, index + 15, bits)

    assert found(tmp_path) == [(Kind.ENTRY, *entry_place(1, 4))]
    assert f"a record says queue offset 4 of T {1 ^ bits}" in text_of(tmp_path)


def test_a_flipped_bit_in_a_tag(tmp_path: Path, places: list[int]) -> None:
    name, index = file_of(tmp_path, places[9])
    data = (tmp_path / name).read_bytes()
    flip(tmp_path / name, data.index(b"TAGS\x01", index) + 5)

    assert found(tmp_path) == [(Kind.ENTRY, *entry_place(1, 4))]
    assert "has tag code 98, its record" in text_of(tmp_path)


def test_a_lost_file_of_the_log(tmp_path: Path, places: list[int]) -> None:
    path = tmp_path / "commitlog" / f"{LOG_FILE:020d}"
    path.unlink()

    assert found(tmp_path) == [(Kind.LOG_FILE, f"commitlog/{path.name}", None)]
    assert f"from {LOG_FILE} to {2 * LOG_FILE - 1}" in text_of(tmp_path)


def test_the_last_file_of_the_log_is_lost(tmp_path: Path, places: list[int]) -> None:
    sorted((tmp_path / "commitlog").iterdir())[-1].unlink()

    findings = checked(tmp_path).findings

    assert all(
        "beyond the log's end at" in each.text
        for each in findings.kept
        if each.kind is not Kind.CHECKPOINT
    )
    assert findings.by_kind[Kind.ENTRY] == 2
    assert findings.count < 12


def test_a_log_file_that_was_cut_short(tmp_path: Path, places: list[int]) -> None:
    path = tmp_path / "commitlog" / FIRST
    kept = next(at for at in places if at > 2000)
    path.write_bytes(path.read_bytes()[:kept])

    assert found(tmp_path) == [(Kind.LOG_FILE, f"commitlog/{FIRST}", None)]
    assert f"has {kept} bytes, the file size is {LOG_FILE}" in text_of(tmp_path)


def test_a_log_file_without_its_blank(tmp_path: Path, places: list[int]) -> None:
    last = max(at for at in places if at < LOG_FILE)
    path = tmp_path / "commitlog" / FIRST
    end = last + int.from_bytes(path.read_bytes()[last : last + 4], "big")
    overwrite(path, end, bytes(8))

    assert found(tmp_path) == [(Kind.RECORD, f"commitlog/{FIRST}", end)]


@pytest.mark.parametrize(
    "name", ["commitlog/core.123", "commitlog/.DS_Store", "commitlog/00000000000000000017"]
)
def test_a_stray_file_in_the_log(tmp_path: Path, places: list[int], name: str) -> None:
    (tmp_path / name).write_bytes(b"x")

    assert found(tmp_path) == [(Kind.LOG_FILE, name, None)]


def test_two_damaged_places_are_two_findings(tmp_path: Path, places: list[int]) -> None:
    for number in (5, 40):
        name, index = file_of(tmp_path, places[number])
        flip(tmp_path / name, index + 5)

    assert found(tmp_path) == [
        (Kind.RECORD, *file_of(tmp_path, places[number])) for number in (5, 40)
    ]


# consume queues


@pytest.mark.parametrize(
    ("at", "said"), [(7, "points to"), (11, "bytes, its record"), (19, "has tag code")]
)
def test_a_flipped_bit_in_a_queue_entry(
    tmp_path: Path, places: list[int], at: int, said: str
) -> None:
    name, index = entry_place(0, 13)
    flip(tmp_path / name, index + at)

    assert found(tmp_path) == [(Kind.ENTRY, name, index)]
    assert said in text_of(tmp_path)
    assert "queue offset 13 of T 0" in text_of(tmp_path)


def test_swapped_entries(tmp_path: Path, places: list[int]) -> None:
    before, behind = read_entry(tmp_path, 0, 11), read_entry(tmp_path, 0, 12)
    write_entry(tmp_path, 0, 11, behind)
    write_entry(tmp_path, 0, 12, before)

    assert found(tmp_path) == [(Kind.ENTRY, *entry_place(0, 11)), (Kind.ENTRY, *entry_place(0, 12))]


def test_a_zeroed_entry(tmp_path: Path, places: list[int]) -> None:
    write_entry(tmp_path, 0, 11, bytes(20))

    assert found(tmp_path) == [(Kind.ENTRY_MISSING, *entry_place(0, 11))]
    assert text_of(tmp_path).startswith("queue offset 11 of T 0: there is no entry")


@pytest.mark.parametrize("number", [0, 4])
def test_a_lost_queue_file_at_an_end(tmp_path: Path, places: list[int], number: int) -> None:
    name, _ = entry_place(1, number * 10)
    (tmp_path / name).unlink()

    assert found(tmp_path) == [(Kind.ENTRY_MISSING, name, 0)]
    last = min(number * 10 + 9, 47)
    assert f"queue offsets {number * 10} to {last} of T 1: there is no such file" in text_of(
        tmp_path
    )


def test_a_lost_queue_file_in_the_middle(tmp_path: Path, places: list[int]) -> None:
    name, _ = entry_place(1, 10)
    (tmp_path / name).unlink()

    assert found(tmp_path) == [(Kind.QUEUE_FILE, name, None)]


@pytest.mark.parametrize("folder", ["consumequeue/T/1", "consumequeue/T"])
def test_a_lost_queue_folder(tmp_path: Path, places: list[int], folder: str) -> None:
    shutil.rmtree(tmp_path / folder)

    assert {kind for kind, _, _ in found(tmp_path)} == {Kind.ENTRY_MISSING}
    assert (
        "queue offsets 0 to 47 of T 1: there is no such file"
        in checked(tmp_path).findings.kept[-1].text
    )


def test_a_stray_file_in_a_queue(tmp_path: Path, places: list[int]) -> None:
    name = "consumequeue/T/0/core"
    (tmp_path / name).write_bytes(b"")

    assert found(tmp_path) == [(Kind.QUEUE_FILE, name, None)]


def test_an_entry_behind_the_end_of_the_log(tmp_path: Path, places: list[int]) -> None:
    broker = Broker(tmp_path)
    end = broker.store.log.end
    broker.stop()
    write_entry(tmp_path, 0, 49, pack(">qiq", end, 100, 97))
    name, index = entry_place(0, 49)

    assert found(tmp_path) == [(Kind.ENTRY, name, index)]
    assert f"beyond the log's end at {end}" in text_of(tmp_path)


def test_a_torn_tail_after_a_clean_stop(tmp_path: Path, places: list[int]) -> None:
    name, index = file_of(tmp_path, places[-1])
    data = (tmp_path / name).read_bytes()
    (tmp_path / name).write_bytes(data[: index + 50].ljust(LOG_FILE, b"\0"))

    kinds = {(kind, file) for kind, file, _ in found(tmp_path)}

    assert (Kind.ENTRY, entry_place(0, 48)[0]) in kinds
    assert kinds - {(Kind.ENTRY, entry_place(0, 48)[0])} <= {
        (Kind.CHECKPOINT, "checkpoint"),
        *((Kind.INDEX_ENTRY, f"index/{path.name}") for path in (tmp_path / "index").iterdir()),
    }


def test_a_delayed_message_that_is_due_before_it_was_stored(tmp_path: Path) -> None:
    broker = Broker(tmp_path)
    broker.delayed()
    broker.stop()
    entry = read_entry(tmp_path, 0, 0, SCHEDULE_TOPIC)
    write_entry(tmp_path, 0, 0, entry[:12] + pack(">q", 5), SCHEDULE_TOPIC)

    assert found(tmp_path) == [(Kind.ENTRY, *entry_place(0, 0, SCHEDULE_TOPIC))]
    assert "is due at 5, before it was stored" in text_of(tmp_path)


@pytest.mark.parametrize("at", [9, 17], ids=["tag code", "store time"])
def test_a_wrong_extension_unit(tmp_path: Path, at: int) -> None:
    filled(tmp_path, 20, ext_file_size=240)
    flip(tmp_path / "consumequeue_ext" / "T" / "0" / FIRST, 3 * 20 + at)

    assert found(tmp_path) == [(Kind.EXT_UNIT, *entry_place(0, 3))]


# index


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

    assert found(tmp_path) == [(Kind.INDEX_ENTRY, f"index/{path.name}", at_of_entry(number))]
    assert f"entry {number} " in text_of(tmp_path)


def test_an_index_entry_with_another_hash(tmp_path: Path, places: list[int]) -> None:
    path = index_file(tmp_path, 1)
    flip(path, at_of_entry(17) + 3)

    assert found(tmp_path) == [(Kind.INDEX_ENTRY, f"index/{path.name}", at_of_entry(17))]


def test_an_index_entry_that_names_a_later_one(tmp_path: Path, places: list[int]) -> None:
    path = index_file(tmp_path)
    overwrite(path, at_of_entry(17) + 16, pack(">i", 20))

    assert found(tmp_path) == [(Kind.INDEX_ENTRY, f"index/{path.name}", at_of_entry(17) + 16)]


def test_an_index_entry_out_of_its_chain(tmp_path: Path, places: list[int]) -> None:
    path = index_file(tmp_path)
    slots = [
        int.from_bytes(path.read_bytes()[40 + 4 * n : 44 + 4 * n], "big")
        for n in range(SHAPE.slots)
    ]
    newest = next(slot for slot in slots if slot)
    overwrite(path, 40 + 4 * slots.index(newest), bytes(4))

    assert {(kind, file) for kind, file, _ in found(tmp_path)} == {
        (Kind.INDEX_ENTRY, f"index/{path.name}")
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

    assert found(tmp_path) == [(Kind.INDEX_ENTRY, f"index/{path.name}", 40 + 4 * slot)]


def test_an_index_header_with_impossible_counts(tmp_path: Path, places: list[int]) -> None:
    path = index_file(tmp_path, -1)
    overwrite(path, 32, pack(">i", 7_000))

    assert found(tmp_path) == [(Kind.INDEX_FILE, f"index/{path.name}", 32)]


def test_a_lost_index_file_in_the_middle(tmp_path: Path, places: list[int]) -> None:
    index_file(tmp_path, 1).unlink()

    ((kind, _, _),) = found(tmp_path)

    assert kind is Kind.INDEX_MISSING
    assert "39 keys" in text_of(tmp_path)


def test_an_index_file_of_another_size(tmp_path: Path, places: list[int]) -> None:
    path = index_file(tmp_path, -1).with_name("2" * 17)
    path.write_bytes(b"short")

    assert found(tmp_path) == [(Kind.INDEX_FILE, f"index/{path.name}", None)]


def test_a_lost_index(tmp_path: Path, places: list[int]) -> None:
    shutil.rmtree(tmp_path / "index")

    assert found(tmp_path) == [(Kind.CHECKPOINT, "checkpoint", 64)]
    assert "its index file" in text_of(tmp_path)


# checkpoint


def changed(root: Path, change: Callable[[Checkpoint], None]) -> None:
    checkpoint = Checkpoint(RealDisk(), root / "checkpoint")
    checkpoint.load()
    change(checkpoint)
    checkpoint.save()


def test_a_checkpoint_from_the_future(tmp_path: Path, places: list[int]) -> None:
    path = tmp_path / "checkpoint"
    overwrite(path, 8, pack(">q", 1_999_999_999_999))

    assert found(tmp_path) == [(Kind.CHECKPOINT, "checkpoint", 8)]
    assert "says 1999999999999 ms for the queues" in text_of(tmp_path)


def test_a_mark_without_its_checksum(tmp_path: Path, places: list[int]) -> None:
    flip(tmp_path / "checkpoint", 70)

    assert found(tmp_path) == [(Kind.CHECKPOINT, "checkpoint", 64)]


def test_a_mark_of_another_log(tmp_path: Path, places: list[int]) -> None:
    filled(tmp_path / "other", 20)
    (tmp_path / "checkpoint").write_bytes((tmp_path / "other" / "checkpoint").read_bytes())
    shutil.rmtree(tmp_path / "other")
    data = bytearray((tmp_path / "checkpoint").read_bytes())
    changed(
        tmp_path,
        lambda checkpoint: setattr(
            checkpoint,
            "mark",
            type(checkpoint.mark)(*(5, 4, 3, 0, 0, 0, 0)),  # type: ignore[misc]
        ),
    )

    assert found(tmp_path) == [(Kind.CHECKPOINT, "checkpoint", 64)]
    assert data != (tmp_path / "checkpoint").read_bytes()
