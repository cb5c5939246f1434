"""An append is whole or it is nothing: whatever its values are, and whatever of the drive fails
while it is made.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import astuple, dataclass, replace
from pathlib import Path
from typing import Final

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from roquet.common.steps import finished
from roquet.errors import StoreBusy
from roquet.protocol.records import message as m
from roquet.protocol.records.block import RecordBlock
from roquet.protocol.records.record import check, decode
from roquet.protocol.records.uniform import UniformBatch, checksums
from roquet.storage.batch_records import BatchItem
from roquet.storage.config import StoreConfig
from roquet.storage.log.dispatch_request import read_dispatch_request
from roquet.storage.new_record import NewRecord
from roquet.storage.store import Store
from tests.simulation.disk import Drive
from tests.storage.failing_drive import FailingDrive
from tests.storage.records import packed

LOG_FILE: Final = 4096
NOW_MS: Final = 1_700_000_000_000
FIELD_ERRORS: Final = (ValueError, TypeError, OSError, StoreBusy)
"""TypeError: something is no number, or no bytes."""


class Flags:
    """Filters that are tried on stored messages, and fail on some."""

    size = 8

    def has_any(self, topic: str) -> bool:
        return True

    def of(self, topic: str, record: bytes) -> bytes:
        if b"odd" in record:
            raise ZeroDivisionError("this filter cannot be tried")
        return bytes([len(record) % 256]) * 8


def config(*, pooled: bool, units: bool) -> StoreConfig:
    return StoreConfig(
        Path("/store"),
        [Path("/store/commitlog")],
        commit_log_file_size=LOG_FILE,
        consume_queue_file_size=20 * 7,
        index_slots=10,
        index_entries=40,
        pooled=pooled,
        ext_file_size=200 if units else None,
        delay_levels_ms=(1000, 5000),
    )


def opened(drive: Drive, *, pooled: bool, units: bool) -> Store:
    store = Store(
        config(pooled=pooled, units=units),
        lambda: NOW_MS,
        drive.mount(),
        Flags() if units else None,
    )
    store.open()
    return store


BORDERS: Final = (
    -1,
    0,
    1,
    (1 << 31) - 1,
    1 << 31,
    -(1 << 31) - 1,
    (1 << 63) - 1,
    1 << 63,
    -(1 << 63) - 1,
    1 << 200,
)
fine_numbers: Final = st.integers(-(1 << 31), (1 << 31) - 1)
numbers: Final = st.one_of(fine_numbers, st.sampled_from(BORDERS), st.integers(-(1 << 65), 1 << 65))
fine_texts: Final = st.sampled_from(
    (
        b"",
        b"TAGS\x01a\x02KEYS\x01k l",
        b"UNIQ_KEY\x01U",
        b"A\x01\xff\xfe",
        b"A\x01\xed\xa0\x80",
        b"B\x01odd",
    )
)
texts: Final = st.one_of(
    fine_texts,
    st.binary(max_size=40),
    st.sampled_from(
        (b"A\x01b\0", b"x" * 32_767, b"x" * 32_768, b"x" * 70_000, b"A\x01" + b"p" * 2000)
    ),
)
fine_bodies: Final = st.one_of(st.binary(max_size=50), st.just(b"b" * 700))
bodies: Final = st.one_of(fine_bodies, st.sampled_from((b"b" * 3900, b"b" * 5000)))
key_lists: Final = st.lists(st.binary(min_size=1, max_size=4), max_size=3)


@dataclass(frozen=True)
class Fields:
    """What an append is given; any of it may be impossible."""

    body: bytes
    properties: bytes
    keys: Sequence[bytes]
    tag_code: int
    flag: int
    sys_flag: int
    born_ms: int
    reconsume_times: int
    queue_id: int


sys_flags: Final = st.sampled_from((0, 0, 0, 1, 4, 8, 12))
queue_ids: Final = st.integers(0, 2)
fine_fields: Final = st.builds(
    Fields,
    fine_bodies,
    fine_texts,
    key_lists,
    *[fine_numbers] * 2,
    sys_flags,
    *[fine_numbers] * 2,
    queue_ids,
)
odd_fields: Final = st.builds(
    Fields,
    bodies,
    texts,
    key_lists,
    *[numbers] * 2,
    st.one_of(sys_flags, numbers),
    *[numbers] * 2,
    queue_ids,
)
field_lists: Final = st.one_of(
    st.lists(fine_fields, min_size=1, max_size=12),
    st.lists(fine_fields, min_size=1, max_size=3),
    st.tuples(st.lists(fine_fields, max_size=3), odd_fields).map(lambda both: [*both[0], both[1]]),
    st.tuples(odd_fields, st.lists(fine_fields, max_size=3)).map(lambda both: [both[0], *both[1]]),
)


def new_record(store: Store, item: Fields, prepared_offset: int = 0) -> NewRecord:
    return NewRecord(
        store.queue("T", item.queue_id), item.body, item.properties, item.flag, item.sys_flag,
        item.born_ms, bytes(8), bytes(8), item.reconsume_times, prepared_offset,
    )  # fmt: skip


def append(store: Store, each: Sequence[Fields], delay_ms: int | None) -> int:
    first = each[0]
    store.writer.append(new_record(store, first), first.keys, first.tag_code, delay_ms)
    return 1


def append_batch(store: Store, each: Sequence[Fields], delay_ms: int | None) -> int:
    first = each[0]
    items = [
        BatchItem(item.flag, item.body, item.properties, item.keys, item.tag_code) for item in each
    ]
    queue, sys_flag = store.queue("T", first.queue_id), first.sys_flag & ~m.TRANSACTION_BITS
    store.writer.append_batch(
        queue, packed(queue, items, sys_flag, first.born_ms, first.reconsume_times)
    )
    return len(items)


def append_alike(store: Store, each: Sequence[Fields], delay_ms: int | None) -> int:
    """All with the body and the properties of the first one."""
    first, count = each[0], len(each)
    rows = np.frombuffer(first.body * count, np.uint8).reshape(count, len(first.body))
    messages = UniformBatch(
        first.flag, first.sys_flag & ~4, first.reconsume_times, bytes(8), [item.born_ms for item in each],
        first.body, first.properties, rows, checksums((row.tobytes(),) for row in rows),
        [], [b"".join(b"key%d" % n for n in range(count))] if count < 10 else [], [item.tag_code for item in each],
    )  # fmt: skip
    store.writer.append_alike(
        messages, [store.queue("T", item.queue_id) for item in each], delay_ms
    )
    return count


def append_records(store: Store, each: Sequence[Fields], delay_ms: int | None) -> int:
    return len(
        store.writer.append_records([new_record(store, item, each[0].born_ms) for item in each])
    )


def append_moved(store: Store, each: Sequence[Fields], delay_ms: int | None) -> int:
    stored = [bytes(data) for _, data in store.log.walk(store.log.start)][-len(each) :]
    stored = [data for data in stored if read_dispatch_request(0, memoryview(data)).is_queued]
    if not stored:
        return 0
    ends = np.cumsum([len(data) for data in stored])
    block = RecordBlock(0, b"".join(stored), np.append(0, ends[:-1]), int(ends[-1]))
    queues = [store.queue("Moved" * (1 + item.queue_id), item.queue_id) for item in each]
    return store.writer.append_moved(
        block, queues[: len(stored)] + queues[-1:] * (len(stored) - len(queues))
    )


Road = Callable[[Store, Sequence[Fields], int | None], int]
ROADS: Final[tuple[Road, ...]] = (append, append_batch, append_alike, append_records, append_moved)


def records_of(store: Store) -> list[bytes]:
    """Every record of the log, which is walked from its start to its end without a gap."""
    store.log.commit()
    found, at = [], store.log.start
    for place, data in store.log.walk(store.log.start):
        assert place == at or (place == store.log.next_file(at) and store.log.is_closed_at(at))
        check(data, place, verify=True)
        found.append(bytes(data))
        at = type(at)(place + len(data))
    assert store.log.end == at or (
        store.log.end == store.log.next_file(at) and store.log.is_closed_at(at)
    )
    return found


def entries_of(store: Store) -> dict[tuple[str, int], list[tuple[int, int]]]:
    """Place and size of each queue's records; blanks have none."""
    return {
        (queue.topic, queue.queue_id): [
            entry[:2] for n in range(queue.max_offset) if (entry := queue.entry(n))
        ]
        for queue in store.queues
        if queue.max_offset
    }


