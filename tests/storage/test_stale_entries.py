"""Queue entries of records that are not in the log any more, and those of records that nobody can
read any more.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from roquet.storage.checkpoint import Checkpoint
from roquet.storage.config import StoreConfig
from roquet.storage.files.disk import RealDisk
from roquet.storage.queues.consume_queue import ENTRY_SIZE
from roquet.storage.store import Store
from tests.storage.records import append_one, bodies_in

LOG_FILE = 65_536
BEFORE, CUT_OFF = 50, 30
"""Messages of T before the place where Apache's broker cut its log, and behind it."""
MARGIN_MS = 10_000


class Lives:
    """A store in one folder, opened again and again; each message says its topic and offset."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.now_ms = 1_700_000_000_000

    def open(self) -> Store:
        folder = self.folder
        config = StoreConfig(
            folder,
            [folder / "commitlog"],
            LOG_FILE,
            ENTRY_SIZE * 1000,
            index_slots=50,
            index_entries=500,
        )
        store = Store(config, lambda: self.now_ms)
        store.open()
        return store

    def put(self, store: Store, topic: str, count: int) -> None:
        queue = store.queue(topic, 0)
        for _ in range(count):
            self.now_ms += 100
            body = f"{topic} {queue.max_offset}".ljust(400).encode()
            append_one(store, queue, body)
            store.end_turn()

    @property
    def queue_file(self) -> Path:
        return self.folder / "consumequeue" / "T" / "0" / f"{0:020d}"


def messages(store: Store) -> list[str]:
    return [body.decode().rstrip() for body in bodies_in(store, "T")]


def left_by_apaches_broker(folder: Path, new: int, reached: int) -> Lives:
    """A store of Apache's broker whose power failed twice.

    After the first time it cut its log, and ended its queues there: it notes where, and leaves the entries behind that
    in the files. The log then went on where they point to.

    :param new: messages that T got at last; of the entries that were written over the old ones for them, so many
        `reached` the drive.
    """
    first, lives = Lives(folder / "first"), Lives(folder / "store")
    store = first.open()
    first.put(store, "T", BEFORE + CUT_OFF)
    store.abandon()
    store = lives.open()
    lives.put(store, "T", BEFORE)
    while len(store.log.file_starts) < 4:
        lives.put(store, "U", 20)
    checkpoint = Checkpoint(RealDisk(), lives.folder / "checkpoint")
    checkpoint.note(lives.now_ms, None)
    lives.now_ms += MARGIN_MS
    lives.put(store, "T", new)
    lives.put(store, "U", 20)
    store.abandon()
    checkpoint.save()
    lost = (BEFORE + reached) * ENTRY_SIZE
    lives.queue_file.write_bytes(
        lives.queue_file.read_bytes()[:lost] + first.queue_file.read_bytes()[lost:]
    )
    return lives


@pytest.mark.parametrize(
    ("new", "reached"), [(0, 0), (1, 0), (4, 0), (4, 1), (4, 4), (25, 20), (40, 40)]
)
def test_entries_that_apaches_broker_left_behind_a_queues_end_do_not_count(
    tmp_path: Path, new: int, reached: int
) -> None:
    lives = left_by_apaches_broker(tmp_path, new, reached)
    store = lives.open()
    assert store.max_offset("T", 0) == BEFORE + new
    lives.put(store, "T", 3)
    assert messages(store) == [f"T {number}" for number in range(BEFORE + new + 3)]
    store.abandon()


def test_an_offset_is_given_once_although_its_record_is_damaged(tmp_path: Path) -> None:
    """Other copies of the log have the record, and the entry is durable: nobody else may get its
    place.
    """
    lives = Lives(tmp_path)
    store = lives.open()
    lives.put(store, "T", 10)
    lives.put(store, "U", 10)
    store.make_checkpoint()
    entry = store.queue("T", 0).entry(9)
    assert entry is not None
    store.abandon()
    with (lives.folder / "commitlog" / f"{0:020d}").open("r+b") as log:
        log.seek(entry[0])
        log.write(b"damaged!")
    store = lives.open()
    assert store.max_offset("T", 0) == 10
    lives.put(store, "T", 1)
    assert messages(store) == [f"T {number}" for number in (*range(9), 10)]
    store.abandon()
