"""A checkpoint that is gathered in steps holds for all that was stored when it began."""

from __future__ import annotations

import random
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from roquet.common.steps import finished
from roquet.protocol.records.record import decode
from roquet.storage import checkpoint_work
from roquet.storage.store import Store
from tests.simulation.disk import Drive
from tests.storage import couples
from tests.storage.records import bodies_in, found_by_key
from tests.storage.small_stores import Clock, opened, put

AT_ONCE: Final = 8
QUEUES: Final = 3 * AT_ONCE
CHANGES: Final = {"commit_log_file_size": 1 << 20, "index_slots": 2000, "index_entries": 8000}


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def store(tmp_path: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch) -> Iterator[Store]:
    """One message in each of some queues, which are gathered in three steps."""
    monkeypatch.setattr(checkpoint_work, "_QUEUES_AT_ONCE", AT_ONCE)
    store = opened(tmp_path / "store", clock, **CHANGES)
    for queue_id in range(QUEUES):
        put(store, b"%d" % queue_id, queue_id=queue_id, key=f"key{queue_id}")
    yield store
    store.abandon()


def again(store: Store, clock: Clock, tmp_path: Path) -> Store:
    """The store of a copy of the files, as after a crash."""
    shutil.copytree(store.config.root, tmp_path / "copy")
    return opened(tmp_path / "copy", clock, **CHANGES)


def test_messages_are_stored_between_its_steps_and_come_after_its_mark(
    store: Store, clock: Clock, tmp_path: Path
) -> None:
    begins_at = store.dispatch.position
    work = store.checkpoint_steps()
    next(work)
    for queue_id in (0, 1, QUEUES - 1, QUEUES):
        put(store, b"later", queue_id=queue_id, key="later")
    sync, save = finished(work)
    sync()
    save()

    mark = store.checkpoint.mark
    assert mark is not None
    assert mark.position == begins_at
    last = store.log.record_at(mark.last_at)
    assert last is not None
    assert (decode(last).body, mark.last_ms) == (b"%d" % (QUEUES - 1), decode(last).store_ms)
    copy = again(store, clock, tmp_path)
    assert copy.checkpoint.mark == mark
    assert bodies_in(copy, "T", 0) == [b"0", b"later"]
    assert bodies_in(copy, "T", QUEUES) == [b"later"]
    assert len(found_by_key(copy, "T", "later", 10, 0, 1 << 60).records) == 4
    copy.abandon()


def test_a_blank_is_not_the_newest_record_of_a_mark(store: Store) -> None:
    queue = store.queue("T", QUEUES - 3)
    queue.make_room(1)
    queue.put_blank(queue.log_end)
    work = store.checkpoint_steps()
    next(work)
    put(store, b"later", queue_id=QUEUES - 3)
    sync, save = finished(work)
    sync()
    save()
    assert store.checkpoint.mark is not None
    last = store.log.record_at(store.checkpoint.mark.last_at)
    assert last is not None
    assert decode(last).body == b"%d" % (QUEUES - 1)


def test_all_queues_that_grow_meanwhile_are_looked_through_for_their_last_entry_before_the_mark(
    store: Store, clock: Clock, tmp_path: Path
) -> None:
    begins_at = store.dispatch.position
    work = store.checkpoint_steps()
    next(work)
    for queue_id in range(QUEUES):
        for _ in range(25):
            put(store, b"later", queue_id=queue_id)
    sync, save = finished(work)
    sync()
    save()

    mark = store.checkpoint.mark
    assert mark is not None
    last = store.log.record_at(mark.last_at)
    assert last is not None
    assert decode(last).body == b"%d" % (QUEUES - 1)
    assert (mark.position, mark.queue_count) == (begins_at, QUEUES)
    assert mark.last_at + len(last) == begins_at
    copy = again(store, clock, tmp_path)
    assert copy.checkpoint.mark == mark
    assert bodies_in(copy, "T", QUEUES - 1) == [b"%d" % (QUEUES - 1), *[b"later"] * 25]
    copy.abandon()


def test_many_queues_take_many_steps(store: Store) -> None:
    assert sum(1 for _ in store.checkpoint_steps()) >= QUEUES // AT_ONCE


def test_a_mark_does_not_move_while_the_newest_record_cannot_be_found() -> None:
    """It would name an older record. A queue with older records only is not needed for it."""
    drive = Drive(random.Random(1))
    store = couples.opened(drive)
    for topic in "old", "new":
        couples.put(store, 1, topic)
    (old,), (new,) = (couples.queue_files(drive, topic) for topic in ("old", "new"))
    store.make_checkpoint()
    before = store.checkpoint.mark
    couples.put(store, 2, "new")
    drive.unreadable.add(new)
    store.make_checkpoint()
    assert store.checkpoint.mark == before
    drive.unreadable = {old}
    store.make_checkpoint()
    mark = store.checkpoint.mark
    assert mark is not None
    assert (mark.position, mark.entry_count) == (store.log.end, 3)
