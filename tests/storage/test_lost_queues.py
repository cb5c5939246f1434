"""A consume queue whose files somebody cut or deleted is made anew from the log; all others go on
meanwhile.
"""

from __future__ import annotations

import errno
import logging
import random
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from roquet.common.steps import finished
from roquet.errors import StoreError, UnreadableFile
from roquet.protocol.filters.tags import TagFilter
from roquet.storage.lost_queues import FILE, LostQueues
from roquet.storage.new_record import NewRecord
from roquet.storage.store import Store
from tests.simulation.disk import Drive
from tests.storage.couples import (
    CONFIG,
    LOG_FILE,
    PER_FILE,
    Couple,
    numbers,
    opened,
    put,
    queue_files,
)
from tests.storage.deletions import delete_topic
from tests.storage.records import bodies_in

LOST = Path("/s") / FILE


def rebuild(store: Store) -> None:
    while store.rebuild_queues():
        pass


@pytest.fixture(params=[None, 4096])
def couple(request: pytest.FixtureRequest) -> Couple:
    """With extension units, and without."""
    couple = Couple(replace(CONFIG, ext_file_size=request.param))
    couple.put(50)
    couple.replicate()
    return couple


@pytest.mark.parametrize("number", [0, -1])
def test_a_slave_makes_a_queue_anew_that_was_cut_and_dispatches_all_others(
    couple: Couple, number: int, caplog: pytest.LogCaptureFixture
) -> None:
    copy = couple.copy
    couple.drive.lost_from[queue_files(couple.drive, "T")[number]] = 0
    with pytest.raises(UnreadableFile):
        bodies_in(copy, "T")
    couple.put(70)
    couple.replicate()
    assert (copy.dispatch.lag, copy.dispatch.lag_reason) == (0, "")
    assert numbers(copy, "other") == list(range(120))
    assert "consume queues being rebuilt from the log: 1" in copy.remark
    assert copy.rebuild_queues()
    with pytest.raises(
        UnreadableFile, match=r"queue 0 of T cannot be read at offset 3: .* rebuilt from the log"
    ):
        copy.fetch("T", 0, 3, 1, TagFilter())
    couple.put(30)
    couple.replicate()
    rebuild(copy)
    couple.assert_copied()
    couple.put(30)
    couple.replicate()
    couple.assert_copied()
    assert copy.remark == ""
    told = [record.getMessage().partition(" topic")[0] for record in caplog.records]
    assert told == [
        "consume queue has lost files, it will be rebuilt from the log:",
        "consume queue has been rebuilt:",
    ]


def test_pulls_that_wait_for_a_queue_are_woken_when_it_is_whole_again(couple: Couple) -> None:
    queue = couple.copy.queue("T", 0)
    couple.watched.add(queue)
    couple.drive.lost_from[queue_files(couple.drive, "T")[-1]] = 0
    couple.put(1)
    couple.replicate()
    couple.copy.writer.take_grown()
    rebuild(couple.copy)
    assert list(couple.copy.writer.take_grown()) == [queue]


def test_a_slave_that_finds_the_cut_when_it_dispatches_goes_on(couple: Couple) -> None:
    couple.drive.lost_from[queue_files(couple.drive, "T")[-1]] = 0
    for _ in range(3):
        couple.put(40)
        couple.replicate()
        assert numbers(couple.copy, "other") == list(range(couple.count))
    rebuild(couple.copy)
    couple.assert_copied()


def test_a_master_refuses_a_queue_until_it_is_made_anew() -> None:
    drive = Drive(random.Random(1))
    store = opened(drive)
    for number in range(50):
        put(store, number, "T")
    drive.lost_from[queue_files(drive, "T")[-1]] = 0
    for _ in range(2):
        with pytest.raises(UnreadableFile):
            put(store, 50, "T")
        assert store.max_offset("T", 0) == 50, (
            "who asks for the end gets the one that the queue has"
        )
        put(store, 0, "other")
    rebuild(store)
    for number in range(50, 90):
        put(store, number, "T")
    assert numbers(store, "T") == list(range(90))


