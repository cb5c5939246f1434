"""Records dispatched many at a time come to the same as one by one."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from roquet.errors import CorruptRecord
from roquet.protocol.filters.tags import TagFilter
from roquet.protocol.records import message as m
from roquet.protocol.records.block import RecordBlock, record_starts
from roquet.protocol.records.layout import BLANK_SIZE, blank
from roquet.protocol.records.record import Record, check
from roquet.storage.config import StoreConfig
from roquet.storage.dispatch import dispatch
from roquet.storage.queues.consume_queue import BLANK_RECORD_SIZE
from roquet.storage.queues.ext import ExtendedQueue
from roquet.storage.store import Store
from tests.simulation.disk import Drive
from tests.storage.deletions import delete_topic
from tests.storage.records import append_one, bodies_in, records_in

FILE_SIZE = 16384
NEVER = 1 << 30
HOSTS = (bytes([10, 0, 0, 1, 0, 0, 0x2A, 0x9F]), bytes(15) + b"\1\0\0\x2a\x9f")
CONFIG = StoreConfig(
    Path("/s"),
    [Path("/s/commitlog")],
    FILE_SIZE,
    20 * 40,
    index_slots=20,
    index_entries=500,
    delay_levels_ms=(1000, 5000),
)
KINDS = (0, 0, 0, 0, 0, 0, m.TRANSACTION_PREPARED, m.TRANSACTION_COMMIT, m.TRANSACTION_ROLLBACK)
WORDS = ("a", "bb", "order 7", "x y  z", "größer", "", "\x01", " ")


class Producer:
    """Makes records: runs of them alike, then of another kind."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.next_offsets: dict[tuple[str, int], int] = {}
        self.now_ms = 1_700_000_000_000
        self.end = 0

    def records(self) -> bytes:
        """The bytes of a log; blanks close its files."""
        parts: list[bytes] = []
        while self.end < 3 * FILE_SIZE:
            form = self._form()
            parts += [
                self._placed(self._record(*form)) for _ in range(self.chance.choice((1, 3, 60)))
            ]
        return b"".join(parts)

    def _form(self) -> tuple[str, int, dict[str, int], dict[str, str]]:
        chance = self.chance
        topic = chance.choice(("T", "T", "Topic-B", "ünïcode", m.SCHEDULE_TOPIC))
        sizes = {
            name: chance.randrange(1, 5)
            for name in (m.UNIQ_KEY, m.TAGS, m.KEYS, "own")
            if chance.random() < 0.6
        }
        fixed = {
            name: chance.choice(WORDS)
            for name in (m.TAGS, m.KEYS, "other")
            if chance.random() < 0.3
        }
        if topic == m.SCHEDULE_TOPIC and chance.random() < 0.8:
            fixed[m.DELAY] = str(chance.randrange(1, 5))
        return topic, chance.choice(KINDS), sizes, fixed

    def _record(
        self, topic: str, kind: int, sizes: dict[str, int], fixed: dict[str, str]
    ) -> Record:
        chance = self.chance
        self.now_ms += chance.randrange(3)
        drawn = {
            name: "".join(chance.choices("abc 1é\2", (9, 9, 9, 1, 9, 0.1, 0.1), k=n))
            for name, n in sizes.items()
        }
        pairs = [*drawn.items(), *fixed.items()]
        texts = [
            f"{name if chance.random() < 0.99 else 'x' * len(name)}\1{value}"
            for name, value in pairs
        ]
        queue_id = chance.randrange(3)
        takes_a_slot = kind in (0, m.TRANSACTION_COMMIT)
        offset = self.next_offsets.get((topic, queue_id), chance.choice((0, 0, 13)))
        if takes_a_slot:
            self.next_offsets[topic, queue_id] = offset + chance.choice((1,) * 50 + (0, 3))
        return Record(
            queue_id, 0, offset, 0, kind, 1, chance.choice(HOSTS[: 1 + (offset > 40)]),
            self.now_ms, chance.choice(HOSTS[:1]), 0, 0, chance.randbytes(chance.choice((7, 7, 90))),
            topic, m.PROPERTY_SEPARATOR.join(texts),
        )  # fmt: skip

    def _placed(self, record: Record) -> bytes:
        """The record's bytes where it comes to stand, behind a blank if that is in the next
        file.
        """
        size, before = len(record.encode()), b""
        left = FILE_SIZE - self.end % FILE_SIZE
        if size + BLANK_SIZE > left:
            before = blank(left).ljust(left, b"\0")
        at = self.end + len(before)
        self.end = at + size
        values = {name: getattr(record, name) for name in Record.__slots__}
        return before + Record(**{**values, "physical_offset": at}).encode()


