"""Messages are found by key, the newest ones first of all."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from roquet.protocol.records.record import decode
from roquet.storage.store import Store
from tests.storage.records import found_by_key
from tests.storage.small_stores import Clock, opened, put


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    store = opened(tmp_path, Clock())
    yield store
    store.abandon()


def test_messages_are_found_by_key_even_where_hashes_chain(store: Store) -> None:
    places = {f"key-{n}": put(store, b"%d" % n, key=f"key-{n}") for n in range(100)}
    for key, at in places.items():
        hits = found_by_key(store, "T", key, 32, 0, 1 << 62)
        assert at in [decode(record).physical_offset for record in hits.records]


def test_of_many_messages_the_newest_are_found_in_their_order(store: Store) -> None:
    places = [put(store, b"", key="key") for _ in range(84)]
    for count in (1, 20, 64, 84, 100):
        hits = found_by_key(store, "T", "key", count, 0, 1 << 62)
        found = [decode(record).physical_offset for record in hits.records]
        assert found == places[-count:]
        assert hits.last_at == places[-1]


def test_a_store_without_an_index_finds_nothing(tmp_path: Path) -> None:
    store = opened(tmp_path, Clock(), index_enabled=False)
    put(store, b"", key="key")
    assert found_by_key(store, "T", "key", 32, 0, 1 << 62).records == []
    store.abandon()
