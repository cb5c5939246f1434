"""A store as the broker uses it: what is appended can be fetched, found and recovered."""

from __future__ import annotations

import tracemalloc
from collections.abc import Iterator
from pathlib import Path
from struct import pack
from typing import Final

import pytest

from roquet.common import descriptors
from roquet.common.steps import finished
from roquet.errors import StoreError
from roquet.protocol.filters.tags import TagFilter
from roquet.protocol.records.layout import MAGIC
from roquet.protocol.records.message import java_hash
from roquet.storage.batch_records import BatchItem
from roquet.storage.fetch import FetchLimits, FetchStatus
from roquet.storage.store import Store
from tests.storage.deletions import delete_topic
from tests.storage.records import bodies_in, found_by_key, put_batch, records_in
from tests.storage.small_stores import Clock, opened, put

BODY_AT: Final = 88
"""Where the body of a record begins."""


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def store(tmp_path: Path, clock: Clock) -> Iterator[Store]:
    store = opened(tmp_path, clock)
    yield store
    store.abandon()


def test_what_is_appended_is_fetched_in_order(store: Store) -> None:
    sent = [b"message %d" % n for n in range(100)]
    for body in sent:
        put(store, body)
    assert bodies_in(store, "T") == sent


def test_a_record_never_crosses_a_file(store: Store) -> None:
    places = [put(store, bytes(300)) for _ in range(40)]
    size = 91 + 300 + 1
    assert all(at // 4096 == (at + size - 1) // 4096 for at in places)
    assert places[-1] > 4096


def test_a_full_file_ends_with_a_blank_record(store: Store) -> None:
    places = [put(store, bytes(300)) for _ in range(11)]
    blank_at = places[9] + 91 + 300 + 1
    assert places[10] == 4096
    assert bytes(store.log.read(blank_at, 8)).hex() == f"{4096 - blank_at:08x}cbd43194"


def test_a_record_larger_than_a_file_is_refused(store: Store) -> None:
    with pytest.raises(ValueError, match="does not fit into a file of 4096"):
        put(store, bytes(4096))


def test_a_batch_goes_into_one_file_or_the_next(store: Store) -> None:
    put(store, bytes(3000))
    items = [BatchItem(0, bytes(200), b"", (), 0) for _ in range(5)]
    places = put_batch(store, store.queue("T", 0), items)
    assert places[0] == 4096
    assert store.max_offset("T", 0) == 6


def test_fetch_says_why_it_found_nothing(store: Store) -> None:
    for n in range(3):
        put(store, b"%d" % n)
    everything = TagFilter()
    assert store.fetch("T", 1, 0, 32, everything).status is FetchStatus.NO_MATCHED_LOGIC_QUEUE
    assert store.fetch("T", 0, 3, 32, everything).status is FetchStatus.OFFSET_OVERFLOW_ONE
    beyond = store.fetch("T", 0, 9, 32, everything)
    assert (beyond.status, beyond.next_offset) == (FetchStatus.OFFSET_OVERFLOW_BADLY, 3)
    unmatched = store.fetch("T", 0, 0, 32, TagFilter.parse("other"))
    assert (unmatched.status, unmatched.next_offset) == (FetchStatus.NO_MATCHED_MESSAGE, 3)


def test_fetch_filters_by_tag(store: Store) -> None:
    for n in range(10):
        put(store, b"%d" % n, tag="even" if n % 2 == 0 else "odd")
    fetched = store.fetch("T", 0, 0, 32, TagFilter.parse("odd || none"))
    assert [record.body for record in records_in(fetched)] == [b"1", b"3", b"5", b"7", b"9"]
    assert fetched.next_offset == 10


def test_fetch_stops_at_its_limits_but_gives_at_least_one(tmp_path: Path, clock: Clock) -> None:
    limits = FetchLimits(1 << 30, count_in_memory=4, size_in_memory=700)
    store = opened(tmp_path, clock, limits=limits)
    for size in (1000, 10, 10, 10, 10, 10):
        put(store, bytes(size))
    assert len(records_in(store.fetch("T", 0, 0, 32, TagFilter()))) == 1
    assert len(records_in(store.fetch("T", 0, 1, 32, TagFilter()))) == 4
    assert len(records_in(store.fetch("T", 0, 1, 2, TagFilter()))) == 2
    store.abandon()


def test_fetch_of_what_lies_far_behind_is_shorter(tmp_path: Path, clock: Clock) -> None:
    store = opened(tmp_path, clock, limits=FetchLimits(150, count_on_disk=2))
    for n in range(10):
        put(store, b"%d" % n)
    fetched = store.fetch("T", 0, 0, 32, TagFilter())
    assert len(records_in(fetched)) == 2
    assert fetched.lag > 150


def test_what_is_not_durable_is_not_shown_where_that_is_asked_for(
    tmp_path: Path, clock: Clock
) -> None:
    store = opened(tmp_path, clock, reads_only_durable=True)
    for n in range(3):
        put(store, b"%d" % n)
    hidden = store.fetch("T", 0, 0, 32, TagFilter())
    assert (hidden.status, hidden.next_offset) == (FetchStatus.OFFSET_OVERFLOW_ONE, 0)
    store.log.synced(store.log.end)
    put(store, b"3")
    shown = store.fetch("T", 0, 0, 32, TagFilter())
    assert [record.body for record in records_in(shown)] == [b"0", b"1", b"2"]
    assert shown.next_offset == 3
    store.abandon()


def test_the_index_hash_is_that_of_topic_and_key(store: Store) -> None:
    put(store, b"x", key="AB")
    put(store, b"y", key="schlüssel")
    finished(store.flush_index())
    assert store.index is not None
    entries = store.index.files[0]._entries
    assert [int(entries[n]["hash"]) for n in (1, 2)] == [
        abs(java_hash("T#AB")),
        abs(java_hash("T#schlüssel")),
    ]


def test_offset_by_time_takes_the_nearer_neighbour(store: Store, clock: Clock) -> None:
    times = []
    for n in range(4):
        clock.ms += 100
        put(store, b"%d" % n)
        times.append(store.store_time("T", 0, n))
    assert store.offset_at_time("T", 0, times[2]) == 2
    assert store.offset_at_time("T", 0, times[1] + 10) == 1
    assert store.offset_at_time("T", 0, times[2] - 10) == 2
    assert store.offset_at_time("T", 0, times[0] - 1000) == 0
    assert store.offset_at_time("T", 0, times[3] + 1000) == 3


@pytest.mark.parametrize(("step_ms", "expected"), [(-500, 0), (-1001, 0), (-1002, -1001), (5, 6)])
def test_store_times_follow_the_clock_but_for_small_steps_back(
    store: Store, clock: Clock, step_ms: int, expected: int
) -> None:
    put(store, b"before")
    before_ms = newest_ms = store.store_time("T", 0, 0)
    clock.ms += step_ms
    put(store, b"after")
    assert store.store_time("T", 0, 1) == before_ms + expected
    assert store.newest_ms == max(newest_ms, before_ms + expected)


@pytest.mark.parametrize("is_clean", [True, False])
@pytest.mark.parametrize("count", [1, 10, 11, 60])
def test_a_store_opens_again_with_all_it_had(
    tmp_path: Path, clock: Clock, count: int, is_clean: bool
) -> None:
    store = opened(tmp_path, clock)
    sent = [b"%04d" % n + bytes(300) for n in range(count)]
    for n, body in enumerate(sent):
        put(store, body, queue_id=n % 2, key=f"key-{n}")
    end = store.log.end
    if is_clean:
        store.close()
    else:
        store.abandon()
    again = opened(tmp_path, clock)
    assert again.log.end == end
    assert bodies_in(again, "T", 0) == sent[0::2]
    assert bodies_in(again, "T", 1) == sent[1::2]
    assert len(found_by_key(again, "T", "key-0", 32, 0, 1 << 62).records) >= 1
    put(again, b"more")
    assert bodies_in(again, "T", 0)[-1] == b"more"
    again.abandon()


def test_a_torn_tail_is_cut_and_never_comes_back(tmp_path: Path, clock: Clock) -> None:
    store = opened(tmp_path, clock)
    places = [put(store, b"%d" % n) for n in range(9)]
    assert places[4] < 512 < places[8]
    store.abandon()
    file = tmp_path / "commitlog" / f"{0:020d}"
    data = bytearray(file.read_bytes())
    data[places[3] + 20 : 512] = bytes(
        512 - places[3] - 20
    )  # the rest of a sector that was never written
    file.write_bytes(data)
    again = opened(tmp_path, clock)
    assert bodies_in(again, "T") == [b"0", b"1", b"2"]
    put(again, b"x")
    again.abandon()
    last = opened(tmp_path, clock)
    assert bodies_in(last, "T") == [b"0", b"1", b"2", b"x"]
    last.abandon()


def test_queues_are_rebuilt_from_the_log(tmp_path: Path, clock: Clock) -> None:
    store = opened(tmp_path, clock)
    for n in range(30):
        put(store, b"%d" % n, tag="t", queue_id=n % 3)
    before = [bodies_in(store, "T", queue_id) for queue_id in range(3)]
    store.close()
    for file in sorted((tmp_path / "consumequeue").rglob("0*")):
        if file.is_file():
            file.unlink()
    again = opened(tmp_path, clock)
    assert [bodies_in(again, "T", queue_id) for queue_id in range(3)] == before
    again.abandon()


def test_a_second_broker_cannot_open_the_store(tmp_path: Path, clock: Clock) -> None:
    import subprocess
    import sys

    store = opened(tmp_path, clock)
    program = (
        "import sys, pathlib; from roquet.storage.store import *; folder = pathlib.Path(sys.argv[1])\n"
        "Store(StoreConfig(folder, [folder / 'commitlog'], 4096), lambda: 0).open()"
    )
    other = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path)], capture_output=True, text=True, check=False
    )
    assert "StoreError" in other.stderr
    assert "in use by another broker" in other.stderr
    store.abandon()


