"""Records that are stored as they are said, and those that are stored again in other queues."""

from __future__ import annotations

import errno
import random
import shutil
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from roquet.errors import DriveSlow
from roquet.protocol.records.block import RecordBlock
from roquet.protocol.records.message import SCHEDULE_TOPIC, tag_code
from roquet.protocol.records.record import decode
from roquet.storage.batch_records import BatchItem
from roquet.storage.config import StoreConfig
from roquet.storage.new_record import NewRecord
from roquet.storage.queues.consume_queue import ConsumeQueue
from roquet.storage.store import Store
from tests.simulation.disk import Drive
from tests.storage.records import append_one, bodies_in, found_by_key, put_batch
from tests.storage.small_stores import Clock, config, opened

BORN, ELSEWHERE = bytes([10, 0, 0, 9, 0, 0, 0xC3, 0x50]), bytes(16) + bytes([0, 0, 0x2A, 0x9F])


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def store(tmp_path: Path, clock: Clock) -> Iterator[Store]:
    store = opened(tmp_path, clock, delay_levels_ms=(1000, 5000))
    yield store
    store.abandon()


def record(
    store: Store, body: bytes, topic: str = "T", queue_id: int = 0, properties: str = ""
) -> NewRecord:
    queue = store.queue(topic, queue_id)
    return NewRecord(queue, body, properties.encode(), 3, 0x21, 7, BORN, ELSEWHERE, 2, 44)


def entries(store: Store, topic: str, queue_id: int) -> list[tuple[int, int, int] | None]:
    queue = store.queue(topic, queue_id)
    return [queue.entry(offset) for offset in range(queue.max_offset)]


def due(store: Store, level: int) -> list[int]:
    """When the messages of a level are due, by their queue."""
    return [entry[2] for entry in entries(store, SCHEDULE_TOPIC, level - 1) if entry is not None]


def test_a_record_is_stored_as_it_was_said(store: Store) -> None:
    (at,) = store.writer.append_records(
        [record(store, b"body", "T", 1, "TAGS\x01a\x02UNIQ_KEY\x01U\x02KEYS\x01k l")]
    )
    found = decode(store.log.record_at(at) or b"", verify=True)
    assert (found.topic, found.queue_id, found.queue_offset, found.body) == ("T", 1, 0, b"body")
    assert (found.flag, found.sys_flag, found.born_ms, found.born_host) == (3, 0x21, 7, BORN)
    assert (found.store_host, found.reconsume_times, found.prepared_offset) == (ELSEWHERE, 2, 44)
    assert [entry and entry[2] for entry in entries(store, "T", 1)] == [tag_code("a")]
    for key in ("U", "k", "l"):
        assert len(found_by_key(store, "T", key, 9, 0, 1 << 62).records) == 1
    assert store.dispatch.lag == 0


def test_a_delayed_message_has_its_time_in_its_queue(store: Store, clock: Clock) -> None:
    records = [
        record(store, b"%d" % n, SCHEDULE_TOPIC, 1, "DELAY\x012\x02TAGS\x01a") for n in range(20)
    ]
    assert len(store.writer.append_records(records)) == 20
    assert due(store, 2) == [clock.ms + 5000] * 20


def test_what_is_prepared_or_rolled_back_is_in_no_queue(store: Store) -> None:
    for sys_flag in (4, 12):
        half = record(store, b"half")
        half.sys_flag |= sys_flag
        (at,) = store.writer.append_records([half])
        assert decode(store.log.record_at(at) or b"").queue_offset == 0
    store.writer.append_records([record(store, b"whole")])
    assert bodies_in(store, "T") == [b"whole"]