@pytest.mark.parametrize("end", ["unmount", "crash", "close"])
@pytest.mark.parametrize("steps", range(5))
def test_wherever_a_process_ends_meanwhile_the_next_one_has_all(
    couple: Couple, steps: int, end: str
) -> None:
    copy, drive = couple.copy, couple.drive
    copy.make_checkpoint()
    drive.lost_from[queue_files(drive, "T")[-1]] = 0
    couple.put(10)
    couple.replicate()
    for _ in range(steps):
        copy.rebuild_queues()
    copy.make_checkpoint()
    if end == "close":
        copy.close()
    drive.crash() if end == "crash" else drive.unmount()
    drive.lost_from.clear()
    couple.copy = opened(drive, copy.config)
    couple.assert_copied()
    couple.copy.make_checkpoint()
    rebuild(couple.copy)
    assert LOST not in drive.names.files


def test_a_queue_is_noted_as_lost_until_its_entries_are_durable(couple: Couple) -> None:
    drive, copy = couple.drive, couple.copy
    drive.lost_from[queue_files(drive, "T")[-1]] = 0
    couple.put(10)
    couple.replicate()
    assert bytes(drive.names.files[LOST].durable) == b"T/0=50\n"
    rebuild(copy)
    assert LOST in drive.names.files
    copy.make_checkpoint()
    rebuild(copy)
    assert LOST not in drive.names.files


def without_records(drive: Drive) -> Store:
    """A store whose queue T had 50 messages, all deleted from the log."""
    store = opened(drive)
    for number in range(50):
        put(store, number, "T")
    while store.log.end < 3 * LOG_FILE:
        put(store, 0, "other")
    store.make_checkpoint()
    store.log.synced(store.log.end)
    for deletion in finished(store.old_files.forget_oldest(2)).log:
        deletion()
    assert store.log.start > 0
    return store


def rebuilt_without_records(drive: Drive) -> Store:
    """A store whose queue T had 50 messages, all deleted from the log, and was rebuilt."""
    store = without_records(drive)
    drive.lost_from[queue_files(drive, "T")[-1]] = 0
    with pytest.raises(UnreadableFile):
        put(store, 50, "T")
    rebuild(store)
    return store


def test_a_queue_whose_records_are_gone_from_the_log_keeps_its_end() -> None:
    drive = Drive(random.Random(1))
    store = rebuilt_without_records(drive)
    assert (store.min_offset("T", 0), store.max_offset("T", 0)) == (50, 50)
    for _ in range(2):
        store.make_checkpoint()
        drive.unmount()
        store = opened(drive)
        assert store.max_offset("T", 0) == 50
    put(store, 50, "T")
    assert numbers(store, "T") == [50]


