"""A drive without room refuses what does not fit any more, and leaves log, queues and index of one
mind.
"""

from __future__ import annotations

import errno
import math
import random
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from roquet.common.steps import finished
from roquet.errors import DispatchHeldUp
from roquet.protocol.filters.tags import TagFilter
from roquet.protocol.records.record import decode
from roquet.storage.batch_records import BatchItem
from roquet.storage.config import StoreConfig
from roquet.storage.store import Store
from tests.simulation.disk import Drive, MountedDisk, MountedLock
from tests.storage.records import append_one, bodies_in, found_by_key, put_batch, records_in

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


class FullDisk(MountedDisk):
    """A drive that is full; the file of the lock was there before."""

    def lock(self, path: Path) -> MountedLock:
        lock = super().lock(path)
        self.drive("lock").failure = errno.ENOSPC
        return lock


def opened_full(drive: Drive) -> Store:
    store = Store(CONFIG, lambda: 1_700_000_000_000, FullDisk(drive))
    store.open()
    return store


def put(store: Store, key: str, size: int = 10) -> None:
    queue = store.queue("T", 0)
    append_one(
        store, queue, key.encode().ljust(size), f"UNIQ_KEY\x01{key}".encode(), [key.encode()]
    )


def put_two(store: Store, key: str) -> None:
    item = BatchItem(0, key.encode(), f"UNIQ_KEY\x01{key}".encode(), [key.encode()], 0)
    put_batch(store, store.queue("T", 0), [item, item])


def in_log(store: Store) -> list[bytes]:
    return [decode(data).body.strip() for _, data in store.log.walk(store.log.start)]


def in_queue(store: Store) -> list[bytes]:
    found: list[bytes] = []
    while len(found) < store.max_offset("T", 0):
        fetched = store.fetch("T", 0, len(found), 32, TagFilter())
        found += [record.body.strip() for record in records_in(fetched)]
    return found


def lose_queues(drive: Drive) -> None:
    drive.unmount()
    for path in [path for path in drive.names.files if "consumequeue" in path.parts]:
        del drive.names.files[path]


def full_without_queues(drive: Drive, topic: str, count: int) -> Store:
    """Without a mark, too; the log has `count` small messages of `topic`, then larger ones, and
    five files in all.
    """
    store = opened(drive)
    for number in range(count):
        append_one(store, store.queue(topic, 0), b"%d" % number)
    while store.log.end < 5 * 4096:
        put(store, f"key-{store.log.end}", 500)
    lose_queues(drive)
    store = opened_full(drive)
    assert store.checkpoint.mark is None
    return store


@pytest.mark.parametrize("put_more", [put, put_two])
def test_a_record_whose_entry_finds_no_room_is_not_stored_at_all(
    drive: Drive, put_more: Callable[[Store, str], None]
) -> None:
    store = opened(drive)
    for number in range(ENTRIES_PER_FILE):
        put(store, f"{number}")
    drive.failure = errno.ENOSPC
    for _ in range(3):
        with pytest.raises(OSError, match="No space"):
            put_more(store, "refused")
    drive.failure = None
    put_more(store, "taken")
    assert in_log(store) == in_queue(store)
    assert b"refused" not in in_log(store)
    assert in_log(store)[-1] == b"taken"


def test_a_record_that_finds_no_room_in_the_log_is_not_stored_either(drive: Drive) -> None:
    store = opened(drive)
    put(store, "first", size=3800)
    drive.failure = errno.ENOSPC
    with pytest.raises(OSError, match="No space"):
        put(store, "refused", size=3800)
    drive.failure = None
    put(store, "taken", size=3800)
    assert in_log(store) == in_queue(store) == [b"first", b"taken"]


def test_keys_wait_until_the_index_has_room(drive: Drive) -> None:
    store = opened(drive)
    for number in range(5):
        put(store, f"key-{number}")
    drive.failure = errno.ENOSPC
    finished(store.flush_index())
    drive.failure = None
    assert [
        len(found_by_key(store, "T", f"key-{number}", 32, 0, 1 << 62).records)
        for number in range(5)
    ] == [1] * 5


def test_replicated_records_are_dispatched_once_there_is_room(drive: Drive) -> None:
    master = opened(Drive(random.Random(2)))
    for number in range(5):
        put(master, f"{number}")
    store = opened(drive)
    store.log.replicate(store.log.end, master.log.read(master.log.start, 1 << 20))
    drive.failure = errno.ENOSPC
    store.replicated()
    assert store.dispatch.lag
    drive.failure = None
    store.replicated()
    assert in_queue(store) == in_log(master)