def test_as_many_are_written_as_fit_into_a_file(store: Store) -> None:
    records = [record(store, bytes([n]) * 500) for n in range(20)]
    written = []
    while records:
        places = store.writer.append_records(records)
        assert len({place // store.log.file_size for place in places}) == 1
        written.append(len(places))
        records = records[len(places) :]
    assert len(written) > 2
    assert bodies_in(store, "T") == [bytes([n]) * 500 for n in range(20)]


def test_one_that_fits_into_no_file_is_refused_and_nothing_changes(store: Store) -> None:
    end = store.log.end
    with pytest.raises(ValueError, match="does not fit into a file of 4096"):
        store.writer.append_records([record(store, bytes(5000))])
    assert (store.log.end, store.max_offset("T", 0)) == (end, 0)


def one_by_one(store: Store, topics: Sequence[str]) -> None:
    for topic in topics:
        store.writer.append(record(store, b"one", topic))


def as_a_block(store: Store, topics: Sequence[str]) -> None:
    store.writer.append_records([record(store, b"one", topic) for topic in topics])


def as_batches(store: Store, topics: Sequence[str]) -> None:
    for topic in topics:
        put_batch(store, store.queue(topic, 0), [BatchItem(0, b"one", b"", (), 0)])


@pytest.mark.parametrize("append", [one_by_one, as_a_block, as_batches])
def test_watched_queues_that_grew_are_told_of_once(
    tmp_path: Path, clock: Clock, append: Callable[[Store, Sequence[str]], None]
) -> None:
    watched: set[ConsumeQueue] = set()
    store = Store(config(tmp_path), clock.now_ms, watched=watched)
    store.open()
    append(store, ["B", "A", "U", "B"])
    assert list(store.writer.take_grown()) == [], "nobody watched"

    watched |= {store.queue("A", 0), store.queue("B", 0), store.queue("C", 0)}
    append(store, ["B", "A", "U", "B"])
    assert [queue.topic for queue in store.writer.take_grown()] == ["B", "A"]
    assert list(store.writer.take_grown()) == []
    store.abandon()


def block_at(store: Store, places: list[int]) -> RecordBlock:
    records = [store.log.record_at(at) or b"" for at in places]
    sizes = np.array([len(data) for data in records])
    ends = np.cumsum(sizes)
    data = store.log.joined(np.array(places), sizes)
    assert data == b"".join(records)
    return RecordBlock(0, data, ends - sizes, len(data))


def test_records_that_are_moved_are_the_same_messages_in_other_queues(store: Store) -> None:
    chance = random.Random(1)
    places: list[int] = []
    for number in range(60):
        body = b"%d" % number * chance.randint(1, 40)
        properties = f"UNIQ_KEY\x01U{number}\x02TAGS\x01{number % 3}\x02DELAY\x011"
        places += store.writer.append_records([record(store, body, SCHEDULE_TOPIC, 0, properties)])
        store.writer.append_records(
            [record(store, b"between", "other")] * chance.randint(0, 2) or [record(store, b"", "o")]
        )
    before = [decode(store.log.record_at(at) or b"") for at in places]
    targets = [
        store.queue(chance.choice(("T", "Longer_name")), chance.randrange(2)) for _ in places
    ]

    left, block = targets, block_at(store, places)
    while left:
        count = store.writer.append_moved(block, left)
        left = left[count:]
        if left:
            block = block_at(store, places[-len(left) :])

    store.end_turn()
    appended = [(topic, each.messages, each.size) for topic, each in store.queues.appended()]
    assert store.writer.stored == sum(messages for _, messages, _ in appended)
    for topic, messages, size in appended:
        queues = store.queues.of_topic(topic)
        assert messages == sum(queue.max_offset for queue in queues)
        sizes = (
            entry[1] for queue in queues for entry in entries(store, topic, queue.queue_id) if entry
        )
        assert size == sum(sizes)
    for queue in {(queue.topic, queue.queue_id) for queue in targets}:
        expected = [
            old.body
            for old, target in zip(before, targets, strict=True)
            if (target.topic, target.queue_id) == queue
        ]
        assert bodies_in(store, *queue) == expected
    for old, target in zip(before, targets, strict=True):
        (found,) = found_by_key(
            store, target.topic, old.properties["UNIQ_KEY"], 9, 0, 1 << 62
        ).records
        new = decode(found)
        same = (
            "body",
            "flag",
            "sys_flag",
            "born_ms",
            "born_host",
            "store_host",
            "reconsume_times",
            "properties_text",
        )
        assert [getattr(new, name) for name in same] == [getattr(old, name) for name in same]
        entry = target.entry(new.queue_offset)
        assert entry is not None
        assert entry[2] == tag_code(old.properties["TAGS"])
    assert store.dispatch.lag == 0


def test_what_was_stored_so_is_dispatched_the_same_after_a_crash(
    store: Store, tmp_path: Path, clock: Clock
) -> None:
    texts = [f"UNIQ_KEY\x01U{n}\x02DELAY\x01{1 + n % 2}" for n in range(30)]
    for number, text in enumerate(texts):
        store.writer.append_records(
            [record(store, b"%d" % number, SCHEDULE_TOPIC, number % 2, text)]
        )
    written = [entries(store, SCHEDULE_TOPIC, queue_id) for queue_id in range(2)]
    store.abandon()
    shutil.rmtree(tmp_path / "consumequeue")
    again = opened(tmp_path, clock, delay_levels_ms=(1000, 5000))
    assert [entries(again, SCHEDULE_TOPIC, queue_id) for queue_id in range(2)] == written
    again.abandon()


def in_a_batch(store: Store) -> None:
    put_batch(store, store.queue("T", 0), [BatchItem(0, b"new", b"", (), 0)] * 3)


def as_records(store: Store) -> None:
    store.writer.append_records([record(store, b"new")] * 3)


def by_itself(store: Store) -> None:
    append_one(store, store.queue("T", 0), b"new")


@pytest.mark.parametrize("append", [in_a_batch, as_records, by_itself])
def test_offsets_follow_those_of_records_that_are_dispatched_first(
    tmp_path: Path, clock: Clock, append: Callable[[Store], None]
) -> None:
    """A slave that becomes a master may have records of its master that are not in their queues
    yet.
    """
    master, slave = opened(tmp_path / "master", clock), opened(tmp_path / "slave", clock)
    for _ in range(5):
        by_itself(master)
    slave.log.replicate(0, master.log.read(0, master.log.end))

    append(slave)

    places = [entry[0] for entry in entries(slave, "T", 0) if entry is not None]
    assert [decode(slave.log.record_at(at) or b"").queue_offset for at in places] == [
        *range(len(places))
    ]
    assert len(places) >= 6
    master.abandon()
    slave.abandon()


# drives that are slow, or full for a while

SMALL = StoreConfig(
    Path("/s"), [Path("/s/commitlog")], 8192, 20 * 50, index_slots=20, index_entries=101
)


def put_numbers(store: Store, first: int, count: int) -> None:
    for number in range(first, first + count):
        append_one(store, store.queue("T", 0), b"%d" % number)
    store.end_turn()


def numbered(count: int) -> list[bytes]:
    return [b"%d" % number for number in range(count)]


def test_what_waits_behind_a_slow_drive_is_refused_until_the_next_turn() -> None:
    now_ms = 1_700_000_000_000
    store = Store(replace(SMALL, busy_ms=1000), lambda: now_ms, Drive(random.Random(1)).mount())
    store.open()
    put_numbers(store, 0, 1)
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
    put_numbers(store, 2, 1)
    assert bodies_in(store, "T") == numbered(3)


def test_a_record_that_was_refused_holds_up_nobody() -> None:
    now_ms = 1_700_000_000_000
    drive = Drive(random.Random(1))
    store = Store(replace(SMALL, busy_ms=1000), lambda: now_ms, drive.mount())
    store.open()
    drive.failure = errno.ENOSPC
    with pytest.raises(OSError, match="No space"):
        put_numbers(store, 0, 1)
    drive.failure = None
    now_ms += 60_000
    put_numbers(store, 0, 1)
    assert bodies_in(store, "T") == numbered(1)


@pytest.mark.parametrize("failure", [errno.ENOSPC, errno.EROFS])
def test_a_roll_that_fails_refuses_the_message_and_the_next_one_fits_again(failure: int) -> None:
    drive = Drive(random.Random(1))
    store = Store(SMALL, lambda: 1, drive.mount())
    store.open()
    taken = 0
    while store.log.room > 300:
        put_numbers(store, taken, 1)
        taken += 1
    drive.failure = failure
    before, refused = taken, 0
    for _ in range(20):
        try:
            put_numbers(store, taken, 1)
            taken += 1
        except OSError as error:
            refused += error.errno == failure
    assert taken + refused == before + 20
    assert refused > 10
    drive.failure = None
    put_numbers(store, taken, 50)
    assert bodies_in(store, "T") == numbered(taken + 50)
    drive.crash()
    again = Store(SMALL, lambda: 1, drive.mount())
    again.open()
    found = bodies_in(again, "T")
    assert found == numbered(len(found))
