"""The oldest files of the log go, and of queues and index what only pointed there."""

from __future__ import annotations

import errno
import random
import shutil
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from roquet.common.steps import finished
from roquet.protocol.filters.tags import TagFilter
from roquet.protocol.records.record import decode
from roquet.storage.config import StoreConfig
from roquet.storage.fetch import FetchStatus
from roquet.storage.old_files import Expired
from roquet.storage.store import Store
from tests.simulation.disk import Drive
from tests.storage.deletions import delete_expired_queues
from tests.storage.records import append_one, bodies_in, found_by_key

LOG_FILE = 4096
CONFIG = StoreConfig(
    Path("/store"), [Path("/store/commitlog")], LOG_FILE, 20 * 10, index_slots=10, index_entries=41
)
COUNT = 300


def opened(drive: Drive) -> Store:
    store = Store(CONFIG, lambda: 1_700_000_000_000 + drive.now_ms(), drive.mount())
    store.open()
    return store


def put(store: Store, number: int, topic: str = "T") -> None:
    key = b"%d" % number
    append_one(store, store.queue(topic, 0), key, b"KEYS\x01" + key, [key])
    store.end_turn()


def delete(expired: Expired) -> None:
    for deletion in (*expired.log, *expired.queues, *expired.index):
        deletion()


@pytest.fixture
def drive() -> Drive:
    return Drive(random.Random(1))


@pytest.fixture
def store(drive: Drive) -> Iterator[Store]:
    """Messages 0 to 299 in one queue, and an old one in another; all on disk."""
    store = opened(drive)
    put(store, 0, "idle")
    for number in range(COUNT):
        put(store, number)
    store.make_checkpoint()
    store.log.synced(store.log.end)
    yield store
    store.abandon()


def files(drive: Drive, folder: str) -> int:
    return sum(path.parent == CONFIG.root / folder for path in drive.names.files)


def test_a_file_that_somebody_has_deleted_is_old_and_keeps_no_others(
    store: Store, drive: Drive
) -> None:
    """By hand, to make room."""
    oldest = min(path for path in drive.names.files if path.parent == CONFIG.root / "commitlog")
    store.disk.delete(oldest)
    ends, modified_ms = zip(*store.old_files.last_writes(), strict=True)
    assert ends == tuple(range(LOG_FILE, store.log.file_starts[-1] + 1, LOG_FILE))
    assert modified_ms[0] == 0
    delete(finished(store.old_files.forget_oldest(4)))
    assert store.log.start == 4 * LOG_FILE


def test_the_queue_begins_with_the_first_message_that_is_left(store: Store, drive: Drive) -> None:
    before = files(drive, "commitlog"), files(drive, "consumequeue/T/0"), files(drive, "index")
    delete(finished(store.old_files.forget_oldest(4)))
    first = decode(store.log.read(store.log.start, LOG_FILE)).body
    assert store.log.start == 4 * LOG_FILE
    assert bodies_in(store, "T") == [b"%d" % number for number in range(int(first), COUNT)]
    assert store.fetch("T", 0, 0, 32, TagFilter()).status is FetchStatus.OFFSET_TOO_SMALL
    after = files(drive, "commitlog"), files(drive, "consumequeue/T/0"), files(drive, "index")
    assert after[0] == before[0] - 4
    assert after[1] == before[1] - int(first) // 10
    assert after[2] < before[2]


def test_queues_are_trimmed_some_at_a_time_and_have_their_messages_at_any_moment(
    store: Store,
) -> None:
    many = 200
    for number in range(many):
        put(store, 0, f"topic-{number}")
    count, steps = COUNT, 0
    work = store.old_files.forget_oldest(4)
    while True:
        try:
            next(work)
        except StopIteration as end:
            delete(end.value)
            break
        steps += 1
        put(store, count)
        put(store, 0, f"topic-{many + steps}")
        count += 1
        numbers = [int(body) for body in bodies_in(store, "T")]
        assert numbers == list(range(numbers[0], count))
        assert (
            store.fetch("T", 0, store.min_offset("T", 0), 1, TagFilter()).status
            is FetchStatus.FOUND
        )
    assert steps > many / 20
    assert store.log.start == 4 * LOG_FILE
    assert not store.old_files.has_untrimmed


def test_keys_of_what_is_left_are_found(store: Store) -> None:
    delete(finished(store.old_files.forget_oldest(3)))
    first = store.min_offset("T", 0)
    found = [
        len(found_by_key(store, "T", f"{number}", 32, 0, 1 << 62).records)
        for number in range(COUNT)
    ]
    assert found == [0] * first + [1] * (COUNT - first)


def test_a_queue_of_which_nothing_is_left_goes_on_where_it_was(store: Store, drive: Drive) -> None:
    delete(finished(store.old_files.forget_oldest(2)))
    assert (store.min_offset("idle", 0), store.max_offset("idle", 0)) == (1, 1)
    put(store, 77, "idle")
    assert bodies_in(store, "idle") == [b"77"]
    store.close()
    drive.unmount()
    store = opened(drive)
    assert (store.min_offset("idle", 0), store.max_offset("idle", 0)) == (1, 2)
    assert bodies_in(store, "idle") == [b"77"]


