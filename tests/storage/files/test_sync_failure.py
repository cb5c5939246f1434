"""After a sync that fails no file of the store is synced any more."""

from __future__ import annotations

import errno
import os
import random
from collections.abc import Callable
from pathlib import Path

import pytest

from roquet.common.steps import finished
from roquet.errors import UnreadableFile
from roquet.storage.config import StoreConfig
from roquet.storage.files.sync_failure import SyncCheckedDisk, SyncHealth
from roquet.storage.store import Store
from tests.simulation.disk import Drive
from tests.storage.records import append_one, bodies_in

PATH = Path("/s/folder/file")
CONFIG = StoreConfig(
    Path("/s"), [Path("/s/commitlog")], 8192, 20 * 50, index_slots=20, index_entries=101
)


def failing(number: int) -> Callable[[], None]:
    def work() -> None:
        raise OSError(number, os.strerror(number), "/s/file")

    return work


def test_the_first_failed_sync_is_the_last_one_that_is_tried() -> None:
    health = SyncHealth()
    health.check()
    with pytest.raises(OSError, match="Input/output error: '/s/file'") as first:
        health.attempt(failing(errno.EIO))
    tried = list[int]()
    told = r"no file of the store is synced any more, one sync has failed: .*Input/output"
    for again in (health.check, lambda: health.attempt(lambda: tried.append(1))):
        with pytest.raises(OSError, match=told) as refused:
            again()
        assert refused.value.errno == errno.EIO
    assert (health.failure, tried) == (first.value, [])
    health.fail(OSError(errno.ENOSPC, "a later one"))
    assert health.failure is first.value


@pytest.mark.parametrize("number", [errno.EMFILE, errno.ENFILE, errno.EBADF])
def test_an_error_without_io_is_no_failed_sync(number: int) -> None:
    health, done = SyncHealth(), list[int]()
    with pytest.raises(OSError, match="/s/file"):
        health.attempt(failing(number))
    health.attempt(lambda: done.append(1))
    assert (health.failure, done) == (None, [1])


@pytest.mark.parametrize("number", [errno.EIO, errno.ENOSPC, errno.EROFS, errno.EDQUOT])
def test_any_other_error_is_a_failed_sync(number: int) -> None:
    health = SyncHealth()
    with pytest.raises(OSError, match="/s/file"):
        health.attempt(failing(number))
    assert health.failure is not None
    assert health.failure.errno == number


def test_a_deleted_file_keeps_no_other_from_its_sync() -> None:
    health, done = SyncHealth(), list[int]()

    def deleted() -> None:
        raise UnreadableFile(errno.EIO, "deleted", "/s/file")

    with pytest.raises(UnreadableFile):
        health.attempt(deleted)
    health.attempt(lambda: done.append(1))
    assert (health.failure, done) == (None, [1])


def test_the_first_sync_of_a_new_file_makes_its_name_durable_and_no_later_one() -> None:
    noted: list[tuple[object, ...]] = []
    drive = Drive(random.Random(1), note=lambda *what: noted.append(what))
    disk = SyncCheckedDisk(drive.mount(), SyncHealth())
    file = disk.open(PATH, 10)
    assert file.is_new
    noted.clear()
    for _ in range(2):
        file.sync(0, 10)
    assert not file.is_new
    assert noted == [("sync", str(PATH)), ("sync", str(PATH.parent)), ("sync", str(PATH))]
    for again in disk.open(PATH, 10), disk.reopen(PATH, 10):
        noted.clear()
        again.sync(0, 10)
        assert noted == [("sync", str(PATH))]


def test_a_name_that_could_not_be_synced_is_a_failed_sync() -> None:
    drive, health = Drive(random.Random(1)), SyncHealth()
    file = SyncCheckedDisk(drive.mount(), health).open(PATH, 10)

    def refuse_the_next_sync() -> int:
        """When the bytes of the file are synced, which sets its time."""
        drive.refuse("sync", errno.EIO)
        return 0

    drive.now_ms = refuse_the_next_sync
    with pytest.raises(OSError, match="Input/output"):
        file.sync(0, 10)
    assert file.is_new
    assert health.failure is not None