def check_entries(store: Store, records: Sequence[bytes]) -> None:
    """Each queue names just the records that name it, in their order."""
    expected: dict[tuple[str, int], list[tuple[int, int]]] = {}
    for data in records:
        record = read_dispatch_request(0, memoryview(data))
        if record.is_queued:
            of_queue = expected.setdefault((record.topic, record.queue_id), [])
            assert record.queue_offset == len(of_queue)
            of_queue.append((int.from_bytes(data[28:36], "big"), len(data)))
    assert entries_of(store) == expected


def noted(store: Store) -> int:
    """How many keys are in the index, or will be."""
    index = store.index
    assert index is not None
    waiting = [*index._parts, index._collected]
    waiting_count = sum(len(keys.rows()[0]) for part in waiting for keys in part.values())
    return sum(file.count - 1 for file in index.files) + waiting_count + len(index._hashed)


def state(store: Store) -> tuple[object, ...]:
    counted = [
        (topic, astuple(appended))
        for topic, appended in store.queues.appended()
        if appended.messages
    ]
    return (records_of(store), entries_of(store), noted(store), store.writer.stored, counted)


@settings(max_examples=60)
@given(
    st.lists(
        st.tuples(
            st.sampled_from(ROADS),
            field_lists,
            st.sampled_from((None, None, None, None, 1000, 1 << 64)),
            st.sampled_from((*[1 << 60] * 5, 0, 1, 2, 3)),
            st.integers(1, 3),
        ),
        min_size=5,
        max_size=25,
    ),
    st.booleans(),
    st.booleans(),
)
def test_it_is_whole_in_log_queue_and_index_or_nothing_changed(
    appends: list[tuple[Road, list[Fields], int | None, int, int]], pooled: bool, units: bool
) -> None:
    drive = FailingDrive(random.Random(1))
    store = opened(drive, pooled=pooled, units=units)
    for road, each, delay_ms, fails_in, fails in appends:
        before, end, count = state(store), store.log.end, store.writer.stored
        drive.fails_in, drive.fails = fails_in, fails
        try:
            written = road(store, each, delay_ms)
        except FIELD_ERRORS:
            drive.fails_in = 1 << 60
            assert state(store) == before
            assert store.log.end in (end, store.log.next_file(end))
            behind = store.log.end % LOG_FILE
            assert (
                store.log.end != end or not any(store.log.stored(end, LOG_FILE - behind)) or pooled
            )
        else:
            drive.fails_in = 1 << 60
            assert store.writer.stored == count + written
            assert store.dispatch.position == store.log.end or not written
        check_entries(store, records_of(store))
    records, entries = records_of(store), entries_of(store)
    assert len(records) == store.writer.stored
    finished(store.flush_index())
    drive.unmount()
    again = opened(drive, pooled=pooled, units=units)
    assert records_of(again) == records
    assert entries_of(again) == entries
    append(again, [Fields(b"and on", b"", (), 0, 0, 0, 1, 0, 0)], None)
    assert decode(records_of(again)[-1]).body == b"and on"


