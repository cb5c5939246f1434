"""A topic read by way of the queues: the same rows as without them, fewer bytes, and nothing lost
by a bad queue.
"""

from __future__ import annotations

import logging
import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from roquet.spark._options.store import StoreOptions
from roquet.spark._storefiles.chunks import QueuePlace, StorePart
from roquet.spark._storefiles.indexed_ranges import Claims, QueuesDisagree
from roquet.spark._storefiles.plan import SHARE_MIN, plan_parts
from roquet.spark._storefiles.read import CorruptStore, read
from roquet.storage.queues.consume_queue import ENTRY, ENTRY_SIZE
from roquet.storetool.files import SegmentFiles, find_queues
from tests.spark.store_rows import ALL, Row, bodies, options, planned
from tests.storetool.stores import Broker, flip, overwrite

TOPICS, COUNT = 10, 200
BODY = 4000
LOG_FILE, QUEUE_FILE = 200_000, 100
QUEUE = "consumequeue/topic-3/1"


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """Messages of ten topics in turn, in two queues each: between two of one topic stand 36 KB of
    others.
    """
    broker = Broker(tmp_path, commit_log_file_size=LOG_FILE, consume_queue_file_size=QUEUE_FILE)
    fill(broker, COUNT)
    broker.stop()
    return tmp_path