def dispatched(seed: int, log: bytes) -> tuple[object, object, int]:
    """Entries of all queues, keys of the index, and the newest store time, of a copy that gets the
    log in pieces.
    """
    chance = random.Random(seed)
    store = Store(
        replace(CONFIG, ext_file_size=chance.choice((None, 1000))),
        lambda: 0,
        Drive(random.Random(1)).mount(),
    )
    store.open()
    log = log.replace("é".encode(), b"\xc3(", chance.randrange(3))
    while log:
        piece = chance.choice((50, 3000, 9000, len(log)))
        store.log.replicate(store.log.end, log[:piece])
        log = log[piece:]
        store.replicated()
    if chance.random() < 0.3:
        store.dispatch.position = store.log.start
        store.replicated()
    queues = {
        (queue.topic, queue.queue_id): [
            (queue.entry(offset), queue.unit(offset) if isinstance(queue, ExtendedQueue) else None)
            for offset in range(queue.min_offset, queue.max_offset)
        ]
        for queue in store.queues
    }
    assert store.index is not None
    entries = [file._entries[1 : file.count] for file in store.index.files]
    keys = sorted(
        np.concatenate([*entries, np.empty(0, file_dtype(store))])[["at", "hash"]].tolist()
    )
    return queues, keys, store.dispatch.store_ms


def file_dtype(store: Store) -> np.dtype[np.void]:
    assert store.index is not None
    return (
        store.index.files[0]._entries.dtype
        if store.index.files
        else np.dtype([("at", ">i8"), ("hash", ">i4")])
    )


