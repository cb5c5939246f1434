"""Damaged files, and drives that do not do what they should: a clear error, or a repair that loses
nothing else.
"""

from __future__ import annotations

import errno
import os
import random
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from roquet.common.steps import finished
from roquet.errors import CorruptRecord, DriveSlow, StoreError
from roquet.protocol.filters.tags import TagFilter
from roquet.storage.batch_records import BatchItem
from roquet.storage.config import StoreConfig
from roquet.storage.files.segments import file_name
from roquet.storage.store import Store
from tests.simulation.disk import Drive
from tests.storage.records import append_one, bodies_in, found_by_key, put_batch, records_in

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


@pytest.mark.parametrize("trouble", [errno.ENOSPC, errno.EROFS])
def test_a_roll_that_fails_refuses_the_message_and_the_next_one_fits_again(trouble: int) -> None:
    drive = Drive(random.Random(1))
    store = Store(config(Path("/s")), lambda: 1, drive.mount())
    store.open()
    taken = 0
    while store.log.room > 300:
        put(store, taken, 1)
        taken += 1
    drive.trouble = trouble
    before, refused = taken, 0
    for _ in range(20):
        try:
            put(store, taken, 1)
            taken += 1
        except OSError as error:
            refused += error.errno == trouble
    assert taken + refused == before + 20
    assert refused > 10
    drive.trouble = None
    put(store, taken, 50)
    assert bodies_in(store, "T") == numbers(taken + 50)
    drive.crash()
    again = Store(config(Path("/s")), lambda: 1, drive.mount())
    again.open()
    found = bodies_in(again, "T")
    assert found == numbers(len(found))


@pytest.mark.parametrize("lost", ["log", "queue", "index"])
def test_after_a_sync_that_fails_nothing_counts_as_durable_any_more(lost: str) -> None:
    """The drive is well again and would say that all is: what it dropped, it does not write."""
    drive = Drive(random.Random(1))
    store = Store(config(Path("/s")), lambda: 1, drive.mount())
    store.open()
    put(store, 0, 10)
    store.make_checkpoint()
    mark, flushed_to = store.checkpoint.mark, store.log.flushed_to
    put(store, 10, 10)
    assert store.index is not None
    finished(store.flush_index())
    works = {
        "log": store.log.sync_work(store.log.end),
        "queue": store.queue("T", 0).sync_work(),
        "index": store.index.sync_work()[0],
    }
    sync = works[lost]
    assert sync is not None
    drive.trouble = errno.EIO
    with pytest.raises(OSError, match="Input/output error: '/s/"):
        sync()
    drive.trouble = None
    for again in (sync, store.make_checkpoint, store.log.sync_work(store.log.end)):
        with pytest.raises(OSError, match="no file of the store is synced any more"):
            again()
    store.log.synced(store.log.end)
    assert (store.checkpoint.mark, store.log.flushed_to) == (mark, flushed_to)
    assert store.visible_end == flushed_to, "the rest may be gone after the next start"


def test_a_store_whose_sync_failed_takes_nothing_and_says_why() -> None:
    drive = Drive(random.Random(1))
    store = Store(config(Path("/s")), lambda: 1, drive.mount())
    told: list[OSError] = []
    store.failed.add(told.append)
    store.open()
    put(store, 0, 10)
    assert not store.take_failure()
    drive.trouble = errno.EIO
    with pytest.raises(OSError, match="Input/output error"):
        store.log.sync_work(store.log.end)()
    drive.trouble = None
    assert (store.take_failure(), store.take_failure(), len(told)) == (True, True, 1)
    assert "/s/commitlog" in str(told[0])
    end = store.log.end
    with pytest.raises(OSError, match="no file of the store is synced any more"):
        put(store, 10, 1)
    with pytest.raises(OSError, match="no file of the store is synced any more"):
        store.log.replicate(end, b"x")
    assert store.log.end == end


@pytest.mark.parametrize("seed", range(20))
def test_a_start_after_a_sync_that_failed_reads_from_the_drive(seed: int) -> None:
    """What the system still has in its memory would be gone with the power, and what comes behind
    it, too.
    """
    drive = Drive(random.Random(seed))
    store = Store(config(Path("/s")), lambda: 1, drive.mount())
    store.open()
    put(store, 0, 10)
    store.log.sync_work(store.log.end)()
    put(store, 10, 50)
    drive.trouble = errno.EIO
    with pytest.raises(OSError, match="Input/output error"):
        store.log.sync_work(store.log.end)()
    drive.trouble = None
    drive.unmount()
    again = Store(config(Path("/s")), lambda: 1, drive.mount())
    again.open()
    kept = len(bodies_in(again, "T"))
    put(again, kept, 5)
    again.log.sync_work(again.log.end)()
    drive.crash()
    third = Store(config(Path("/s")), lambda: 1, drive.mount())
    third.open()
    assert bodies_in(third, "T") == numbers(kept + 5)


def test_what_waits_behind_a_slow_drive_is_refused_until_the_next_turn() -> None:
    now_ms = 1_700_000_000_000
    store = Store(
        replace(config(Path("/s")), busy_ms=1000), lambda: now_ms, Drive(random.Random(1)).mount()
    )
    store.open()
    put(store, 0, 1)
    append_one(store, store.queue("T", 0), b"1")
    now_ms += 1001
    end = store.log.end
    for refused in (
        lambda: append_one(store, store.queue("T", 0), b"x"),
        lambda: put_batch(store, store.queue("T", 0), [BatchItem(0, b"x", b"", (), 0)]),
    ):
        with pytest.raises(DriveSlow, match=r"^storing .* took 1001 ms; it was not stored"):
            refused()
    assert store.log.end == end
    store.end_turn()
    put(store, 2, 1)
    assert bodies_in(store, "T") == numbers(3)


def test_a_record_that_was_refused_holds_up_nobody() -> None:
    now_ms = 1_700_000_000_000
    drive = Drive(random.Random(1))
    store = Store(replace(config(Path("/s")), busy_ms=1000), lambda: now_ms, drive.mount())
    store.open()
    drive.trouble = errno.ENOSPC
    with pytest.raises(OSError, match="No space"):
        put(store, 0, 1)
    drive.trouble = None
    now_ms += 60_000
    put(store, 0, 1)
    assert bodies_in(store, "T") == numbers(1)


@pytest.mark.parametrize("seed", range(20))
def test_the_name_of_a_new_file_is_durable_with_the_first_bytes_in_it(seed: int) -> None:
    drive = Drive(random.Random(seed))
    store = Store(config(Path("/s")), lambda: 1, drive.mount())
    store.open()
    for first in range(0, 200, 50):
        put(store, first, 50)
        store.log.sync_work(store.log.end)()
    drive.crash()
    again = Store(config(Path("/s")), lambda: 1, drive.mount())
    again.open()
    assert bodies_in(again, "T") == numbers(200)
