"""Thousands of keys of one message, or of one batch, are chained some at a time, as if they had
come one by one.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Final

import pytest

from roquet.common.steps import finished
from roquet.protocol.records.record import decode
from roquet.storage.batch_records import BatchItem
from roquet.storage.config import StoreConfig
from roquet.storage.index import index
from roquet.storage.store import Store
from tests.simulation.disk import Drive
from tests.storage.failing_drive import FailingDrive
from tests.storage.records import append_one, found_by_key, put_batch

NOW_MS: Final = 1_700_000_000_000
CONFIG: Final = StoreConfig(
    Path("/store"), [Path("/store/commitlog")], 1 << 22, index_slots=50_000, index_entries=20_000
)


@pytest.fixture
def store() -> Store:
    return opened(CONFIG)


def opened(config: StoreConfig) -> Store:
    store = Store(config, lambda: NOW_MS, Drive(random.Random(1)).mount())
    store.open()
    return store


def put(store: Store, keys: Sequence[bytes]) -> int:
    return append_one(store, store.queue("T", 0), b"x", b"KEYS\x01" + b" ".join(keys), keys)


def chained(store: Store) -> int:
    assert store.index is not None
    return sum(file.count - 1 for file in store.index.files)


def places(store: Store) -> list[int]:
    assert store.index is not None
    return [file.place(number) for file in store.index.files for number in range(1, file.count)]


MANY: Final = [b"%x" % (number % 600) for number in range(8000)]
"""As many as properties have room for."""


def test_a_turn_chains_some_thousands_of_keys_and_the_next_ones_the_others(store: Store) -> None:
    before = put(store, [b"before", *MANY[:1500]])
    for _ in range(3):
        put(store, MANY)
    after = put(store, [b"after"])
    assert store.index is not None
    steps = [chained(store)]
    while store.index.is_due:
        store.end_turn()
        steps.append(chained(store))
    assert len(steps) > 3
    assert all(0 < later - earlier <= index._CHAINED_PER_STEP for earlier, later in pairwise(steps))
    finished(store.flush_index())
    assert len(places(store)) == 3 * len(MANY) + 1502
    assert places(store) == sorted(places(store))
    assert (places(store)[0], places(store)[-1]) == (before, after)


@pytest.mark.parametrize("in_batch", [False, True])
def test_all_of_them_are_found_by_whoever_asks_before_they_are_chained(
    store: Store, in_batch: bool
) -> None:
    if in_batch:
        item = BatchItem(0, b"x", b"KEYS\x01" + b" ".join(MANY[:5000]), MANY[:5000], 0)
        put_batch(store, store.queue("T", 0), [item, item])
    else:
        put(store, MANY[:5000])
        put(store, MANY[:5000])
    for key in (MANY[0], MANY[250], MANY[599]):
        hits = found_by_key(store, "T", key.decode(), 64, 0, 1 << 60)
        assert [decode(record).queue_offset for record in hits.records] == [0, 1]


def test_the_index_is_that_of_keys_noted_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    alike = replace(CONFIG, index_entries=700)
    messages = [MANY[:400], [b"a"], MANY[300:3300], [b"b", b"cc"], MANY[:10]]
    stores = [opened(alike) for _ in range(3)]
    for each in stores:
        put(each, [b"first"])
    for keys in messages:
        put(stores[0], keys)
    items = [BatchItem(0, b"x", b"KEYS\x01" + b" ".join(keys), keys, 0) for keys in messages]
    put_batch(stores[1], stores[1].queue("T", 0), items)
    monkeypatch.setattr(index, "_MANY_KEYS", 1 << 30)
    for keys in messages:
        put(stores[2], keys)
    for each in stores:
        finished(each.flush_index())
    assert places(stores[0]) == places(stores[1]) == places(stores[2])
    found = [
        [
            len(found_by_key(each, "T", key, 64, 0, 1 << 60).records)
            for key in ("a", "cc", "1f", "257")
        ]
        for each in stores
    ]
    assert found[0] == found[1] == found[2] == [3, 3, 2, 1]


def test_a_full_drive_holds_them_up_and_they_are_chained_when_it_has_room() -> None:
    drive = FailingDrive(random.Random(1))
    store = Store(CONFIG, lambda: NOW_MS, drive.mount())
    store.open()
    for _ in range(2):
        put(store, MANY)
    drive.fails_in, drive.fails = 0, 1 << 60
    for _ in range(2):
        store.end_turn()
    finished(store.flush_index())
    assert chained(store) == 0
    drive.fails_in = 1 << 60
    finished(store.flush_index())
    assert chained(store) == 2 * len(MANY)


def test_what_comes_while_keys_are_chained_is_chained_in_steps_as_well(store: Store) -> None:
    put(store, MANY)
    steps, counts = store.flush_index(), [0]
    for number, _ in enumerate(steps):
        counts.append(chained(store))
        if number < 2:
            for _ in range(2):
                put(store, MANY)
    counts.append(chained(store))
    assert counts[-1] == 5 * len(MANY)
    assert max(later - earlier for earlier, later in pairwise(counts)) <= index._CHAINED_PER_STEP