@pytest.mark.parametrize("has_checkpoint", [True, False])
def test_after_a_crash_on_a_full_drive_what_has_its_entries_is_served(
    drive: Drive, *, has_checkpoint: bool
) -> None:
    store = opened(drive)
    for number in range(25):
        put(store, f"key-{number}")
    if has_checkpoint:
        store.make_checkpoint()
    for number in range(25, 45):
        put(store, f"key-{number}")
    drive.crash() if has_checkpoint else drive.unmount()
    end = 25 if has_checkpoint else 0
    store = opened_full(drive)
    assert in_queue(store) == [
        f"key-{number}".encode() for number in range(store.max_offset("T", 0))
    ]
    assert store.max_offset("T", 0) >= end
    assert all(
        not found_by_key(store, "T", f"key-{number}", 32, 0, 1 << 62).records[1:]
        for number in range(45)
    )
    drive.failure = None
    store.replicated()
    finished(store.flush_index())
    assert in_queue(store) == in_log(store)
    assert all(
        len(found_by_key(store, "T", key.decode(), 32, 0, 1 << 62).records) == (b"key-" in key)
        for key in in_log(store)
    )


def test_a_store_starts_without_room_for_its_index_and_finds_keys_when_there_is_some(
    drive: Drive, caplog: pytest.LogCaptureFixture
) -> None:
    store = opened(drive)
    keys = [[b"%d-%d" % (number, key) for key in range(10)] for number in range(8)]
    for number, of_message in enumerate(keys):
        properties = b"KEYS\x01" + b" ".join(of_message)
        append_one(store, store.queue("T", 0), b"%d" % number, properties, of_message)
        if number == 0:
            store.make_checkpoint()  # one file of the queue and one of the index are there
    drive.unmount()
    drive.refuse("create", errno.ENOSPC, math.inf)
    store = opened(drive)
    assert in_queue(store) == in_log(store)
    held_up = [each for each in caplog.records if "task='index'" in each.getMessage()]
    assert len(held_up) == 1
    drive.refuse("create", errno.ENOSPC, 0)
    for number, of_message in enumerate(keys):
        for key in of_message:
            (record,) = found_by_key(store, "T", key.decode(), 32, 0, 1 << 62).records
            assert decode(record).body == b"%d" % number


def test_no_message_takes_the_offset_of_one_that_waits_for_its_entry(
    drive: Drive, caplog: pytest.LogCaptureFixture
) -> None:
    store = opened(drive)
    for number in range(45):
        put(store, f"key-{number}")
    lose_queues(drive)
    store = opened_full(drive)
    for _ in range(5):
        store.replicated()
    assert (
        len([record for record in caplog.records if "task='dispatch'" in record.getMessage()]) == 1
    )
    assert store.dispatch.lag
    with pytest.raises(
        DispatchHeldUp, match=r"queue entries of earlier ones are written.*No space left"
    ):
        put(store, "refused")
    drive.failure = None
    with pytest.raises(DispatchHeldUp):
        put(store, "refused")
    store.replicated()
    put(store, "taken")
    assert in_queue(store) == in_log(store)
    assert in_log(store)[-1] == b"taken"


def test_a_full_drive_without_a_mark_or_queues_lets_its_oldest_files_go(drive: Drive) -> None:
    """Nothing else would ever make room for queue entries, and nobody but an operator end that."""
    store = full_without_queues(drive, "idle", 40)
    assert (store.dispatch.position, store.max_offset("T", 0)) == (0, 0)
    gone = store.log.file_starts[1]
    for deletion in finished(store.old_files.forget_oldest(10)).log:
        deletion()
    assert store.log.start == gone > 0, "one at a time"
    finished(store.old_files.forget_oldest(10))
    drive.failure = None
    store.replicated()
    assert store.dispatch.lag == 0
    assert store.max_offset("idle", 0) == 40, "no message gets the offset of one that is gone"
    put(store, "taken")
    low, end = store.min_offset("T", 0), store.max_offset("T", 0)
    fetched = [store.fetch("T", 0, offset, 1, TagFilter()) for offset in range(low, end)]
    assert [record.body.strip() for each in fetched for record in records_in(each)] == in_log(store)