@pytest.mark.parametrize("road", ROADS[:4], ids=lambda road: road.__name__)
@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("flag", 0x80000000),
        ("born_ms", 1 << 63),
        ("sys_flag", 1 << 32),
        ("reconsume_times", 1 << 31),
        ("properties", b"x" * 32_768),
        ("properties", b"A\x01b\0"),
    ],
)
def test_a_value_that_does_not_fit_loses_nothing_of_others(
    road: Road, name: str, value: object
) -> None:
    drive = Drive(random.Random(1))
    store = opened(drive, pooled=False, units=False)
    fine = Fields(b"acknowledged", b"", (), 0, 0, 0, 1, 0, 0)
    for _ in range(3):
        append(store, [fine], None)
        with pytest.raises(ValueError, match=r"does not fit its field|properties"):
            road(store, [Fields(**{**vars(fine), "body": b"refused", name: value})] * 2, None)
        append(store, [fine], None)
    drive.unmount()
    again = opened(drive, pooled=False, units=False)
    assert [decode(data).body for data in records_of(again)] == [b"acknowledged"] * 6
    check_entries(again, records_of(again))


@settings(max_examples=60)
@given(
    st.lists(st.integers(1, 900), min_size=1, max_size=30),
    st.sampled_from((1 << 60, 0, 1, 2, 3, 4, 5, 6)),
    st.booleans(),
)
def test_what_a_slave_could_write_of_its_masters_bytes_is_its_log(
    sizes: list[int], fails_in: int, pooled: bool
) -> None:
    master = opened(Drive(random.Random(1)), pooled=False, units=False)
    for number in range(20):
        append(master, [Fields(b"%d" % number * 300, b"", (), 0, 0, 0, 1, 0, number % 3)], None)
    of_master = b"".join(master.log.stored(at, LOG_FILE) for at in master.log.file_starts)[
        : master.log.end
    ]
    drive = FailingDrive(random.Random(2))
    slave = opened(drive, pooled=pooled, units=False)
    drive.fails_in, drive.fails = fails_in, 2
    while slave.log.end < master.log.end:
        for size in sizes:
            at = slave.log.end
            with suppress(OSError):
                slave.log.replicate(at, of_master[at : at + size])
            slave.replicated()
    slave.log.commit()
    of_slave = b"".join(slave.log.stored(at, LOG_FILE) for at in slave.log.file_starts)[
        : slave.log.end
    ]
    assert of_slave == of_master
    slave.replicated()
    assert entries_of(slave) == entries_of(master)