@pytest.mark.parametrize("name", ["notes.txt", f"{0:020d}", f"{100:020d}"])
def test_a_stray_or_wrong_file_is_named(tmp_path: Path, clock: Clock, name: str) -> None:
    folder = tmp_path / "commitlog"
    folder.mkdir()
    (folder / name).write_bytes(b"stray")
    with pytest.raises(StoreError, match=name):
        opened(tmp_path, clock)


def test_a_missing_file_is_named(tmp_path: Path, clock: Clock) -> None:
    store = opened(tmp_path, clock)
    for _ in range(30):
        put(store, bytes(300))
    store.close()
    (tmp_path / "commitlog" / f"{4096:020d}").unlink()
    with pytest.raises(StoreError, match=f"{4096:020d}, is missing"):
        opened(tmp_path, clock)


def test_replicated_bytes_are_dispatched_like_appended_ones(
    tmp_path: Path, clock: Clock, store: Store
) -> None:
    for n in range(25):
        put(store, b"%d" % n + bytes(n * 10), tag="t", key=f"k{n}")
    copy = opened(tmp_path / "copy", clock)
    at = store.log.start
    step = 37
    while at < store.log.end:
        data = store.log.read(at, step)
        copy.log.replicate(at, data)
        copy.replicated()
        at += len(data)
    assert copy.log.end == store.log.end
    assert bodies_in(copy, "T") == bodies_in(store, "T")
    assert len(found_by_key(copy, "T", "k7", 32, 0, 1 << 62).records) == 1
    copy.abandon()