def test_records_are_passed_over_some_at_a_time_and_not_at_all_if_there_is_room_meanwhile(
    drive: Drive,
) -> None:
    store = full_without_queues(drive, "T", 100)
    work, steps = store.old_files.forget_oldest(10), 0
    while store.dispatch.position == 0:
        next(work)
        steps += 1
        if steps == 2:
            drive.failure = None
            store.replicated()
    assert store.dispatch.lag == 0
    assert finished(work).log == []
    assert bodies_in(store, "T")[:100] == [b"%d" % number for number in range(100)]


def test_without_a_mark_the_queues_say_which_files_may_go(drive: Drive) -> None:
    store = opened(drive)
    while store.log.end < 5 * 4096:
        put(store, f"key-{store.log.end}", 500)
    store.log.synced(store.log.end)
    assert finished(store.old_files.forget_oldest(2)).log == []
    sync = store.queue("T", 0).sync_work()
    assert sync is not None
    sync()
    put(store, "more", 500)
    assert store.checkpoint.mark is None
    assert len(finished(store.old_files.forget_oldest(10)).log) == 5


@pytest.fixture(params=["tmpfs", "ext4"])
def small_drive(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Path]:
    """A real file system of 4 MiB; only root can make one."""
    folder = tmp_path / "small"
    folder.mkdir()
    if request.param == "tmpfs":
        mount = ["mount", "-t", "tmpfs", "-o", "size=4m", "none", str(folder)]
    else:
        image = tmp_path / "image"
        with image.open("wb") as file:
            file.truncate(4 << 20)
        if (
            shutil.which("mkfs.ext4") is None
            or subprocess.run(["mkfs.ext4", "-q", str(image)], check=False).returncode
        ):
            pytest.skip("a full ext4 is NOT tested: no mkfs.ext4")
        mount = ["mount", "-o", "loop", str(image), str(folder)]
    if (
        sys.platform != "linux"
        or subprocess.run(mount, check=False, capture_output=True).returncode
    ):
        pytest.skip(f"a full {request.param} is NOT tested: it cannot be mounted here")
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True)


PROGRAM = """
import os, sys
from pathlib import Path
from roquet.protocol.filters.tags import TagFilter
from roquet.common.steps import finished
from roquet.storage.config import StoreConfig
from roquet.storage.store import Store
from tests.storage.records import append_one
root, what = Path(sys.argv[1]), sys.argv[2]
config = StoreConfig(root, [root / "commitlog"], 1 << 20, 20 * 5000, index_slots=5000, index_entries=20_000)
store = Store(config, lambda: 1_700_000_000_000)
store.open()
if what == "fill":
    for number in range(1000):
        append_one(store, store.queue("T", 0), b"%d" % number, b"KEYS\\x01k", [b"k"])
    store.end_turn()
    store.make_checkpoint()
    for number in range(1000, 6000):
        append_one(store, store.queue("T", number % 7), b"%d" % number, b"KEYS\\x01k", [b"k"])
    finished(store.flush_index())
    os._exit(0)  # a kill -9
print(store.log.end, store.dispatch.lag, len(store.fetch("T", 0, 0, 32, TagFilter()).records))
finished(store.search_by_key("T", "k", 32, 0, 1 << 62))
store.replicated()
print(sum(queue.max_offset for queue in store.queues), store.dispatch.lag)
store.abandon()
"""


def run(root: Path, what: str) -> list[str]:
    result = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(root), what],
        check=False,
        capture_output=True,
        text=True,
    )
    assert (result.returncode, "Traceback" in result.stderr) == (0, False), result.stderr
    return result.stdout.split()


@pytest.mark.parametrize(
    "lost", [pytest.param((), marks=pytest.mark.long), ("index", "consumequeue", "checkpoint")]
)
def test_a_real_full_drive_ends_no_start(small_drive: Path, lost: tuple[str, ...]) -> None:
    root = small_drive / "store"
    run(root, "fill")
    for name in lost:
        shutil.rmtree(root / name, ignore_errors=True)
        (root / name).unlink(missing_ok=True) if (root / name).is_file() else None
    ballast = small_drive / "ballast"
    with ballast.open("wb", buffering=0) as file, suppress(OSError):
        while True:
            file.write(bytes(4096))
    end, lag, found, entries, lag_after = map(int, run(root, "read"))
    assert (end > 0, found > 0 or lag > 0) == (True, True)
    assert lag_after == lag
    ballast.unlink()
    _, lag, found, entries, _ = map(int, run(root, "read"))
    assert (lag, found > 0, entries) == (0, True, 6000)
