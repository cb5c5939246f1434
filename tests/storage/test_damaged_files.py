"""Damaged files end a start with a clear error, or are repaired and lose nothing else."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from roquet.errors import CorruptRecord, StoreError
from roquet.protocol.filters.tags import TagFilter
from roquet.storage.config import StoreConfig
from roquet.storage.files.segments import file_name
from roquet.storage.store import Store
from tests.storage.records import append_one, bodies_in, found_by_key, records_in

LOG_FILE = 8192
COUNT = 300


def config(root: Path) -> StoreConfig:
    return StoreConfig(
        root, [root / "commitlog"], LOG_FILE, 20 * 50, index_slots=20, index_entries=101
    )


def opened(root: Path) -> Store:
    store = Store(config(root), lambda: 1_700_000_000_000)
    store.open()
    return store


def put(store: Store, first: int, count: int) -> None:
    for number in range(first, first + count):
        key = b"%d" % number
        append_one(store, store.queue("T", 0), key, b"KEYS\x01" + key, [key])
    store.end_turn()


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A store of 300 messages after a clean stop."""
    store = opened(tmp_path)
    put(store, 0, COUNT)
    store.close()
    return tmp_path


def numbers(count: int) -> list[bytes]:
    return [b"%d" % number for number in range(count)]


def crashed(root: Path) -> None:
    (root / "abort").touch()


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (
            lambda root: (root / "commitlog" / "core").touch(),
            r"commitlog/core does not belong .*; move it away",
        ),
        (
            lambda root: os.truncate(root / "commitlog" / file_name(LOG_FILE), 5000),
            "has 5000 bytes, the configured",
        ),
        (
            lambda root: (root / "commitlog" / file_name(LOG_FILE)).unlink(),
            f"{file_name(LOG_FILE)}, is missing",
        ),
        (
            lambda root: (root / "consumequeue/T/0/x.swp").touch(),
            r"consumequeue/T/0/x.swp does not belong",
        ),
    ],
)
def test_what_cannot_be_used_is_named_and_left_as_it_is(
    root: Path, damage: Callable[[Path], None], message: str
) -> None:
    damage(root)
    before = {path: path.stat().st_size for path in root.rglob("*") if path.is_file()}
    with pytest.raises(StoreError, match=message):
        opened(root)
    after = {path: path.stat().st_size for path in root.rglob("*") if path.is_file()}
    assert after == before | {root / "lock": 4}


def test_a_flipped_bit_in_the_middle_loses_nothing_else(root: Path) -> None:
    """The log goes on behind it, and only the reader of that message learns of it, by its
    checksum.
    """
    path = root / "commitlog" / file_name(LOG_FILE)
    data = bytearray(path.read_bytes())
    at = data.index(b"KEYS\x01") - 5
    data[at] ^= 0x40
    path.write_bytes(data)
    crashed(root)
    store = opened(root)
    damaged = 0
    for offset in range(COUNT):
        fetched = store.fetch("T", 0, offset, 1, TagFilter())
        try:
            (record,) = records_in(fetched)
        except CorruptRecord:
            damaged += 1
        else:
            assert record.body == b"%d" % offset
    assert damaged == 1
    store.abandon()


def test_a_stray_file_between_index_files_is_let_be(root: Path) -> None:
    (root / "index" / "notes.txt").write_text("mine")
    (root / "index" / ("9" * 17)).write_bytes(b"short")
    store = opened(root)
    assert len(found_by_key(store, "T", "7", 32, 0, 1 << 62).records) == 1
    store.close()
    assert (root / "index" / "notes.txt").read_text() == "mine"
    assert (root / "index" / ("9" * 17)).read_bytes() == b"short"


@pytest.mark.parametrize("is_clean", [True, False])
def test_a_lost_checkpoint_costs_time_only(root: Path, *, is_clean: bool) -> None:
    (root / "checkpoint").write_bytes(b"?")
    if not is_clean:
        crashed(root)
    store = opened(root)
    assert bodies_in(store, "T") == numbers(COUNT)
    assert len(found_by_key(store, "T", "7", 32, 0, 1 << 62).records) == 1
    store.abandon()


def test_a_damaged_queue_entry_is_mended_after_a_crash_from_the_log(root: Path) -> None:
    shutil.rmtree(root / "consumequeue" / "T")
    crashed(root)
    store = opened(root)
    assert bodies_in(store, "T") == numbers(COUNT)
    store.abandon()
