"""A record whose body is damaged: recovery, the check and a rebuild agree on what becomes of its
queue offset.
"""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from roquet.storage.queues.consume_queue import BLANK_RECORD_SIZE
from roquet.storetool.check.findings import FindingKind
from roquet.storetool.read.queue_entries import entries_of
from roquet.storetool.rebuild import Rebuilt, rebuild
from tests.storage.deletions import delete_topic
from tests.storage.records import bodies_in
from tests.storetool.stores import (
    PLAN,
    Broker,
    assert_refused,
    assert_sound,
    checked,
    entries,
    file_of,
    files_of,
    flip,
    forget,
    found,
)

COUNT = 48
BODY_AT = 88


def damaged(root: Path, *numbers: int) -> list[int]:
    """A store that was killed, with bodies damaged since; where its records are."""
    broker = Broker(root)
    places = broker.fill(COUNT)
    broker.die()
    for number in numbers:
        name, index = file_of(root, places[number])
        flip(root / name, index + BODY_AT)
    return places


def recovered(root: Path, *numbers: int) -> list[int]:
    """The same after a start, which writes blanks, and a clean stop."""
    places = damaged(root, *numbers)
    Broker(root).stop()
    return places


def received(root: Path) -> set[bytes]:
    """All that consumers get of the topic's queues."""
    broker = Broker(root)
    bodies = [body for queue_id in (0, 1) for body in bodies_in(broker.store, "T", queue_id)]
    broker.stop()
    assert len(bodies) == len(set(bodies))
    return set(bodies)


def without(*numbers: int) -> set[bytes]:
    return {b"message %d" % number for number in range(COUNT) if number not in numbers}


@pytest.mark.parametrize(
    "numbers", [(9,), (9, 11), (8, 9, 10), (0,), (COUNT - 2,), (COUNT - 4, COUNT - 2)], ids=str
)
def test_what_recovery_left_is_no_fault_of_queues_and_index(
    tmp_path: Path, numbers: tuple[int, ...]
) -> None:
    places = recovered(tmp_path, *numbers)

    assert found(tmp_path) == [
        (FindingKind.BODY, *file_of(tmp_path, places[number])) for number in numbers
    ]


@pytest.mark.parametrize("number", [9, COUNT - 2])
def test_a_queue_offset_without_a_record_to_be_read_is_no_second_fault(
    tmp_path: Path, number: int
) -> None:
    places = damaged(tmp_path)
    name, index = file_of(tmp_path, places[number])
    flip(tmp_path / name, index + 5)
    Broker(tmp_path).stop()

    assert found(tmp_path) == [(FindingKind.RECORD, name, index)]


def test_a_gap_without_damage_is_a_fault_though_blanks_fill_it(tmp_path: Path) -> None:
    broker = Broker(tmp_path)
    broker.fill(4, queues=1)
    queue = broker.store.queue("T", 0)
    queue.make_room(1, 6)
    queue.skip_to(6)
    broker.fill(4, queues=1)
    broker.stop()

    assert [kind for kind, _, _ in found(tmp_path)] == [FindingKind.OFFSET]


def test_a_blank_in_place_of_a_sound_record_is_a_fault(tmp_path: Path) -> None:
    places = recovered(tmp_path, 9)
    name, index = file_of(tmp_path, places[9])
    flip(tmp_path / name, index + BODY_AT)

    assert {kind for kind, _, _ in found(tmp_path)} == {
        FindingKind.ENTRY,
        FindingKind.INDEX_MISSING,
    }
    assert f"says {BLANK_RECORD_SIZE} bytes" in checked(tmp_path).findings.kept[0].text


@pytest.mark.parametrize("numbers", [(9,), (9, 11), (8, 9, 10), (0,), (COUNT - 2,)], ids=str)
def test_a_rebuild_leaves_the_blanks_that_recovery_wrote(
    tmp_path: Path, numbers: tuple[int, ...]
) -> None:
    recovered(tmp_path, *numbers)
    before = entries(tmp_path, "consumequeue")

    assert rebuild(files_of(tmp_path), PLAN) == Rebuilt(COUNT - len(numbers), len(numbers))

    assert entries(tmp_path, "consumequeue") == before
    assert {kind for kind, _, _ in found(tmp_path)} == {FindingKind.BODY}
    assert received(tmp_path) == without(*numbers)


def test_a_rebuilt_index_has_the_keys_of_all_records_but_the_damaged_one(tmp_path: Path) -> None:
    damaged(tmp_path, 9)

    rebuild(files_of(tmp_path), replace(PLAN, queues=False))

    assert FindingKind.INDEX_MISSING not in checked(tmp_path).findings.by_kind
    assert checked(tmp_path).keys == 2 * COUNT


def test_a_rebuild_of_the_index_writes_no_blank(tmp_path: Path) -> None:
    damaged(tmp_path, 9)
    forget(tmp_path, "consumequeue")

    assert rebuild(files_of(tmp_path), replace(PLAN, queues=False)).damaged == 1

    assert entries(tmp_path, "consumequeue") == {}


def test_a_queue_that_ends_with_a_blank_reaches_to_the_damaged_record(tmp_path: Path) -> None:
    places = recovered(tmp_path, COUNT - 2)

    assert entries_of(files_of(tmp_path), "T", 0).log_end() == places[COUNT - 2]
    assert entries_of(files_of(tmp_path), "T", 1).log_end() > places[COUNT - 1]


def test_a_damaged_record_of_a_deleted_topic_makes_no_queue(tmp_path: Path) -> None:
    broker = Broker(tmp_path)
    places = broker.fill(COUNT)
    gone = broker.fill(3, "gone")
    delete_topic(broker.store, "T")
    delete_topic(broker.store, "gone")
    broker.fill(5)
    broker.stop()
    (tmp_path / "config").mkdir()
    (tmp_path / "config" / "topics.json").write_text(json.dumps({"topicConfigTable": {"T": {}}}))
    before = entries(tmp_path, "consumequeue")
    for at in (places[9], gone[1]):
        name, index = file_of(tmp_path, at)
        flip(tmp_path / name, index + BODY_AT)

    assert rebuild(files_of(tmp_path), PLAN).damaged == 2

    assert entries(tmp_path, "consumequeue") == before


def test_a_damaged_body_at_the_log_s_end_is_refused(tmp_path: Path) -> None:
    places = damaged(tmp_path, COUNT - 1)

    assert_refused(tmp_path, f"last record, at physical offset {places[-1]}, has a damaged body")


@pytest.mark.parametrize("at", [BODY_AT, 5], ids=["body", "header"])
def test_the_file_of_a_slave_s_log_brings_a_record_back(tmp_path: Path, at: int) -> None:
    """As docs/guide/store.md says it."""
    places = damaged(tmp_path / "master")
    slave = Broker(tmp_path / "slave")
    for path in sorted((tmp_path / "master" / "commitlog").iterdir()):
        slave.store.log.replicate(int(path.name), path.read_bytes())
    slave.store.replicated()
    slave.stop()
    name, index = file_of(tmp_path, places[9])
    flip(tmp_path / "master" / name, index + at)
    assert received(tmp_path / "master") == without(9)

    shutil.copy(tmp_path / "slave" / name, tmp_path / "master" / name)
    rebuild(files_of(tmp_path / "master"), PLAN)

    assert_sound(checked(tmp_path / "master"))
    assert received(tmp_path / "master") == without()
