"""A drive without room refuses what does not fit any more, and leaves log, queues and index of one mind."""

from __future__ import annotations

import errno
import random
from collections.abc import Callable
from pathlib import Path

import pytest

from roquet.protocol.filters import TagFilter
from roquet.protocol.record import decode
from roquet.storage.store import Store, StoreConfig
from roquet.storage.writer import BatchItem
from tests.simulation.disk import Drive
from tests.storage.records import records_in

ENTRIES_PER_FILE = 10
CONFIG = StoreConfig(
    Path("/store"),
    [Path("/store/commitlog")],
    commit_log_file_size=4096,
    consume_queue_file_size=20 * ENTRIES_PER_FILE,
    index_slots=10,
    index_entries=20,
)


@pytest.fixture
def drive() -> Drive:
    return Drive(random.Random(1))


def opened(drive: Drive) -> Store:
    store = Store(CONFIG, lambda: 1_700_000_000_000, drive.mount())
    store.open()
    return store


def put(store: Store, key: str, size: int = 10) -> None:
    queue = store.queue("T", 0)
    store.append(queue, key.encode().ljust(size), f"UNIQ_KEY\x01{key}".encode(), [key.encode()], 0, 0, 0, 1, bytes(8))


def put_batch(store: Store, key: str) -> None:
    item = BatchItem(0, key.encode(), f"UNIQ_KEY\x01{key}".encode(), [key.encode()], 0)
    store.append_batch(store.queue("T", 0), [item, item], 0, 1, bytes(8))


def in_log(store: Store) -> list[bytes]:
    return [decode(data).body.strip() for _, data in store.log.walk(store.log.start)]


def in_queue(store: Store) -> list[bytes]:
    found: list[bytes] = []
    while len(found) < store.max_offset("T", 0):
        fetched = store.fetch("T", 0, len(found), 32, TagFilter())
        found += [record.body.strip() for record in records_in(fetched)]
    return found


@pytest.mark.parametrize("put_more", [put, put_batch])
def test_a_record_whose_entry_finds_no_room_is_not_stored_at_all(
    drive: Drive, put_more: Callable[[Store, str], None]
) -> None:
    store = opened(drive)
    for number in range(ENTRIES_PER_FILE):
        put(store, f"{number}")
    drive.trouble = errno.ENOSPC
    for _ in range(3):
        with pytest.raises(OSError, match="No space"):
            put_more(store, "refused")
    drive.trouble = None
    put_more(store, "taken")
    assert in_log(store) == in_queue(store)
    assert b"refused" not in in_log(store)
    assert in_log(store)[-1] == b"taken"


def test_a_record_that_finds_no_room_in_the_log_is_not_stored_either(drive: Drive) -> None:
    store = opened(drive)
    put(store, "first", size=3800)
    drive.trouble = errno.ENOSPC
    with pytest.raises(OSError, match="No space"):
        put(store, "refused", size=3800)
    drive.trouble = None
    put(store, "taken", size=3800)
    assert in_log(store) == in_queue(store) == [b"first", b"taken"]


def test_keys_wait_until_the_index_has_room(drive: Drive) -> None:
    store = opened(drive)
    for number in range(5):
        put(store, f"key-{number}")
    drive.trouble = errno.ENOSPC
    store.flush_index()
    drive.trouble = None
    assert [len(store.find_by_key("T", f"key-{number}", 32, 0, 1 << 62).records) for number in range(5)] == [1] * 5


def test_replicated_records_are_dispatched_once_there_is_room(drive: Drive) -> None:
    master = opened(Drive(random.Random(2)))
    for number in range(5):
        put(master, f"{number}")
    store = opened(drive)
    store.log.replicate(store.log.end, master.log.read(master.log.start, 1 << 20))
    drive.trouble = errno.ENOSPC
    store.replicated()
    assert store.dispatch.behind
    drive.trouble = None
    store.replicated()
    assert in_queue(store) == in_log(master)