def test_nothing_is_stored_behind_records_that_are_in_no_queue_yet() -> None:
    """A slave that becomes the master may have some, while its drive is full."""
    master = opened(Drive(random.Random(1)), pooled=False, units=False)
    append(master, [Fields(b"of the master", b"", (), 0, 0, 0, 1, 0, 0)], None)
    drive = FailingDrive(random.Random(2))
    store = opened(drive, pooled=False, units=False)
    store.log.replicate(store.log.end, master.log.read(master.log.start, LOG_FILE))
    fine = Fields(b"here", b"", (), 0, 0, 0, 1, 0, 1)
    for road in ROADS[:4]:
        store.queue("T", 1).make_room(1)
        drive.fails_in, drive.fails = 0, 1 << 60
        with pytest.raises(OSError, match="No space"):
            road(store, [fine], None)
        drive.fails_in = 1 << 60
    append(store, [fine], None)
    assert [decode(data).body for data in records_of(store)] == [b"of the master", b"here"]
    check_entries(store, records_of(store))


def test_a_run_makes_room_for_the_notes_on_its_entries_too() -> None:
    """The queue has room for thousands of entries when its units' file, or their room on the drive,
    ends.
    """
    drive = FailingDrive(random.Random(1))
    small = config(pooled=False, units=True)
    large = replace(
        small,
        commit_log_file_size=1 << 20,
        consume_queue_file_size=20 * 1000,
        ext_file_size=40 * 10,
    )
    store = Store(large, lambda: NOW_MS, drive.mount(), Flags())
    store.open()
    fine = Fields(b"body", b"", (), 0, 0, 0, 1, 0, 0)
    for _ in range(20):
        append_alike(store, [fine] * 7, None)
    drive.fails_in, drive.fails = 0, 1 << 60
    with pytest.raises(OSError, match="No space"):
        append_alike(store, [fine] * 60, None)
    drive.fails_in = 1 << 60
    append_alike(store, [fine] * 60, None)
    check_entries(store, records_of(store))
    assert store.writer.stored == 200


def test_a_filter_that_fails_on_a_message_does_not_keep_it_out_of_its_queue(
    caplog: pytest.LogCaptureFixture,
) -> None:
    store = opened(Drive(random.Random(1)), pooled=False, units=True)
    for body in (b"odd", b"even", b"odd"):
        append(store, [Fields(body, b"", (), 0, 0, 0, 1, 0, 0)], None)
    check_entries(store, records_of(store))
    queue = store.queue("T", 0)
    assert [queue.filter_bits(offset) is not None for offset in range(3)] == [False, True, False]
    assert len(caplog.records) == 1
