"""All queues of a store: which folders are queues, what is counted, and how a topic goes."""

from __future__ import annotations

import errno
import random
from pathlib import Path

import pytest

from roquet.errors import StoreError, UnreadableFile
from roquet.protocol.records.message import SCHEDULE_TOPIC
from roquet.storage.queues.consume_queue import ConsumeQueue
from roquet.storage.queues.ext import ExtendedQueue
from roquet.storage.queues.queues import Queues
from tests.simulation.disk import Drive, MountedDisk

ROOT = Path("/s")
PER_FILE = 10


@pytest.fixture
def drive() -> Drive:
    return Drive(random.Random(1))


@pytest.fixture
def disk(drive: Drive) -> MountedDisk:
    return drive.mount()


@pytest.fixture(params=[None, 4096])
def queues(request: pytest.FixtureRequest, disk: MountedDisk) -> Queues:
    """With extension units, and without."""
    return queues_on(disk, request.param)


def queues_on(disk: MountedDisk, ext_file_size: int | None = None) -> Queues:
    return Queues(disk, ROOT, 20 * PER_FILE, ext_file_size)


def fill(queue: ConsumeQueue, count: int) -> None:
    for _ in range(count):
        queue.make_room(1)
        queue.put(queue.max_offset, queue.log_end, 100, 7, 1)


def folder(topic: str, queue_id: int | str) -> Path:
    return ROOT / "consumequeue" / topic / str(queue_id)


def add_file(disk: MountedDisk, path: Path, size: int = 20 * PER_FILE) -> None:
    file = disk.open(path, size)
    file.close()


# loading


def test_queues_that_were_filled_are_found_again(drive: Drive, queues: Queues) -> None:
    for topic, queue_id, count in ("T", 0, 25), ("T", 2147483647, 1), ("%RETRY%g", 0, 3):
        fill(queues.queue(topic, queue_id), count)
    queues.close()
    assert queues.load() == []
    found = {queue.name: queue.max_offset for queue in queues}
    assert found == {("T", 0): 25, ("T", 2147483647): 1, ("%RETRY%g", 0): 3}
    assert (len(queues), queues.used, queues.entry_count, queues.log_end) == (3, 3, 29, 2500)
    assert sorted(queues.topics) == ["%RETRY%g", "T"]