def test_the_file_in_use_and_what_is_not_on_disk_stay(drive: Drive) -> None:
    store = opened(drive)
    for number in range(COUNT):
        put(store, number)
    store.log.synced(store.log.start)
    delete(finished(store.old_files.forget_oldest(1000)))
    assert store.log.start == 0
    store.make_checkpoint()
    store.log.synced(store.log.end)
    delete(finished(store.old_files.forget_oldest(1000)))
    assert store.log.file_starts == [store.log.end - store.log.end % LOG_FILE]
    put(store, COUNT)
    assert bodies_in(store, "T")[-1] == b"%d" % COUNT


def test_whoever_holds_bytes_of_a_file_keeps_them(store: Store) -> None:
    held = store.log.read(store.log.start, LOG_FILE)
    before = bytes(held)
    delete(finished(store.old_files.forget_oldest(5)))
    assert bytes(held) == before
    assert not store.log.read(store.log.start - LOG_FILE, 100)


def test_what_the_crash_left_of_a_deletion_is_there_again_or_not(
    store: Store, drive: Drive
) -> None:
    expired = finished(store.old_files.forget_oldest(5))
    for deletion in expired.log[:2]:
        deletion()
    drive.crash()
    store = opened(drive)
    assert store.log.start == 2 * LOG_FILE
    first = store.min_offset("T", 0)
    assert bodies_in(store, "T") == [b"%d" % number for number in range(first, COUNT)]
    assert decode(store.log.read(store.log.start, LOG_FILE)).queue_offset == first


def test_queues_without_a_message_are_dropped_when_asked_for(store: Store) -> None:
    delete(finished(store.old_files.forget_oldest(2)))
    delete_expired_queues(store, {"idle"})
    assert store.max_offset("idle", 0) == 1
    delete_expired_queues(store, ())
    assert (store.max_offset("idle", 0), store.max_offset("T", 0)) == (0, COUNT)
    put(store, 5, "idle")
    assert bodies_in(store, "idle") == [b"5"]


def test_a_deletion_that_failed_is_tried_again_without_what_it_has_done(
    store: Store, drive: Drive
) -> None:
    """The number of the file's descriptor is another file's by then; closing it twice is a fault of
    the drive's.
    """
    deletion = finished(store.old_files.forget_oldest(1)).log[0]
    assert deletion.path.name == f"{0:020}"
    for operation in ("delete", "sync"):
        drive.refuse(operation, errno.EIO)
        with pytest.raises(OSError, match="Input/output"):
            deletion()
        put(store, COUNT)
    deletion()
    store.make_checkpoint()
    assert files(drive, "commitlog") == len(store.log.file_starts)


def test_what_no_checkpoint_covers_stays(store: Store) -> None:
    """A crash may take the queue entries behind its mark: then the records say where the queue goes
    on.
    """
    mark = store.checkpoint.mark
    assert mark is not None
    while store.log.end < mark.position + 3 * LOG_FILE:
        put(store, store.max_offset("T", 0))
    store.log.sync_work(store.log.end)()
    store.log.synced(store.log.end)
    delete(finished(store.old_files.forget_oldest(100)))
    assert mark.position - LOG_FILE < store.log.start <= mark.position


def test_a_queue_whose_entries_are_all_of_deleted_records_begins_where_the_log_says(
    drive: Drive,
) -> None:
    """As a crash left it while retention was ahead of the queues: its next record is more than a
    file further on.
    """
    store = opened(drive)
    for number in range(20):
        put(store, number)
    store.make_checkpoint()
    for number in range(20, COUNT):
        put(store, number)
    store.log.synced(store.log.end)
    drive.unmount()
    for path in [path for path in drive.names.files if path.parent.name == "commitlog"][:6]:
        del drive.names.files[path]
    for path in [path for path in drive.names.files if path.parent.parent.name == "T"]:
        if int(path.name) >= 20 * 20:
            del drive.names.files[path]
    store = opened(drive)
    first = int(decode(store.log.read(store.log.start, LOG_FILE)).body)
    assert first > 20 + CONFIG.consume_queue_file_size // 20
    assert bodies_in(store, "T") == [b"%d" % number for number in range(first, COUNT)]
    put(store, COUNT)
    assert store.max_offset("T", 0) == COUNT + 1


@pytest.fixture
def protected(tmp_path: Path) -> Iterator[Callable[[Path], None]]:
    """Makes a file of the real drive undeletable, for root too."""
    files: list[Path] = []

    def protect(path: Path) -> None:
        made = subprocess.run(["chattr", "+i", str(path)], capture_output=True, check=False)
        if made.returncode:
            pytest.skip("this drive, or this user, protects no files")
        files.append(path)

    if shutil.which("chattr") is None:
        pytest.skip("no chattr")
    yield protect
    for path in files:
        subprocess.run(["chattr", "-i", str(path)], check=True)


def test_a_protected_file_of_a_real_drive_costs_the_log_none_of_its_descriptors(
    tmp_path: Path, protected: Callable[[Path], None]
) -> None:
    config = replace(CONFIG, root=tmp_path, commit_log_folders=[tmp_path / "commitlog"])
    store = Store(config, lambda: 1_700_000_000_000)
    store.open()
    for number in range(COUNT):
        put(store, number)
    store.make_checkpoint()
    store.log.synced(store.log.end)
    protected(tmp_path / "commitlog" / f"{0:020}")
    deletion = finished(store.old_files.forget_oldest(1)).log[0]
    for _ in range(3):
        with pytest.raises(PermissionError):
            deletion()
        first_file = len(store.log.file_starts)
        while len(store.log.file_starts) == first_file:
            put(store, COUNT)
        store.log.sync_work(store.log.end)()
    store.close()
