"""Consume queue entries with units.

See docs/storage/consume-queue.md#extension-units.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from roquet.common.steps import finished
from roquet.protocol.filters.tags import TagFilter
from roquet.protocol.records.message import tag_code
from roquet.storage.config import StoreConfig
from roquet.storage.queues.consume_queue import ENTRY
from roquet.storage.queues.ext import ExtendedQueue, ExtUnit
from roquet.storage.store import Store
from tests.storage.deletions import delete_topic
from tests.storage.records import append_one, bodies_in, records_in

NOTES_FILE = 240
"""Room for eleven units of twenty bytes."""


class Lives:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.config = StoreConfig(
            folder,
            [folder / "commitlog"],
            4096,
            20 * 30,
            index_enabled=False,
            ext_file_size=NOTES_FILE,
        )
        self.now_ms = 1_700_000_000_000
        self.count = 0
        self.store = self.open()

    def open(self, *, noted: bool = True) -> Store:
        config = self.config if noted else replace(self.config, ext_file_size=None)
        self.store = Store(config, lambda: self.now_ms)
        self.store.open()
        return self.store

    def put(self, count: int) -> None:
        for number in range(self.count, self.count + count):
            self.now_ms += 1
            tag = "ab"[number % 2]
            queue = self.store.queue("T", 0)
            properties = f"TAGS\x01{tag}".encode()
            append_one(self.store, queue, b"%d" % number, properties, tag_code=tag_code(tag))
        self.count += count

    def assert_complete(self) -> None:
        assert bodies_in(self.store, "T") == [b"%d" % number for number in range(self.count)]
        wanted = self.store.fetch("T", 0, 0, 32, TagFilter.parse("b"))
        assert [record.body for record in records_in(wanted)] == [
            b"%d" % number for number in range(1, 30, 2)
        ]


@pytest.fixture
def lives(tmp_path: Path) -> Iterator[Lives]:
    lives = Lives(tmp_path)
    yield lives
    lives.store.abandon()


def queue_of(store: Store) -> ExtendedQueue:
    queue = store.queue("T", 0)
    assert isinstance(queue, ExtendedQueue)
    return queue


def test_an_entry_has_the_address_of_its_note(lives: Lives) -> None:
    lives.put(13)
    raw = (lives.folder / "consumequeue" / "T" / "0" / f"{0:020d}").read_bytes()
    addresses = [ENTRY.unpack_from(raw, 20 * number)[2] + (1 << 63) for number in range(13)]
    assert addresses == [*range(0, 220, 20), 240, 260]
    first = (lives.folder / "consumequeue_ext" / "T" / "0" / f"{0:020d}").read_bytes()
    assert first[220:222] == b"\xff\xff"
    units = [queue_of(lives.store).unit(number) for number in range(13)]
    assert [(unit.tag_code, unit.store_ms) for unit in units if unit is not None] == [
        (tag_code("ab"[number % 2]), 1_700_000_000_001 + number) for number in range(13)
    ]


@pytest.mark.parametrize("is_clean", [True, False])
def test_notes_go_on_where_the_queue_does(lives: Lives, *, is_clean: bool) -> None:
    for count in (5, 30, 11, 40):
        lives.put(count)
        lives.store.close() if is_clean else lives.store.abandon()
        lives.open()
    lives.assert_complete()


def test_a_queue_may_be_written_with_notes_and_without(lives: Lives) -> None:
    for noted in (False, True, True):
        lives.put(20)
        lives.store.close()
        lives.open(noted=noted)
    lives.assert_complete()


def test_places_that_stay_blank_have_room_for_notes_too(lives: Lives) -> None:
    queue = queue_of(lives.store)
    lives.put(9)
    queue.make_room(1, 39)
    queue.skip_to(39)
    queue.put(39, 9000, 100, 7, 8)
    assert queue.unit(39) == ExtUnit(7, 8)


def test_a_message_whose_note_is_lost_is_left_to_the_client(lives: Lives) -> None:
    lives.put(20)
    lives.store.close()
    for path in (lives.folder / "consumequeue_ext" / "T" / "0").iterdir():
        path.write_bytes(bytes(NOTES_FILE))
    lives.open()
    assert len(records_in(lives.store.fetch("T", 0, 0, 32, TagFilter.parse("b")))) == 20


def test_notes_of_expired_messages_go(lives: Lives) -> None:
    lives.put(100)
    lives.store.make_checkpoint()
    lives.store.log.synced(lives.store.log.end)
    files = len(list((lives.folder / "consumequeue_ext" / "T" / "0").iterdir()))
    expired = finished(lives.store.old_files.forget_oldest(2))
    for deletion in (*expired.log, *expired.queues):
        deletion()
    gone = lives.store.min_offset("T", 0) // 11
    assert gone > 0
    assert len(list((lives.folder / "consumequeue_ext" / "T" / "0").iterdir())) == files - gone
    assert bodies_in(lives.store, "T") == [
        b"%d" % number for number in range(lives.store.min_offset("T", 0), 100)
    ]


def test_a_dropped_topic_leaves_no_notes(lives: Lives) -> None:
    lives.put(20)
    delete_topic(lives.store, "T")
    assert not (lives.folder / "consumequeue_ext" / "T").exists()
    lives.count = 0
    lives.put(40)
    lives.assert_complete()