def test_times_in_a_checkpoint_never_go_without_a_mark(tmp_path: Path, clock: Clock) -> None:
    """With a clock that was set back they say too much: recovery goes by the mark wherever there is
    one.
    """
    store = opened(tmp_path, clock)
    store.make_checkpoint()
    assert (store.checkpoint.log_ms, store.checkpoint.mark) == (0, None)
    put(store, b"x")
    clock.ms -= 3_600_000
    put(store, b"y")
    store.make_checkpoint()
    assert store.checkpoint.mark is not None
    assert store.checkpoint.log_ms == store.checkpoint.mark.last_ms == store.store_time("T", 0, 1)
    store.abandon()


def test_the_checkpoint_of_a_copy_moves_with_what_it_got(
    tmp_path: Path, clock: Clock, store: Store
) -> None:
    put(store, b"x")
    copy = opened(tmp_path / "copy", clock)
    copy.log.replicate(copy.log.end, store.log.read(store.log.start, 1000))
    copy.replicated()
    copy.make_checkpoint()
    assert copy.checkpoint.log_ms == store.store_time("T", 0, 0)
    copy.abandon()


def test_a_log_without_a_byte_starts_where_it_ends(
    tmp_path: Path, clock: Clock, store: Store
) -> None:
    """A copy that begins with its master's second file, and loses all of it before anything was
    synced.
    """
    for _ in range(15):
        put(store, bytes(300))
    copy = opened(tmp_path / "copy", clock)
    copy.log.replicate(4096, store.log.read(4096, 1000))
    copy.abandon()
    (tmp_path / "copy" / "commitlog" / f"{4096:020d}").write_bytes(bytes(4096))
    copy = opened(tmp_path / "copy", clock)
    assert (copy.log.start, copy.log.end) == (4096, 4096)
    copy.abandon()