@pytest.mark.parametrize(
    ("topic", "name"),
    [("T", "x"), ("T", "-1"), ("T", "00"), ("T", "2147483648"), ("T", "²"), ("T", "9" * 4400),
     ("bad\0name", "0"), ("..", "0")],
)  # fmt: skip
def test_folders_that_name_no_queue_are_ignored_and_stay(
    drive: Drive, disk: MountedDisk, topic: str, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    for each in folder(topic, name), folder(topic, name + "x"), folder("T", 1):
        add_file(disk, each / "0".zfill(20))
    before = set(drive.names.files)
    queues = queues_on(disk)
    assert queues.load() == []
    assert [queue.name for queue in queues] == [("T", 1)]
    (line,) = caplog.messages
    assert line.startswith("folders are ignored, their names are not those of queues: count=2 ")
    assert repr(str(folder(topic, name))) in line
    assert {path for path in before if path.parent != folder("T", 1)} <= set(drive.names.files)


def test_damaged_queues_are_returned_and_all_others_loaded(
    drive: Drive, disk: MountedDisk, caplog: pytest.LogCaptureFixture
) -> None:
    made = queues_on(disk)
    for queue_id in range(4):
        fill(made.queue("T", queue_id), 25)
    made.close()
    drive.lost_from[folder("T", 0) / "0".zfill(20)] = 33
    drive.remove(folder("T", 1) / "200".zfill(20))
    drive.unreadable.add(folder("T", 2) / "400".zfill(20))
    queues = queues_on(disk)
    damaged = queues.load()
    assert [queue.queue_id for queue in damaged] == [0, 1, 2]
    assert all(queues.queue("T", queue.queue_id) is queue for queue in damaged)
    assert queues.queue("T", 3).max_offset == 25
    told = [
        f"topic=T queue={number} reason=" in line for number, line in enumerate(caplog.messages)
    ]
    assert told == [True] * 3


def test_files_that_are_all_of_another_size_end_the_start(disk: MountedDisk) -> None:
    add_file(disk, folder("T", 0) / "0".zfill(20), 400)
    told = "has 400 bytes, .*; set mappedFileSizeConsumeQueue=400 or restore the file$"
    with pytest.raises(StoreError, match=told):
        queues_on(disk).load()


def test_a_strange_file_in_a_queues_folder_ends_the_start(disk: MountedDisk) -> None:
    add_file(disk, folder("T", 0) / "notes")
    with pytest.raises(StoreError, match="notes does not belong"):
        queues_on(disk).load()


class NothingWritten(random.Random):
    """The chance of a drive that writes no page when a sync fails."""

    def random(self) -> float:
        return 0.5


def test_cached_pages_of_entries_and_units_are_forgotten() -> None:
    drive = Drive(NothingWritten())
    disk = drive.mount()
    queues = queues_on(disk, 4096)
    queue = queues.queue("T", 0)
    fill(queue, 5)
    drive.failure = errno.EIO
    for path in drive.names.files:
        with pytest.raises(OSError, match="Input/output"):
            disk.open(path, drive.names.files[path].size).sync(0, 200)
    drive.failure = None
    lost = [path for path, file in drive.names.files.items() if file.cached != file.durable]
    queues.close()
    queues.forget_cached()
    assert len(lost) == 2
    assert not [path for path, file in drive.names.files.items() if file.cached != file.durable]


# which queue


def test_a_queue_is_made_once_and_has_no_file_before_its_first_entry(
    drive: Drive, queues: Queues
) -> None:
    assert queues.known("T", 0) is None
    queue = queues.queue("T", 0)
    assert queues.queue("T", 0) is queues.known("T", 0) is queues.of_record("T", 0) is queue
    assert (queue.name, queues.known("T", 1), queues.known("U", 0)) == (("T", 0), None, None)
    assert (queues.used, queues.entry_count, queues.log_end) == (0, 0, 0)
    assert not drive.names.files


def test_queues_have_extension_units_if_these_have_a_file_size(disk: MountedDisk) -> None:
    for size, expected in (None, ConsumeQueue), (4096, ExtendedQueue):
        queues = queues_on(disk, size)
        assert type(queues.queue("T", 0)) is type(queues.fresh(queues.queue("T", 0))) is expected


@pytest.mark.parametrize(
    ("topic", "queue_id", "expected"),
    [("T", 0, True), ("T", -1, False), ("", 0, False), ("../T", 0, False), ("a/b", 0, False)],
)
def test_a_record_makes_a_queue_only_if_a_folder_can_have_its_name(
    queues: Queues, topic: str, queue_id: int, expected: bool
) -> None:
    assert (queues.of_record(topic, queue_id) is not None) == expected
    assert (queues.known(topic, queue_id) is not None) == expected


def test_a_fresh_queue_is_none_of_the_store(queues: Queues) -> None:
    queue = queues.queue("T", 0)
    fill(queue, 3)
    fresh = queues.fresh(queue)
    assert (fresh.name, fresh.max_offset) == (queue.name, 0)
    assert (queues.queue("T", 0), list(queues)) == (queue, [queue])


def test_queues_can_come_and_go_while_they_are_passed_through(queues: Queues) -> None:
    for topic in "T", "U":
        queues.queue(topic, 0)
    for count, each in enumerate((queues.present(), queues.appended())):
        next(each)
        queues.delete_topic("U")
        queues.queue(f"new{count}", 0)
        queues.queue("T", 1 + count)
        assert len(list(each)) <= 2 + count
    assert {queue.name for queue in queues} == {
        ("T", 0), ("T", 1), ("T", 2), ("new0", 0), ("new1", 0),
    }  # fmt: skip


# counts


def test_queues_of_a_topic_share_a_count_and_delay_levels_do_not(queues: Queues) -> None:
    for topic in "T", SCHEDULE_TOPIC:
        for queue_id in range(2):
            queues.queue(topic, queue_id).appended.messages += 1 + queue_id
    counted = [(topic, each.messages) for topic, each in queues.appended()]
    assert counted == [("T", 3), (SCHEDULE_TOPIC, 1), (SCHEDULE_TOPIC, 2)]


# deleting a topic


def test_a_dropped_topic_leaves_neither_file_nor_folder_and_its_count_stays(
    drive: Drive, queues: Queues
) -> None:
    for topic in "T", "U":
        for queue_id in range(2):
            queue = queues.queue(topic, queue_id)
            fill(queue, 25)
            queue.appended.messages += 25
            queue.appended.size += 2500
    queues.delete_topic("T")
    assert (queues.topics, queues.of_topic("T"), len(queues.of_topic("U"))) == (["U"], [], 2)
    left = {*drive.names.files, *drive.names.folders}
    assert not [path for path in left if "T" in path.parts]
    deleted = queues.appended_to_deleted
    assert (deleted.messages, deleted.size) == (50, 5000)
    queues.delete_topic("T")
    queues.delete_topic("never")
    assert (deleted.messages, queues.queue("T", 0).max_offset) == (50, 0)


def test_a_topic_that_cannot_be_dropped_stays_until_it_can(drive: Drive, queues: Queues) -> None:
    for queue_id in range(2):
        fill(queues.queue("T", queue_id), 25)
    queues.queue("T", 0).appended.messages = 50
    kept = folder("T", 1) / "200".zfill(20)
    drive.undeletable[kept] = 0
    for _ in range(2):
        with pytest.raises(OSError, match="not permitted"):
            queues.delete_topic("T")
    assert [queue.max_offset for queue in queues.of_topic("T")] == [0, 25]
    assert queues.appended_to_deleted.messages == 0
    drive.undeletable.clear()
    queues.delete_topic("T")
    assert (queues.topics, queues.appended_to_deleted.messages) == ([], 50)


def test_closed_queues_have_no_open_file(disk: MountedDisk, queues: Queues) -> None:
    for queue_id in range(3):
        fill(queues.queue("T", queue_id), 25)
    queues.close()
    assert len(disk.descriptors) == 0


def test_a_closed_queue_that_was_being_rebuilt_has_no_open_file(
    disk: MountedDisk, queues: Queues
) -> None:
    queue = queues.queue("T", 0)
    fill(queue, 2 * PER_FILE)
    queue.lose()
    fresh = queues.fresh(queue)
    queue.replace_lost(fresh)
    fill(fresh, PER_FILE)
    assert len(disk.descriptors) > 0
    queues.close()
    assert len(disk.descriptors) == 0


def test_a_queue_without_room_for_its_first_entry_counts_as_unused(
    drive: Drive, queues: Queues
) -> None:
    queue = queues.queue("T", 0)
    drive.failure = errno.ENOSPC
    with pytest.raises(OSError, match="No space") as refused:
        fill(queue, 1)
    assert not isinstance(refused.value, UnreadableFile)
    assert (queues.used, len(queues)) == (0, 1)