@pytest.mark.parametrize("is_truncated", [True, False])
def test_a_queue_that_a_start_cannot_read_and_that_has_no_records_goes_on_in_its_next_file(
    is_truncated: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """Only the names of its files say where it ended; a file here has room for 20 entries."""
    drive = Drive(random.Random(1))
    without_records(drive).close()
    drive.unmount()
    if is_truncated:
        drive.lost_from[queue_files(drive, "T")[-1]] = 100
    else:
        drive.unreadable.add(queue_files(drive, "T")[-1])
    for _ in range(2):
        store = opened(drive)
        drive.lost_from.clear()
        drive.unreadable.clear()
        assert store.max_offset("T", 0) == 0
        store.rebuild.go_on_in_next_files()
        assert (store.min_offset("T", 0), store.max_offset("T", 0)) == (60, 60)
        drive.crash()
        (line,) = [each.message for each in caplog.records if "next file" in each.message]
        assert line.endswith("topic=T queue=0 max_offset=60")
        caplog.clear()
    store = opened(drive)
    store.rebuild.go_on_in_next_files()
    rebuild(store)
    assert LOST in drive.names.files
    drive.refuse("create", errno.ENOSPC)
    with pytest.raises(OSError, match="No space"):
        put(store, 50, "T")
    put(store, 50, "T")
    assert (store.max_offset("T", 0), numbers(store, "T")) == (61, [50])
    store.make_checkpoint()
    rebuild(store)
    assert LOST not in drive.names.files


def test_a_slave_that_cannot_read_a_queue_without_records_takes_the_offsets_of_its_master() -> None:
    master = without_records(Drive(random.Random(1)))
    drive = Drive(random.Random(2))
    without_records(drive).close()
    drive.unmount()
    drive.unreadable.add(queue_files(drive, "T")[-1])
    slave = opened(drive)
    drive.unreadable.clear()
    for number in 50, 51:
        put(master, number, "T")
        slave.log.replicate(slave.log.end, master.log.read(slave.log.end, LOG_FILE))
        slave.replicated()
    assert (slave.min_offset("T", 0), slave.max_offset("T", 0)) == (50, 52)
    assert numbers(slave, "T") == [50, 51]
    rebuild(slave)
    assert LOST in drive.names.files
    slave.make_checkpoint()
    rebuild(slave)
    assert LOST not in drive.names.files


def test_a_queue_that_is_lost_again_before_it_is_durable_keeps_its_new_end() -> None:
    """A message must not get the offset of one that the log had and retention deleted."""
    drive = Drive(random.Random(1))
    store = opened(drive)
    for end in 50, 70:
        rebuild(store)
        while store.max_offset("T", 0) < end:
            put(store, 0, "T")
        drive.lost_from[queue_files(drive, "T")[-1]] = 0
        with pytest.raises(UnreadableFile):
            put(store, 0, "T")
    while store.log.end < 3 * LOG_FILE:
        put(store, 0, "other")
    store.make_checkpoint()
    store.log.synced(store.log.end)
    for deletion in finished(store.old_files.forget_oldest(2)).log:
        deletion()
    drive.unmount()

    store = opened(drive)

    assert store.max_offset("T", 0) == 70


@pytest.mark.parametrize("count", [1, 30])
def test_a_queue_that_was_rebuilt_with_blanks_takes_records_that_are_dispatched(count: int) -> None:
    """Those of commits, retries and due delayed messages, and all of a slave's."""
    store = rebuilt_without_records(Drive(random.Random(1)))
    queue = store.queue("T", 0)
    for number in range(50, 50 + count):
        fields = NewRecord(queue, b"%d" % number, b"", 0, 0, 0, bytes(8), bytes(8), 0, 0)
        store.writer.append_records([fields])
    assert (queue.max_offset, numbers(store, "T")) == (50 + count, list(range(50, 50 + count)))


def test_where_what_is_left_cannot_be_deleted_it_is_tried_again(
    couple: Couple, caplog: pytest.LogCaptureFixture
) -> None:
    drive, copy = couple.drive, couple.copy
    path = queue_files(drive, "T")[-1]
    drive.lost_from[path] = 0
    drive.undeletable[path] = 0
    couple.put(10)
    couple.replicate()
    for _ in range(5):
        assert not copy.rebuild_queues()
    assert numbers(copy, "other") == list(range(60))
    assert len([line for line in caplog.messages if "is held up" in line]) == 1
    del drive.undeletable[path]
    rebuild(copy)
    couple.assert_copied()


def test_a_file_that_the_drive_does_not_give_is_not_deleted(couple: Couple) -> None:
    """It may come back; those that were cut do not."""
    path = queue_files(couple.drive, "T")[0]
    couple.drive.unreadable.add(path)
    with pytest.raises(UnreadableFile):
        bodies_in(couple.copy, "T")
    rebuild(couple.copy)
    assert path in couple.drive.names.files
    couple.drive.unreadable.clear()
    couple.assert_copied()


@pytest.fixture
def stopped() -> Drive:
    drive = Drive(random.Random(3))
    store = opened(drive)
    for number in range(70):
        put(store, number, "T")
        put(store, number, "other")
    store.close()
    drive.unmount()
    return drive


def cut(drive: Drive, path: Path) -> None:
    drive.names.files[path] = drive.names.files[path].resized(33)


def vanish(drive: Drive, path: Path) -> None:
    del drive.names.files[path]


def unreadable(drive: Drive, path: Path) -> None:
    drive.unreadable.add(path)


@pytest.mark.parametrize("is_clean", [True, False])
@pytest.mark.parametrize(
    ("number", "damage"),
    [
        (0, cut),
        (0, unreadable),
        (0, vanish),
        (1, cut),
        (1, vanish),
        (-1, cut),
        (-1, vanish),
        (-1, unreadable),
    ],
)
def test_a_start_makes_a_damaged_queue_anew(
    stopped: Drive,
    number: int,
    damage: Callable[[Drive, Path], None],
    caplog: pytest.LogCaptureFixture,
    *,
    is_clean: bool,
) -> None:
    if not is_clean:
        stopped.mount().replace(Path("/s/abort"), b"")
        stopped.unmount()
    path = queue_files(stopped, "T")[number]
    damage(stopped, path)
    caplog.set_level(logging.WARNING)
    store = opened(stopped)
    stopped.unreadable.clear()
    assert numbers(store, "T") == numbers(store, "other") == list(range(70))
    told = [line for line in caplog.messages if line.startswith("consume queue")]
    assert len(told) == 1


@pytest.mark.parametrize("vanished", [1, 2, 3])
def test_a_queue_without_its_first_files_is_made_anew(stopped: Drive, vanished: int) -> None:
    for path in queue_files(stopped, "T")[:vanished]:
        vanish(stopped, path)
    store = opened(stopped)
    assert numbers(store, "T") == list(range(70))


def cleaned(drive: Drive, fillers: int) -> Store:
    """A store whose first files of the log are gone, and queue files with them, by retention."""
    store = opened(drive)
    for number in range(50):
        put(store, number, "T")
    for number in range(fillers):
        put(store, number, "other")
    for number in range(50, 130):
        put(store, 0, "third")
        put(store, number, "T")
    while len(store.log.file_starts) < 5:
        put(store, 0, "third")
    store.make_checkpoint()
    store.log.synced(store.log.end)
    expired = finished(store.old_files.forget_oldest(1))
    for deletion in (*expired.log, *expired.queues):
        deletion()
    return store


@pytest.mark.parametrize("fillers", range(40))
def test_a_queue_whose_first_files_are_gone_with_the_log_is_as_it_should_be(
    fillers: int, caplog: pytest.LogCaptureFixture
) -> None:
    """Also where the queue's first file begins with the first record of it that the log still
    has.
    """
    drive = Drive(random.Random(1))
    store = cleaned(drive, fillers)
    kept = numbers(store, "T")
    assert queue_files(drive, "T")[0].name != f"{0:020d}"
    store.close()
    drive.unmount()
    caplog.clear()
    caplog.set_level(logging.WARNING)
    store = opened(drive)
    assert numbers(store, "T") == kept
    assert caplog.messages == []
    drive.unmount()
    vanish(drive, queue_files(drive, "third")[0])
    assert numbers(opened(drive), "T") == kept
    (line,) = caplog.messages
    assert "topic=third queue=0 reason=its first file is missing" in line


def test_a_queue_that_has_lost_more_files_than_the_log_is_made_anew() -> None:
    drive = Drive(random.Random(1))
    store = cleaned(drive, 0)
    kept = numbers(store, "T")
    store.close()
    drive.unmount()
    vanish(drive, queue_files(drive, "T")[0])
    store = opened(drive)
    assert numbers(store, "T") == kept


@pytest.mark.parametrize("failure", ["protected", "full"])
def test_a_queue_that_cannot_be_made_anew_goes_on_without_its_first_messages(
    stopped: Drive, failure: str, caplog: pytest.LogCaptureFixture
) -> None:
    vanish(stopped, queue_files(stopped, "T")[0])
    if failure == "protected":
        stopped.undeletable[queue_files(stopped, "T")[0]] = 0
    else:
        stopped.refuse("rename", errno.ENOSPC)
    store = opened(stopped)
    assert numbers(store, "T") == list(range(PER_FILE, 70))
    assert [
        line
        for line in caplog.messages
        if line.startswith("consume queue lacks its first messages")
    ]
    put(store, 70, "T")
    stopped.undeletable.clear()
    stopped.unmount()
    assert numbers(opened(stopped), "T") == list(range(71))


def test_a_first_file_that_vanishes_from_a_running_broker_is_made_anew_by_the_next_start() -> None:
    """Its bytes are there for as long as it is open, and a start opens the first file of each
    queue.
    """
    drive = Drive(random.Random(1))
    store = opened(drive)
    for number in range(50):
        put(store, number, "T")
    for _ in range(2):
        drive.unmount()
        store = opened(drive)
        vanish(drive, queue_files(drive, "T")[0])
        assert numbers(store, "T") == list(range(50))


def test_another_size_in_the_configuration_ends_the_start(stopped: Drive) -> None:
    before = set(stopped.names.files)
    store = Store(
        replace(CONFIG, consume_queue_file_size=20 * PER_FILE // 2), lambda: 1, stopped.mount()
    )
    told = "has 400 bytes, the configured file size is 200; set mappedFileSizeConsumeQueue=400 or restore the file$"
    with pytest.raises(StoreError, match=told):
        store.open()
    assert before <= set(stopped.names.files)


@pytest.mark.parametrize("failure", [errno.ENOSPC, errno.EROFS])
def test_what_cannot_be_noted_is_not_begun(couple: Couple, failure: int) -> None:
    drive, copy = couple.drive, couple.copy
    path = queue_files(drive, "T")[-1]
    drive.lost_from[path] = 0
    drive.failure = failure
    with pytest.raises(UnreadableFile):
        bodies_in(copy, "T")
    rebuild(copy)
    assert path in drive.names.files
    drive.failure = None
    couple.put(1)
    couple.replicate()
    rebuild(copy)
    couple.assert_copied()


def test_a_drive_that_does_not_say_what_is_there_leaves_the_question_to_the_next_reader(
    couple: Couple,
) -> None:
    """A bare error of the drive would end more than the pull that met it."""
    drive, copy = couple.drive, couple.copy
    drive.lost_from[queue_files(drive, "T")[0]] = 0
    drive.refuse("read", errno.EIO)
    with pytest.raises(UnreadableFile):
        bodies_in(copy, "T")
    assert copy.remark == ""
    with pytest.raises(UnreadableFile):
        bodies_in(copy, "T")
    rebuild(copy)
    couple.assert_copied()


def test_names_that_are_none_are_left_out(caplog: pytest.LogCaptureFixture) -> None:
    disk = Drive(random.Random(1)).mount()
    disk.replace(
        LOST,
        b"T/0=7\n\xff\nno queue\n/3=1\nT/-1=1\nT/x=1\nT/2\nT/3=\nT/4=-1\nT/5=1<=\n"
        b"%RETRY%g/2=9<=20\n",
    )
    lost = LostQueues(disk, LOST.parent)
    lost.load()
    assert lost.ends == {("T", 0): (7, 0), ("%RETRY%g", 2): (9, 20)}
    (line,) = [record.getMessage() for record in caplog.records]
    assert "they name no queue: path=" in line
    assert "lostqueues lines=9;" in line
    caplog.clear()

    disk.replace(LOST, b"T/0=7\n")
    lost.load()
    disk.delete(LOST)
    lost.load()
    assert not caplog.records


def lose(couple: Couple, topic: str = "T", *, steps: int = 0) -> None:
    """Begin to rebuild a queue of the copy, and take that many steps."""
    couple.drive.lost_from[queue_files(couple.drive, topic)[-1]] = 0
    with pytest.raises(UnreadableFile):
        bodies_in(couple.copy, topic)
    for _ in range(steps):
        assert couple.copy.rebuild_queues()


@pytest.mark.parametrize("steps", range(3))
def test_a_topic_that_is_created_again_while_its_queue_is_rebuilt_has_only_new_messages(
    couple: Couple, steps: int
) -> None:
    copy, drive = couple.copy, couple.drive
    lose(couple, steps=steps)
    delete_topic(copy, "T")
    assert not queue_files(drive, "T")
    for number in range(70):
        put(copy, 1000 + number, "T")
        copy.rebuild_queues()
    rebuild(copy)
    assert numbers(copy, "T") == list(range(1000, 1070))
    assert numbers(copy, "other") == list(range(50))
    copy.make_checkpoint()
    rebuild(copy)
    assert LOST not in drive.names.files
    drive.unmount()
    assert numbers(opened(drive, copy.config), "T") == list(range(1000, 1070))


@pytest.mark.parametrize("steps", range(2))
def test_a_topic_that_is_deleted_while_its_queue_is_rebuilt_does_not_come_back(
    couple: Couple, steps: int
) -> None:
    copy, drive = couple.copy, couple.drive
    lose(couple, steps=steps)
    delete_topic(copy, "T")
    rebuild(copy)
    drive.unmount()
    store = opened(drive, copy.config)
    assert store.was_crashed
    assert (store.max_offset("T", 0), queue_files(drive, "T")) == (0, [])
    assert numbers(store, "other") == list(range(50))


def test_a_queue_that_cannot_be_deleted_while_it_is_rebuilt_stays_lost_until_it_is_complete(
    couple: Couple,
) -> None:
    copy, drive = couple.copy, couple.drive
    lose(couple, steps=1)
    kept = queue_files(drive, "T")[-1]
    drive.undeletable[kept] = 0
    with pytest.raises(OSError, match="not permitted"):
        delete_topic(copy, "T")
    assert "consume queues being rebuilt from the log: 1" in copy.remark
    with pytest.raises(UnreadableFile):
        put(copy, 50, "T")
    rebuild(copy)
    assert numbers(copy, "T") == list(range(PER_FILE * (int(kept.name) // (20 * PER_FILE)), 50))
    drive.undeletable.clear()
    delete_topic(copy, "T")
    put(copy, 50, "T")
    assert (numbers(copy, "T"), copy.max_offset("T", 0)) == ([50], 1)


def delete_queue(store: Store, topic: str) -> None:
    """Delete the queue of a topic as retention does, which does not forget it."""
    store.make_checkpoint([store.queue(topic, 0)])
    store.queue(topic, 0).delete_oldest_first()


@pytest.mark.parametrize("delete", [delete_queue, delete_topic])
@pytest.mark.parametrize("steps", range(3))
def test_a_queue_that_is_deleted_and_lost_again_is_rebuilt_with_its_new_messages(
    couple: Couple, steps: int, delete: Callable[[Store, str], None]
) -> None:
    """The first rebuild may still run when the second one is wanted."""
    copy, drive = couple.copy, couple.drive
    lose(couple, steps=steps)
    delete(copy, "T")
    for number in range(7):
        put(copy, number, "T")
    lose(couple)
    rebuild(copy)
    assert numbers(copy, "T") == list(range(7))
    assert LOST in drive.names.files, "the new entries are not durable yet"
    drive.unmount()
    assert numbers(opened(drive, copy.config), "T") == list(range(7))


def test_the_mark_of_a_checkpoint_without_a_lost_queue_counts_all_others(couple: Couple) -> None:
    copy = couple.copy
    lose(couple)
    copy.make_checkpoint([copy.queue("T", 0)])
    mark = copy.checkpoint.mark
    assert mark is not None
    assert (mark.queue_count, mark.entry_count) == (1, copy.max_offset("other", 0))


def test_a_rebuild_steps_over_a_damaged_size_that_leads_beyond_the_logs_end() -> None:
    """The records after it were dispatched, so no rest of it will come."""
    drive = Drive(random.Random(1))
    store = opened(drive)
    places = [put(store, number, "T") for number in range(30)]
    drive.unmount()
    log_file = drive.names.files[Path("/s/commitlog") / f"{0:020d}"]
    log_file.cached[places[10] : places[10] + 4] = (LOG_FILE - 1000).to_bytes(4, "big")
    store = opened(drive)
    assert places[10] + LOG_FILE - 1000 > store.log.end
    kept = [number for number in range(30) if number != 10]
    assert numbers(store, "T") == kept
    drive.lost_from[queue_files(drive, "T")[-1]] = 0
    with pytest.raises(UnreadableFile):
        bodies_in(store, "T")
    rebuild(store)
    assert numbers(store, "T") == kept