def test_a_checkpoint_that_a_stop_overtakes_is_no_failed_sync(tmp_path: Path, clock: Clock) -> None:
    """A thread may be between two files of it when the broker closes them: the drive is not to
    blame.
    """
    store = opened(tmp_path, clock)
    put(store, b"a")
    sync, _ = finished(store.checkpoint_steps())
    store.close()
    with pytest.raises(OSError, match="Bad file descriptor"):
        sync()
    assert store.failure is None


def test_a_dropped_topic_starts_anew(store: Store) -> None:
    put(store, b"old")
    delete_topic(store, "T")
    assert store.max_offset("T", 0) == 0
    put(store, b"new")
    assert bodies_in(store, "T") == [b"new"]


def test_a_look_amid_a_body_reads_no_more_than_a_record_whatever_stands_there(
    tmp_path: Path, clock: Clock
) -> None:
    """A body of `xxxx` says that 2 GB follow: each such look was a copy of the rest of the log's
    file, up to 1 GiB.
    """
    mib = 1 << 20
    store = opened(tmp_path, clock, commit_log_file_size=24 * mib)
    begin, forged = store.log.end + BODY_AT, bytearray(b"x" * 400)
    for at, size in (0, 2**31 - 1), (100, 22 * mib):
        forged[at : at + 36] = pack(">IIIIIqq", size, MAGIC, 0, 0, 0, 0, begin + at)
    put(store, bytes(forged))
    put(store, bytes(20 * mib))
    tracemalloc.start()
    try:
        assert [at for at in range(begin, begin + 300) if store.log.record_at(at) is not None] == []
        assert tracemalloc.get_traced_memory()[1] < mib
    finally:
        tracemalloc.stop()
        store.abandon()


def test_new_queues_leave_the_last_descriptors_to_those_there_are(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(store, b"before")
    monkeypatch.setattr(
        descriptors, "are_left", lambda sixteenths, limit: sixteenths > descriptors.FOR_NEW_QUEUES
    )
    end = store.log.end
    for _ in range(2):
        with pytest.raises(
            OSError, match=r"raise the limit of open files \(ulimit -n\), or use fewer queues"
        ):
            put(store, b"refused", topic="New")
    assert store.log.end == end
    assert not (tmp_path / "consumequeue" / "New").exists()
    for number in range(40):  # through several files of the log and of the queue
        put(store, b"%d" % number * 50)
    assert len(bodies_in(store, "T")) == 41
    monkeypatch.undo()
    put(store, b"at last", topic="New")
    assert bodies_in(store, "New") == [b"at last"]
