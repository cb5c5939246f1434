"""The index finds a key's records, newest first. Thousands of keys of one message, or of one batch,
are chained some at a time, as if they had come one by one.
"""

from __future__ import annotations

import errno
import random
from collections.abc import Sequence
from dataclasses import replace
from itertools import islice, pairwise
from pathlib import Path
from typing import Final

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from roquet.common.steps import finished
from roquet.errors import UnreadableFile
from roquet.protocol.records.record import decode
from roquet.storage.batch_records import BatchItem
from roquet.storage.config import StoreConfig
from roquet.storage.index import index
from roquet.storage.index.index import Index
from roquet.storage.index.layout import entry_at, key_hash, slot_at
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


# the index by itself

FOLDER: Final = Path("/s/index")
SLOTS: Final = 7
PER_FILE: Final = 10
"""Entries that fit into a file."""


class Keys:
    """An index of small files on a drive; its records are stored a second apart."""

    def __init__(self) -> None:
        self.drive = Drive(random.Random(1))
        self.count = 0
        self.index = self.loaded()

    def loaded(self) -> Index:
        self.drive.unmount()
        self.disk = self.drive.mount()
        found = Index(self.disk, FOLDER, SLOTS, PER_FILE + 1)
        found.load()
        return found

    def add(self, *keys: str) -> None:
        """The keys of one record each."""
        for key in keys:
            self.index.add("T", [key.encode()], self.count * 100, self.ms(self.count))
            self.count += 1

    @staticmethod
    def ms(number: int) -> int:
        return NOW_MS + 1000 * number

    def found(
        self, key: str, *, count_max: int = 99, first: int = 0, last: int = 1 << 30
    ) -> list[int]:
        """Numbers of the records that may have the key."""
        places = self.index.find("T", key, self.ms(first), self.ms(last), count_max)
        return [at // 100 for at in finished(places)]

    def files(self) -> list[str]:
        return sorted(path.name for path in self.drive.names.files)


@settings(max_examples=30)
@given(
    st.lists(st.sampled_from(("a", "b", "cc", "dd", "größer")), max_size=35),
    st.integers(1, 9),
    st.integers(-1, 36),
    st.integers(-1, 36),
)
def test_records_of_a_key_are_found_newest_first_whatever_chains_and_files_they_are_in(
    added: list[str], count_max: int, first: int, last: int
) -> None:
    keys = Keys()
    for number, key in enumerate(added):
        keys.add(key)
        if number % 4 == 3:
            keys.index.flush()
    keys.index.flush()
    for key in {*added, "none"}:
        expected = [n for n, each in enumerate(added) if each == key and first <= n <= last]
        newest = expected[::-1][:count_max]
        assert keys.found(key, count_max=count_max, first=first, last=last) == newest
    assert len(keys.index.files) == -(-len(added) // PER_FILE)


def test_keys_are_found_again_after_a_start_and_chained_on() -> None:
    keys = Keys()
    keys.add(*"abab")
    keys.index.flush()
    keys.index = keys.loaded()
    keys.add(*"ba")
    keys.index.flush()
    assert (keys.found("a"), keys.found("b")) == ([5, 2, 0], [4, 3, 1])
    assert (keys.index.end_at, keys.index.end_ms) == (500, keys.ms(5))
    assert keys.index.mark == (int(keys.files()[0]), 7, keys.ms(5))


def test_an_empty_index_finds_nothing_and_has_no_file() -> None:
    keys = Keys()
    keys.index.flush()
    assert (keys.found("a"), keys.index.mark, keys.files()) == ([], (0, 0, 0), [])
    assert (keys.index.end_at, keys.index.end_ms, keys.index.is_due) == (-1, 0, False)
    assert keys.index.sync_work() == []


@pytest.mark.parametrize("has_base", [False, True])
def test_many_keys_of_one_call_are_those_of_many_calls(*, has_base: bool) -> None:
    one, many = Keys(), Keys()
    one.add(*"abcabc")
    base = 100 if has_base else 0
    places = np.arange(6) * 100 - base
    many.index.add_many("T", b"abcabc", places, np.array([many.ms(n) for n in range(6)]), base)
    for keys in one, many:
        keys.index.flush()
        assert [keys.found(key) for key in "abcd"] == [[3, 0], [4, 1], [5, 2], []]


def test_files_are_ignored_whose_name_or_size_is_not_an_index_files(
    caplog: pytest.LogCaptureFixture,
) -> None:
    keys = Keys()
    keys.add("a")
    keys.index.flush()
    (name,) = keys.files()
    size = keys.drive.names.files[FOLDER / name].size
    for other, bytes_of_it in ("9" * 16, size), ("9" * 18, size), ("x" * 17, size), ("9" * 17, 5):
        keys.disk.open(FOLDER / other, bytes_of_it)
    keys.index = keys.loaded()
    assert [file.path.name for file in keys.index.files] == [name]
    assert len([line for line in caplog.messages if "it is no index file" in line]) == 4
    assert len(keys.files()) == 5


def test_a_file_is_named_by_its_time_or_by_a_higher_number_than_all_others() -> None:
    keys = Keys()
    keys.add(*"a" * PER_FILE)
    keys.index.flush()
    (first,) = keys.files()
    assert len(first) == 17
    keys.index.add("T", [b"b"], 5000, 0)
    keys.index.flush()
    assert keys.files() == [first, str(int(first) + 1)]
    waiting = str(int(first) + 5)
    keys.disk.open(FOLDER / waiting, 1)
    for place, store_ms in (6000, 0), (7000, 1 << 62):
        keys.index.add("T", [b"b"] * PER_FILE, place, store_ms)
        keys.index.flush()
    assert keys.files()[2:4] == [waiting, str(int(waiting) + 1)]
    assert [name[:4] for name in keys.files()[4:]] == ["9999"]


@pytest.mark.parametrize(("log_end", "left"), [(0, 0), (100, 1), (900, 9), (1001, 11), (2500, 25)])
def test_entries_of_records_that_were_cut_from_the_log_are_dropped(log_end: int, left: int) -> None:
    keys = Keys()
    keys.add(*"abcde" * 5)
    keys.index.flush()
    keys.index.truncate(log_end, lambda at: keys.ms(at // 100))
    kept = [letter * (number < left) for number, letter in enumerate("abcde" * 5)]
    for key in "abcde":
        assert keys.found(key) == [number for number in range(25) if kept[number] == key][::-1]
    assert keys.index.end_at == (left - 1) * 100 if left else -1
    assert keys.index.end_ms == (keys.ms(left - 1) if left else 0)
    assert len(keys.files()) == -(-left // PER_FILE)
    keys.count = left
    keys.add(*"zzz")
    keys.index.flush()
    assert keys.found("z") == [left + 2, left + 1, left]


def test_after_a_crash_the_index_is_that_of_the_mark() -> None:
    keys = Keys()
    keys.add(*"abcd" * 3)
    keys.index.flush()
    mark = keys.index.mark
    keys.add(*"abcd" * 5)
    keys.index.flush()
    assert len(keys.files()) == 4
    assert keys.index.truncate_to_mark(*mark)
    assert keys.index.mark == mark
    assert [keys.found(key) for key in "abcd"] == [[8, 4, 0], [9, 5, 1], [10, 6, 2], [11, 7, 3]]
    assert not keys.index.truncate_to_mark(mark[0] + 1, 1, 0)
    assert len(keys.files()) == 2, "a mark of another index changes nothing"
    assert keys.index.truncate_to_mark(0, 0, 0)
    assert (keys.files(), keys.index.files) == ([], [])


def test_an_index_that_cannot_be_truncated_is_to_be_made_again(
    caplog: pytest.LogCaptureFixture,
) -> None:
    keys = Keys()
    keys.add(*"abcd")
    keys.index.flush()
    mark = keys.index.mark
    keys.drive.lost_from[keys.index.files[-1].path] = 100
    assert not keys.index.truncate_to_mark(mark[0], 2, mark[2])
    assert "index file cannot be truncated, it will be rebuilt" in caplog.text
    assert keys.index.mark == mark


@pytest.mark.parametrize(
    ("last", "refill", "left"),
    [(35, None, 4), (34, 3000, 3), (29, 3000, 3), (9, 1000, 1), (-1, 0, 0)],
)
def test_files_with_records_from_after_a_time_are_deleted(
    last: int, refill: int | None, left: int
) -> None:
    keys = Keys()
    keys.add(*"a" * 36)
    keys.index.flush()
    assert keys.index.truncate_to_time(keys.ms(last)) == refill
    assert len(keys.files()) == len(keys.index.files) == left


def test_old_files_are_forgotten_once_they_are_durable_but_never_the_last_one() -> None:
    keys = Keys()
    keys.add(*"a" * 25)
    keys.index.flush()
    assert keys.index.forget_before(1 << 40) == []
    works = keys.index.sync_work()
    for work in works:
        work()
    assert (len(works), keys.index.sync_work()) == (3, [])
    assert keys.index.forget_before(900) == []
    (deletion,) = keys.index.forget_before(901)
    assert len(keys.files()) == 3
    deletion()
    assert keys.found("a") == list(range(24, 9, -1))
    assert len(keys.index.forget_before(1 << 40)) == 1
    assert len(keys.index.files) == 1


def test_a_file_that_grows_while_it_is_synced_is_not_durable_yet() -> None:
    keys = Keys()
    keys.add("a")
    keys.index.flush()
    (work,) = keys.index.sync_work()
    keys.add("b")
    keys.index.flush()
    work()
    assert not keys.index.files[0].is_durable
    assert len(keys.index.sync_work()) == 1


def test_a_search_in_a_long_chain_ends_with_what_it_has_when_the_file_goes() -> None:
    keys = Keys()
    keys.index = Index(keys.disk, FOLDER, SLOTS, 500)
    keys.add(*"a" * 400)
    keys.index.flush()
    search = keys.index.find("T", "a", 0, 1 << 60, 999)
    for _ in range(3):
        next(search)
    keys.index.truncate_to_time(0)
    found = finished(search)
    assert 0 < len(found) < 400
    assert [at // 100 for at in found] == list(range(399, 399 - len(found), -1))


def test_keys_that_find_no_room_stay_until_there_is_room() -> None:
    keys = Keys()
    keys.add(*"a" * 15)
    keys.drive.failure = errno.ENOSPC
    for _ in range(2):
        with pytest.raises(OSError, match="No space"):
            keys.index.flush()
    assert keys.index.is_due
    keys.drive.failure = None
    keys.index.flush()
    assert (keys.found("a"), keys.index.is_due) == (list(range(14, -1, -1)), False)


def test_a_cut_file_takes_no_key_and_is_not_searched() -> None:
    keys = Keys()
    keys.add("a")
    keys.index.flush()
    keys.drive.lost_from[keys.index.files[0].path] = 100
    keys.add("a")
    with pytest.raises(UnreadableFile):
        keys.index.flush()
    with pytest.raises(UnreadableFile):
        keys.found("a")
    keys.drive.lost_from.clear()
    keys.index.flush()
    assert keys.found("a") == [1, 0]


@settings(max_examples=30)
@given(st.lists(st.tuples(st.integers(0, 287), st.integers(0, 255)), max_size=12))
def test_a_search_in_a_damaged_file_ends_and_finds_no_key_twice(
    damage: list[tuple[int, int]],
) -> None:
    """Slots and chains may lead anywhere."""
    keys = Keys()
    keys.add(*"aabab")
    keys.index.flush()
    (path,) = keys.drive.names.files
    size = keys.drive.names.files[path].size
    keys.drive.unmount()
    for at, value in damage:
        keys.drive.names.files[path].cached[at % size] = value
    keys.index = keys.loaded()
    for key in "abc":
        found = finished(keys.index.find("T", key, 0, 1 << 62, 99))
        assert len(found) <= PER_FILE
    room = keys.index.files[0].room
    assert 0 <= room <= PER_FILE
    keys.add("z")
    keys.index.flush()


def test_a_chain_that_leads_in_a_circle_ends_and_a_damaged_slot_begins_a_new_one() -> None:
    keys = Keys()
    keys.add("a")
    keys.index.flush()
    (path,) = keys.drive.names.files
    data = keys.drive.names.files[path].cached
    slot = key_hash("T", "a") % SLOTS
    entries = [entry_at(SLOTS, number) for number in range(4)]
    data[entries[2] - 4 : entries[2]] = (1).to_bytes(4, "big")
    alike = next(
        key
        for key in map(str, range(99))
        if key_hash("T", key) % SLOTS == slot and key_hash("T", key) != key_hash("T", "a")
    )
    search = keys.index.find("T", alike, 0, 1 << 60, 9)
    assert sum(1 for _ in islice(search, 99)) < 99
    for damage, number in (b"\xff" * 4, 2), (b"\x0f" * 4, 3):
        data[slot_at(slot) : slot_at(slot) + 4] = damage
        keys.add("a")
        keys.index.flush()
        end = entry_at(SLOTS, number + 1)
        assert data[end - 4 : end] == bytes(4)
        assert keys.found("a") == [number - 1]


def test_an_index_file_takes_no_more_than_it_has_room_for() -> None:
    keys = Keys()
    keys.add("a")
    keys.index.flush()
    (file,) = keys.index.files
    assert file.room == PER_FILE - 1
    many = np.zeros(PER_FILE, np.int64)
    with pytest.raises(AssertionError, match=f"{PER_FILE} entries for an index file with room"):
        file.add(many, many, many)
