"""Records that wait in memory before they go into the log's file.

See docs/storage/append.md#the-memory-buffer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from roquet.common.steps import finished
from roquet.protocol.filters.tags import TagFilter
from roquet.storage.config import StoreConfig
from roquet.storage.store import Store
from tests.storage.records import append_one, bodies_in, found_by_key

LOG_FILE = 65_536


@pytest.fixture
def opened(tmp_path: Path) -> Iterator[Callable[[], Store]]:
    stores: list[Store] = []

    def open_store() -> Store:
        config = StoreConfig(
            tmp_path,
            [tmp_path / "commitlog"],
            LOG_FILE,
            20 * 1000,
            index_slots=50,
            index_entries=2000,
            pooled=True,
        )
        stores.append(Store(config, lambda: 1_700_000_000_000))
        stores[-1].open()
        return stores[-1]

    yield open_store
    stores[-1].abandon()


def put(store: Store, first: int, count: int) -> None:
    for number in range(first, first + count):
        body = b"%d" % number
        append_one(store, store.queue("T", 0), body, b"KEYS\x01" + body, [body])


def numbers(count: int) -> list[bytes]:
    return [b"%d" % number for number in range(count)]


def test_what_waits_is_not_shown_before_it_is_committed(opened: Callable[[], Store]) -> None:
    store = opened()
    put(store, 0, 50)
    assert store.fetch("T", 0, 0, 32, TagFilter()).records == []
    assert store.log.record_at(0) is None
    assert not store.log.read(store.log.start, LOG_FILE)
    store.log.commit()
    assert bodies_in(store, "T") == numbers(50)


def test_a_full_file_is_committed_when_the_next_one_begins(opened: Callable[[], Store]) -> None:
    store = opened()
    put(store, 0, 2000)
    assert len(store.log.file_starts) >= 3
    assert store.log.readable_to >= store.log.file_starts[-1]
    store.log.commit()
    assert bodies_in(store, "T") == numbers(2000)


def test_a_killed_process_loses_what_waits_and_nothing_else(opened: Callable[[], Store]) -> None:
    store = opened()
    put(store, 0, 700)
    store.log.commit()
    put(store, 700, 20)
    finished(store.flush_index())
    store.abandon()
    store = opened()
    assert bodies_in(store, "T") == numbers(700)
    assert found_by_key(store, "T", "710", 32, 0, 1 << 62).records == []
    put(store, 700, 30)
    store.log.commit()
    assert bodies_in(store, "T") == numbers(730)


def test_what_waits_is_committed_before_it_is_synced(opened: Callable[[], Store]) -> None:
    store = opened()
    put(store, 0, 10)
    store.close()
    store = opened()
    assert bodies_in(store, "T") == numbers(10)