@pytest.mark.parametrize("number", range(10))
def test_many_records_come_to_the_same_as_one_by_one(
    seed: int, number: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = Producer(seed * 10 + number).records()
    in_rows = dispatched(seed, log)
    monkeypatch.setattr(dispatch, "_ROWS_FROM", NEVER)
    assert in_rows == dispatched(seed, log)


@pytest.mark.parametrize("number", range(10))
def test_a_block_is_sound_up_to_the_first_record_that_is_not(seed: int, number: int) -> None:
    chance = random.Random(seed * 10 + number)
    log = bytearray(Producer(chance.randrange(1 << 30)).records()[: FILE_SIZE // 2])
    for _ in range(chance.randrange(3)):
        at = chance.randrange(len(log))
        log[at] = chance.choice((0, log[at] ^ 1 << chance.randrange(8)))
    data = bytes(log)
    for verify in (True, False):
        block = RecordBlock(0, data, *record_starts(data))
        assert block.sound_count(verify=verify) == count_by_one(block, verify=verify)


def count_by_one(block: RecordBlock, *, verify: bool) -> int:
    for number, (at, data) in enumerate(block.records()):
        try:
            check(data, at, verify=verify)
        except CorruptRecord:
            return number
    return len(block)


def a_record() -> bytearray:
    hosts = HOSTS[0], 1, HOSTS[0], 0, 0
    record = Record(1, 0, 0, 0, 0, 1, *hosts, b"body", "topic", "x" * 20)
    return bytearray(record.encode())


def test_a_body_of_less_than_nothing_is_not_sound() -> None:
    """Parts that overlap may add up all the same."""
    data = a_record()
    data[84:88] = (-10).to_bytes(4, "big", signed=True)
    data[78:84] = b"\x0a" + b"x" * 5
    data[89:91] = (len(data) - 91).to_bytes(2, "big")
    block = RecordBlock(0, bytes(data), *record_starts(bytes(data)))
    assert block.sound_count(verify=False) == count_by_one(block, verify=False) == 0


@pytest.mark.parametrize("unwritten", [1, 25])
def test_a_record_that_was_not_written_to_its_end_is_not_sound(unwritten: int) -> None:
    data = a_record()
    data[-unwritten:] = bytes(unwritten)
    block = RecordBlock(0, bytes(data), *record_starts(bytes(data)))
    assert block.sound_count(verify=True) == count_by_one(block, verify=True) == 0


@pytest.mark.parametrize("rows_from", [8, NEVER])
@pytest.mark.parametrize(
    ("topic", "queue_id", "offset"),
    [
        ("T", 0, 1 << 40),
        ("T", 0, -5),
        ("T", -1, 0),
        ("../../T", 0, 0),
        ("", 0, 0),
        ("U", 0, 1 << 62),
    ],
)
def test_a_record_that_can_be_in_no_queue_is_told_of_and_the_others_go_on(
    topic: str,
    queue_id: int,
    offset: int,
    rows_from: int,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(dispatch, "_ROWS_FROM", rows_from)
    producer = Producer(1)
    places = [("T", 0, number) for number in range(20)]
    places.insert(10, (topic, queue_id, offset))
    log = b"".join(producer._placed(placed_record(*place)) for place in places)
    queues, _, _ = dispatched(3, log)
    assert isinstance(queues, dict)
    assert len(queues["T", 0]) == 20
    assert [places for key, places in queues.items() if key != ("T", 0) and places] == []
    assert "is in no queue" in caplog.text


def placed_record(topic: str, queue_id: int, offset: int) -> Record:
    hosts = HOSTS[0], 1, HOSTS[0], 0, 0
    return Record(queue_id, 0, offset, 0, 0, 1, *hosts, b"body", topic, "TAGS\1a")


@pytest.mark.parametrize("missing", [1, 30])
def test_places_of_records_that_are_missing_are_blanks(missing: int) -> None:
    producer = Producer(1)
    offsets = [*range(20), *range(20 + missing, 40 + missing)]
    store = Store(CONFIG, lambda: 0, Drive(random.Random(1)).mount())
    store.open()
    store.log.replicate(
        store.log.end, b"".join(producer._placed(placed_record("T", 0, at)) for at in offsets)
    )
    store.replicated()
    queue = store.queue("T", 0)
    before = queue.entry(19)
    assert before is not None
    blank = sum(before[:2]), BLANK_RECORD_SIZE, 0
    assert [queue.entry(20 + number) for number in range(missing)] == [blank] * missing
    found: list[int] = []
    next_offset = 0
    while next_offset < store.max_offset("T", 0):
        fetched = store.fetch("T", 0, next_offset, 32, TagFilter())
        found += [record.queue_offset for record in records_in(fetched)]
        next_offset = fetched.next_offset
    assert found == offsets
    store.close()
    again = Store(CONFIG, lambda: 0, store.disk)
    again.open()
    assert (again.min_offset("T", 0), again.max_offset("T", 0)) == (0, 40 + missing)


@pytest.mark.parametrize("at_once", [1, 100])
def test_a_topic_that_was_deleted_and_made_again_begins_anew_in_other_copies_of_the_log(
    at_once: int,
) -> None:
    """They hear nothing of the deletion in the log."""
    master, slave = (
        Store(CONFIG, lambda: 1_700_000_000_000, Drive(random.Random(1)).mount()) for _ in range(2)
    )
    master.open()
    slave.open()

    def put(*bodies: bytes) -> None:
        for body in bodies:
            append_one(master, master.queue("T", 0), body)
        master.end_turn()

    put(*[b"old"] * 90)
    delete_topic(master, "T")
    put(*(b"%d" % number for number in range(60)))
    data = b"".join(master.log.copies(0, master.log.end))
    size = len(data) // at_once
    for start in range(0, len(data), size):
        slave.log.replicate(start, data[start : start + size])
        slave.replicated()
    assert (
        bodies_in(slave, "T") == bodies_in(master, "T") == [b"%d" % number for number in range(60)]
    )


def test_an_error_that_nobody_foresaw_is_named_while_records_wait_for_their_entries() -> None:
    failures = [KeyError("unforeseen")]

    def delay_ms(_level: int) -> int:
        if failures:
            raise failures.pop()
        return 0

    store = Store(CONFIG, lambda: 1_700_000_000_000, Drive(random.Random(1)).mount())
    store.open()
    append_one(store, store.queue(m.SCHEDULE_TOPIC, 0), b"one", b"DELAY\x011\x02")
    store.end_turn()
    again = dispatch.Dispatch(store.log, store.queues, None, delay_ms)

    with pytest.raises(KeyError):
        again.catch_up()
    assert again.is_held_up
    assert "KeyError('unforeseen')" in again.lag_reason
    assert not again.lacks_room

    again.catch_up()
    assert (again.lag_reason, again.lag) == ("", 0)
    store.abandon()