def test_the_files_of_one_store_share_their_health_and_those_of_two_do_not() -> None:
    drive, health = Drive(random.Random(1)), SyncHealth()
    disk = drive.mount()
    first, second = (SyncCheckedDisk(disk, health).open(PATH / name, 10) for name in "ab")
    other = SyncCheckedDisk(disk, SyncHealth()).open(PATH / "c", 10)
    drive.failure = errno.EIO
    with pytest.raises(OSError, match="Input/output"):
        first.sync(0, 10)
    drive.failure = None
    with pytest.raises(OSError, match="no file of the store is synced any more"):
        second.sync(0, 10)
    other.sync(0, 10)
    assert not other.is_new


# a store


def put(store: Store, first: int, count: int) -> None:
    for number in range(first, first + count):
        key = b"%d" % number
        append_one(store, store.queue("T", 0), key, b"KEYS\x01" + key, [key])
    store.end_turn()


def numbers(count: int) -> list[bytes]:
    return [b"%d" % number for number in range(count)]


@pytest.mark.parametrize("lost", ["log", "queue", "index"])
def test_after_a_sync_that_fails_nothing_counts_as_durable_any_more(lost: str) -> None:
    """The drive is well again and would say that all is: what it dropped, it does not write."""
    drive = Drive(random.Random(1))
    store = Store(CONFIG, lambda: 1, drive.mount())
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
    drive.failure = errno.EIO
    with pytest.raises(OSError, match="Input/output error: '/s/"):
        sync()
    drive.failure = None
    for again in (sync, store.make_checkpoint, store.log.sync_work(store.log.end)):
        with pytest.raises(OSError, match="no file of the store is synced any more"):
            again()
    store.log.synced(store.log.end)
    assert (store.checkpoint.mark, store.log.flushed_to) == (mark, flushed_to)
    assert store.visible_end == flushed_to, "the rest may be gone after the next start"


def test_a_store_whose_sync_failed_takes_nothing_and_says_why() -> None:
    drive = Drive(random.Random(1))
    store = Store(CONFIG, lambda: 1, drive.mount())
    told: list[OSError] = []
    store.failed.add(told.append)
    store.open()
    put(store, 0, 10)
    assert not store.take_failure()
    drive.failure = errno.EIO
    with pytest.raises(OSError, match="Input/output error"):
        store.log.sync_work(store.log.end)()
    drive.failure = None
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
    store = Store(CONFIG, lambda: 1, drive.mount())
    store.open()
    put(store, 0, 10)
    store.log.sync_work(store.log.end)()
    put(store, 10, 50)
    drive.failure = errno.EIO
    with pytest.raises(OSError, match="Input/output error"):
        store.log.sync_work(store.log.end)()
    drive.failure = None
    drive.unmount()
    again = Store(CONFIG, lambda: 1, drive.mount())
    again.open()
    kept = len(bodies_in(again, "T"))
    put(again, kept, 5)
    again.log.sync_work(again.log.end)()
    drive.crash()
    third = Store(CONFIG, lambda: 1, drive.mount())
    third.open()
    assert bodies_in(third, "T") == numbers(kept + 5)


@pytest.mark.parametrize("seed", range(20))
def test_the_name_of_a_new_file_is_durable_with_the_first_bytes_in_it(seed: int) -> None:
    drive = Drive(random.Random(seed))
    store = Store(CONFIG, lambda: 1, drive.mount())
    store.open()
    for first in range(0, 200, 50):
        put(store, first, 50)
        store.log.sync_work(store.log.end)()
    drive.crash()
    again = Store(CONFIG, lambda: 1, drive.mount())
    again.open()
    assert bodies_in(again, "T") == numbers(200)