def fill(broker: Broker, count: int, first: int = 0) -> None:
    for number in range(first, first + count):
        broker.put(
            body(number),
            f"topic-{number % TOPICS}",
            number // TOPICS % 2,
            TAGS="ab"[number // TOPICS % 2],
        )


def body(number: int) -> bytes:
    return b"%08d" % number * (BODY // 8)


def of_topic(topic: int, count: int = COUNT) -> list[bytes]:
    return [body(number) for number in range(topic, count, TOPICS)]


def asking(root: Path, wanted: StoreOptions) -> list[StorePart]:
    """The parts, whose queues are asked whatever the planner makes of it."""
    return [replace(part, queues=QueuePlace(root, QUEUE_FILE)) for part in plan_parts(wanted)]


def by_queues(root: Path, **given: str) -> list[Row]:
    wanted = options(root, **given)
    return [
        row
        for part in asking(root, wanted)
        for batch in read(part, wanted, ALL)
        for row in batch.to_pylist()
    ]


def bodies_by_queues(root: Path, **given: str) -> list[bytes]:
    return [row["body"] for row in by_queues(root, **given)]


def bytes_read(root: Path, monkeypatch: pytest.MonkeyPatch, **given: str) -> int:
    """Of the log, by the tasks of a read."""
    wanted = options(root, **given)
    (part,) = asking(root, wanted)
    sizes: list[int] = []
    read_spans, read_at = SegmentFiles.read_spans, SegmentFiles.read

    def spans(self: SegmentFiles, asked: Sequence[tuple[int, int]]) -> list[bytes]:
        found = read_spans(self, asked)
        sizes.extend(map(len, found))
        return found

    def at(self: SegmentFiles, place: int, size: int) -> bytes:
        found = read_at(self, place, size)
        sizes.append(len(found) if self.file_size == LOG_FILE else 0)
        return found

    with monkeypatch.context() as patched:
        patched.setattr(SegmentFiles, "read_spans", spans)
        patched.setattr(SegmentFiles, "read", at)
        for _ in read(part, wanted, ALL):
            pass
    return sum(sizes)


@pytest.mark.parametrize("each", ["5000", "90000", "10000000"])
def test_rows_are_the_same_with_and_without_queues(store: Path, each: str) -> None:
    assert bodies_by_queues(store, subscribe="topic-3", bytesPerPartition=each) == of_topic(3)
    assert bodies_by_queues(store, bytesPerPartition=each) == [
        body(number) for number in range(COUNT)
    ]
    assert bodies_by_queues(store, subscribe="none") == []


def test_only_what_is_wanted_is_read(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And the blanks at the ends of files, of which no queue tells."""
    topic = bytes_read(store, monkeypatch, subscribe="topic-3")
    queue = bytes_read(store, monkeypatch, assign=f'{{"topic-3":{{"{store.name}":[1]}}}}')

    assert COUNT * BODY / TOPICS < topic < 1.5 * COUNT * BODY / TOPICS
    assert queue < 0.75 * topic
    assert bytes_read(store, monkeypatch) > COUNT * BODY


def test_one_queue_of_a_topic_is_read_alone(store: Path) -> None:
    assert (
        bodies_by_queues(store, assign=f'{{"topic-3":{{"{store.name}":[1]}}}}') == of_topic(3)[1::2]
    )


def test_the_planner_takes_larger_parts_where_little_of_them_is_wanted(tmp_path: Path) -> None:
    broker = Broker(tmp_path, commit_log_file_size=8 << 20)
    for number in range(100):
        broker.put(bytes(70_000), "small" if number % 10 == 0 else "large")
    broker.stop()

    few = planned(tmp_path, subscribe="small", bytesPerPartition="100000")
    most = planned(tmp_path, subscribe="large", bytesPerPartition="100000")

    assert {part.queues is None for part in few} == {False}
    assert {part.queues is None for part in most} == {True}
    assert len(most) == 70
    assert len(few) in (6, 7, 8)
    assert SHARE_MIN < 0.1
    assert len(bodies(tmp_path, subscribe="small", bytesPerPartition="100000")) == 10


def test_a_small_log_of_many_queues_is_not_worth_asking_them(store: Path) -> None:
    assert all(part.queues is None for part in planned(store, subscribe="topic-3"))


# what no queue tells


def test_messages_that_no_queue_has_yet_are_found(tmp_path: Path) -> None:
    broker = Broker(tmp_path, commit_log_file_size=LOG_FILE, consume_queue_file_size=QUEUE_FILE)
    fill(broker, COUNT)
    broker.stop()
    for queue in (tmp_path / "consumequeue").glob("*/*/*"):
        data = queue.read_bytes()
        last = max(
            (at for at in range(0, len(data), ENTRY_SIZE) if data[at : at + 12].strip(b"\0")),
            default=-1,
        )
        if ENTRY.unpack_from(data, max(0, last))[0] > COUNT * BODY * 3 // 4:
            overwrite(queue, last, bytes(ENTRY_SIZE))

    assert bodies_by_queues(tmp_path, subscribe="topic-3") == of_topic(3)


def test_the_messages_of_a_deleted_topic_are_found(store: Path) -> None:
    shutil.rmtree(store / "consumequeue/topic-3")

    assert (
        bodies_by_queues(store, subscribe="topic-3")
        == bodies(store, subscribe="topic-3")
        == of_topic(3)
    )


def test_a_store_without_queues_is_read_without_them(store: Path) -> None:
    shutil.rmtree(store / "consumequeue")

    assert bodies_by_queues(store, subscribe="topic-3") == of_topic(3)


@pytest.mark.parametrize("number", [0, 1])
def test_a_queue_file_that_is_missing_loses_nothing(store: Path, number: int) -> None:
    sorted((store / QUEUE).iterdir())[number].unlink()

    assert bodies_by_queues(store, subscribe="topic-3") == of_topic(3)
    assert bodies_by_queues(store, subscribe="topic-4") == of_topic(4)


@pytest.mark.parametrize(
    "entry",
    [
        (0, 0, 0),
        (-1, 4000, 0),
        (7, 4000, 0),
        (60_000, 4135, 0),
        (60_000, 90, 0),
        (0, 2**31 - 1, 0),
        (0, -5, 0),
    ],
)
@pytest.mark.parametrize("number", [0, 2, 9])
@pytest.mark.parametrize("topic", [3, 4])
def test_an_entry_that_is_wrong_loses_nothing(
    store: Path, entry: tuple[int, int, int], number: int, topic: int
) -> None:
    per_file = QUEUE_FILE // ENTRY_SIZE
    file = sorted((store / QUEUE).iterdir())[number // per_file]
    overwrite(file, number % per_file * ENTRY_SIZE, ENTRY.pack(*entry))

    assert bodies_by_queues(
        store, subscribe=f"topic-{topic}", bytesPerPartition="90000"
    ) == of_topic(topic)


@pytest.mark.parametrize(("later", "more"), [(8, -8), (0, 8), (0, -8), (-8, 8), (-8, 0), (8, 0)])
@pytest.mark.parametrize("topic", [3, 4])
def test_an_entry_that_is_nearly_right_loses_nothing(
    store: Path, later: int, more: int, topic: int
) -> None:
    file = sorted((store / QUEUE).iterdir())[0]
    at, size, code = ENTRY.unpack_from(file.read_bytes(), 2 * ENTRY_SIZE)
    overwrite(file, 2 * ENTRY_SIZE, ENTRY.pack(at + later, size + more, code))

    assert bodies_by_queues(store, subscribe=f"topic-{topic}") == of_topic(topic)


def test_a_queue_that_does_not_fit_is_told_of(
    store: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = sorted((store / QUEUE).iterdir())[0]
    at, size, code = ENTRY.unpack_from(file.read_bytes(), 3 * ENTRY_SIZE)
    overwrite(file, 3 * ENTRY_SIZE, ENTRY.pack(at + 8, size - 8, code))

    assert bodies_by_queues(store, subscribe="topic-3") == of_topic(3)

    (line,) = [
        record.getMessage() for record in caplog.records if record.levelno == logging.WARNING
    ]
    assert line.startswith("consume queues differ from the log")
    assert f"store={store} " in line


# damage


@pytest.mark.parametrize(
    "field", [3, 5, 35, 90, 3000], ids=["size", "magic", "place", "body", "inside"]
)
def test_damage_of_what_is_wanted_is_told_of_as_without_queues(store: Path, field: int) -> None:
    damaged = next(
        row["commitLogOffset"]
        for row in by_queues(store, subscribe="topic-3")
        if row["queueOffset"] == 4
    )
    flip(store / f"commitlog/{damaged - damaged % LOG_FILE:020d}", damaged % LOG_FILE + field)

    with pytest.raises(CorruptStore) as told:
        by_queues(store, subscribe="topic-3")
    with pytest.raises(CorruptStore) as told_without:
        bodies(store, subscribe="topic-3")
    assert str(told.value) == str(told_without.value)
    left = bodies_by_queues(store, subscribe="topic-3", mode="PERMISSIVE")
    assert left == bodies(store, subscribe="topic-3", mode="PERMISSIVE")
    assert len(left) == COUNT // TOPICS - 1


def test_damage_of_what_is_not_wanted_is_not_looked_for(store: Path) -> None:
    damaged = next(
        row["commitLogOffset"]
        for row in by_queues(store, subscribe="topic-4")
        if row["queueOffset"] == 4
    )
    flip(store / f"commitlog/{damaged - damaged % LOG_FILE:020d}", damaged % LOG_FILE + 5)

    assert bodies_by_queues(store, subscribe="topic-8") == of_topic(8)
    with pytest.raises(CorruptStore):
        bodies(store, subscribe="topic-8")


def test_a_file_of_the_log_that_goes_meanwhile_is_told_of(store: Path) -> None:
    wanted = options(store, subscribe="topic-3")
    (part,) = plan_parts(wanted)
    (store / f"commitlog/{LOG_FILE:020d}").unlink()

    with pytest.raises(CorruptStore, match="there is no such file: it was deleted meanwhile"):
        list(read(replace(part, queues=QueuePlace(store, QUEUE_FILE)), wanted, ALL))


# light message queues


def test_a_record_in_two_queues_is_read_once(store: Path) -> None:
    shutil.copytree(store / QUEUE, store / "consumequeue/%LMQ%mine/0")

    assert bodies_by_queues(store, subscribe="topic-3") == of_topic(3)
    assert bodies_by_queues(store, subscribe="topic-4") == of_topic(4)
    assert bodies_by_queues(store, subscribe="%LMQ%mine") == []


def test_claims_that_overlap_are_no_claims(store: Path) -> None:
    (part,) = planned(store)
    queues = find_queues(store, QUEUE_FILE)
    found = Claims.of(queues, part.start, part.end, lambda topic, queue_id: topic == "topic-3")
    assert len(found.at) == COUNT
    assert int(found.is_wanted.sum()) == COUNT // TOPICS

    file = sorted((store / QUEUE).iterdir())[0]
    at, size, code = ENTRY.unpack_from(file.read_bytes(), 0)
    overwrite(file, 0, ENTRY.pack(at, size + 1, code))
    with pytest.raises(QueuesDisagree, match=f"claims 4135 bytes at|claims {size} bytes at"):
        Claims.of(queues, part.start, part.end, lambda topic, queue_id: True)
