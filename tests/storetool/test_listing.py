"""Topics and queues as they are listed, and a store in numbers."""

from __future__ import annotations

from pathlib import Path

from roquet.common.steps import finished
from roquet.storetool.listing import QueueListing, list_queues, stat
from tests.storetool.stores import LOG_FILE, QUEUE_FILE, START_MS, Broker, files_of, filled


def test_a_queue_is_listed_with_offsets_sizes_and_times(tmp_path: Path) -> None:
    filled(tmp_path, 25)

    assert list(list_queues(files_of(tmp_path))) == [
        QueueListing("T", 0, 0, 13, 2 * QUEUE_FILE, START_MS + 1, START_MS + 25),
        QueueListing("T", 1, 0, 12, 2 * QUEUE_FILE, START_MS + 2, START_MS + 24),
    ]


def test_a_queue_begins_where_the_log_does(tmp_path: Path) -> None:
    broker = Broker(tmp_path)
    broker.fill(60, queues=1)
    broker.store.make_checkpoint()
    broker.store.log.synced(broker.store.log.end)
    for delete in finished(broker.store.old_files.forget_oldest(1)).log:
        delete()
    expected = broker.store.min_offset("T", 0)
    broker.stop()

    (listed,) = list_queues(files_of(tmp_path))

    assert 0 < expected == listed.min_offset
    assert listed.messages == 60 - expected


def test_topics_are_chosen(tmp_path: Path) -> None:
    broker = Broker(tmp_path)
    broker.fill(4, "A")
    broker.fill(4, "B")
    broker.stop()

    assert {each.topic for each in list_queues(files_of(tmp_path), frozenset("B"))} == {"B"}


def test_a_stopped_store_in_numbers(tmp_path: Path) -> None:
    places = filled(tmp_path, 60)

    found = stat(files_of(tmp_path))

    assert (found.log_files, found.log_file_size, found.log_start) == (2, LOG_FILE, 0)
    assert places[-1] < found.log_end < 2 * LOG_FILE
    assert (found.topics, found.queues, found.queue_files, found.messages) == (1, 2, 6, 60)
    assert (found.keys, found.queue_file_size) == (120, QUEUE_FILE)
    assert (found.oldest_ms, found.newest_ms) == (START_MS + 1, START_MS + 60)
    assert (found.is_locked, found.has_abort) == (False, False)
    assert found.log_ms == START_MS + 60
    assert found.is_mark_valid
    assert found.mark is not None
    assert found.mark.position == found.log_end
    assert 0 < found.disk_used < 1 << 20


def test_a_crashed_store_in_numbers(tmp_path: Path) -> None:
    broker = Broker(tmp_path)
    broker.fill(3)
    broker.die()

    found = stat(files_of(tmp_path))

    assert (found.is_locked, found.has_abort, found.mark) == (False, True, None)
    assert found.newest_ms == START_MS + 3


def test_an_empty_store_in_numbers(tmp_path: Path) -> None:
    Broker(tmp_path).stop()

    found = stat(files_of(tmp_path))

    assert (found.log_files, found.log_end, found.messages, found.newest_ms) == (0, 0, 0, 0)
