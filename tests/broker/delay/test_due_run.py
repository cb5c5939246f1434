"""Which messages of a delay level's entries can be delivered, and to which queues.

See docs/storage/delayed-messages.md#the-delivered-record.
"""

from __future__ import annotations

import logging
import random
from pathlib import Path
from typing import Final

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from roquet.broker.delay.due_run import DueRun
from roquet.errors import UnreadableFile
from roquet.protocol.records.layout import BLANK_MAGIC
from roquet.protocol.records.message import HALF_TOPIC, TOPIC_SIZE_MAX, join_properties
from roquet.protocol.records.record import decode
from roquet.storage.queues.consume_queue import ConsumeQueue
from roquet.storage.store import Store
from tests.simulation.disk import Drive
from tests.storage.records import append_one
from tests.storage.small_stores import Clock, config

FILE_SIZE: Final = 4096


def where(topic: str, queue_id: object) -> str:
    return join_properties({"REAL_TOPIC": topic, "REAL_QID": str(queue_id)})


class Level:
    """The queue of one delay level in a store with small files."""

    def __init__(self) -> None:
        self.drive = Drive(random.Random(1))
        files = config(
            Path("/store"),
            commit_log_file_size=FILE_SIZE,
            consume_queue_file_size=20 * 100,
            index_enabled=False,
        )
        self.store = Store(files, Clock().now_ms, self.drive.mount())
        self.store.open()
        self.queue = self.store.queue("SCHEDULE_TOPIC_XXXX", 2)

    def put(self, *texts: str, size: int = 10) -> None:
        """Store a message with these properties each; bodies are their numbers."""
        for text in texts:
            body = b"%d" % self.queue.max_offset
            append_one(self.store, self.queue, body.ljust(size), text.encode())
        self.store.end_turn()

    def entries(self, first: int = 0) -> npt.NDArray[np.void]:
        return self.queue.columns(first, self.queue.max_offset - first).copy()

    def run(self, first: int = 0, *passed_over: str) -> DueRun:
        return DueRun(self.store, first, self.entries(first), passed_over)

    def log_file(self, number: int) -> Path:
        return Path("/store/commitlog") / f"{number * FILE_SIZE:020}"


@pytest.fixture
def level() -> Level:
    return Level()


def names(queues: list[ConsumeQueue]) -> list[tuple[str, int]]:
    return [(queue.topic, queue.queue_id) for queue in queues]


def numbers(run: DueRun) -> list[int]:
    """The bodies of the records in a run's block."""
    block = run.block
    return [int(decode(block.data, int(start), verify=True).body) for start in block.starts]


def test_each_message_has_the_queue_that_its_properties_name(level: Level) -> None:
    level.put(where("T", 3), where("U", 0), where("T", 3))
    run = level.run()
    assert names(run.queues) == [("T", 3), ("U", 0), ("T", 3)]
    assert run.queues[0] is level.store.queue("T", 3)
    assert (run.offsets, run.gone, numbers(run)) == ([0, 1, 2], 0, [0, 1, 2])


def test_offsets_are_those_of_the_entries(level: Level) -> None:
    level.put(*[where("T", 0)] * 5)
    run = level.run(3)
    assert (run.offsets, numbers(run)) == ([3, 4], [3, 4])


def test_no_entries_are_an_empty_run(level: Level) -> None:
    run = level.run()
    assert (run.offsets, run.queues, run.gone, len(run.block.data)) == ([], [], 0, 0)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "REAL_TOPIC\x01T",
        "REAL_QID\x010",
        where("", 0),
        where("no blank", 0),
        where("../up", 0),
        where("t" * (TOPIC_SIZE_MAX + 1), 0),
        where(HALF_TOPIC, 0),
        where("T", -1),
        where("T", ""),
        where("T", "1.0"),
        where("T", "١"),
        where("T", 10**9),
        "XREAL_TOPIC\x01T\x02REAL_QID\x010",
        "REAL_TOPIC\x01T\x02XREAL_QID\x010",
        "REAL_TOPICX\x01T\x02REAL_QID\x010",
    ],
)
def test_a_message_that_names_no_valid_queue_is_logged_and_left_out(
    level: Level, text: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.ERROR)
    level.put("", where("T", 1), text, where("T", 1))
    at = int(level.entries()["physical"][2])
    run = level.run(1)
    assert (run.offsets, run.gone, numbers(run)) == ([1, 3], 0, [1, 3])
    assert names(run.queues) == [("T", 1)] * 2
    (line,) = caplog.messages
    assert f"physical_offset={at} " in line


def test_a_run_without_any_valid_queue_is_empty(level: Level) -> None:
    level.put("", "")
    run = level.run()
    assert (run.offsets, run.queues, len(run.block.data)) == ([], [], 0)


@pytest.mark.parametrize(
    "text",
    [
        where("T", 999_999_999),
        where("t" * TOPIC_SIZE_MAX, 0),
        "XREAL_TOPIC\x01V\x02REAL_QID\x010\x02REAL_TOPIC\x01T",
        "A\x01REAL_TOPIC\x02REAL_TOPIC\x01T\x02REAL_QID\x0100",
        where("T", 0) + "\x02",
    ],
)
def test_names_at_the_limits_and_properties_in_any_order_are_found(level: Level, text: str) -> None:
    level.put(text)
    assert level.run().offsets == [0]


@settings(max_examples=30)
@given(
    st.lists(
        st.sampled_from(
            [
                *("REAL_TOPIC\x01T", "REAL_TOPIC\x01U", "REAL_QID\x011", "REAL_QID\x012"),
                *("XREAL_TOPIC\x01V", "REAL_QID", "A\x01REAL_TOPIC\x01W", "A\x01", ""),
            ]
        )
    )
)
def test_the_first_property_of_a_name_counts_wherever_it_stands(parts: list[str]) -> None:
    level = Level()
    level.put("\x02".join(parts))
    topics = [part[-1] for part in parts if part.startswith("REAL_TOPIC\x01")]
    ids = [int(part[-1]) for part in parts if part.startswith("REAL_QID\x01")]
    is_named = bool(topics and ids)
    assert names(level.run().queues) == ([(topics[0], ids[0])] if is_named else [])


# entries and files that are not there


def test_entries_whose_messages_were_deleted_are_counted_as_gone(level: Level) -> None:
    level.put(*[where("T", 0)] * 30, size=300)
    starts = level.store.log.file_starts
    for deletion in level.store.log.forget_before(starts[1]):
        deletion()
    run = level.run()
    gone = sum(int(at) < level.store.log.start for at in level.entries()["physical"])
    assert run.gone == gone > 0
    assert run.offsets == numbers(run) == list(range(gone, 30))


@pytest.mark.parametrize(
    ("field", "value"),
    [("size", 0), ("size", -1), ("size", 2**31 - 1), ("physical", -1), ("physical", 1 << 40)],
)
def test_an_entry_that_names_no_place_in_the_log_counts_as_gone(
    level: Level, field: str, value: int
) -> None:
    level.put(*[where("T", 0)] * 3)
    entries = level.entries()
    entries[field][1] = value
    run = DueRun(level.store, 0, entries)
    assert (run.gone, run.offsets, numbers(run)) == (1, [0, 2], [0, 2])


def test_an_entry_that_reaches_into_the_next_file_counts_as_gone(level: Level) -> None:
    level.put(*[where("T", 0)] * 30, size=300)
    entries = level.entries()
    last = int(np.flatnonzero(entries["physical"] < FILE_SIZE)[-1])
    entries["size"][last] = FILE_SIZE
    run = DueRun(level.store, 0, entries)
    assert run.gone == 1
    assert last not in run.offsets


@pytest.mark.parametrize("shift", [-1, 1, 40])
def test_an_entry_that_is_not_of_its_records_size_is_left_out(level: Level, shift: int) -> None:
    level.put(*[where("T", 0)] * 3)
    entries = level.entries()
    entries["size"][1] += shift
    run = DueRun(level.store, 0, entries)
    assert (run.gone, run.offsets, numbers(run)) == (0, [0, 2], [0, 2])


@pytest.mark.parametrize(
    ("field_at", "value"),
    [(0, 123), (4, 123), (4, BLANK_MAGIC)],
    ids=["size", "magic", "blank"],
)
def test_a_record_with_a_damaged_head_is_left_out(level: Level, field_at: int, value: int) -> None:
    level.put(*[where("T", 0)] * 3)
    at = int(level.entries()["physical"][1]) + field_at
    level.store.log.mapped(at)[at : at + 4] = value.to_bytes(4, "big")
    run = level.run()
    assert (run.gone, run.offsets, numbers(run)) == (0, [0, 2], [0, 2])


def test_an_unreadable_file_is_an_error_unless_it_is_passed_over(level: Level) -> None:
    level.put(*[where("T", 0)] * 30, size=300)
    path = level.log_file(1)
    level.drive.unreadable.add(path)
    with pytest.raises(UnreadableFile) as error:
        level.run()
    assert str(error.value.filename) == str(path)
    with pytest.raises(UnreadableFile):
        level.run(0, str(level.log_file(0)))
    run = level.run(0, str(path))
    places = level.entries()["physical"] // FILE_SIZE
    assert run.offsets == numbers(run) == np.flatnonzero(places != 1).tolist()
    assert (run.gone, len(run.offsets) < 30) == (0, True)


# what is left


def test_messages_that_were_stored_are_dropped_from_the_front(level: Level) -> None:
    level.put(*[where("T", queue_id) for queue_id in range(5)])
    run = level.run()
    run.drop(2)
    assert (run.offsets, numbers(run)) == ([2, 3, 4], [2, 3, 4])
    assert [queue.queue_id for queue in run.queues] == [2, 3, 4]
    run.drop(1)
    assert (run.offsets, numbers(run)) == ([3, 4], [3, 4])
    run.drop(2)
    assert (run.offsets, run.queues) == ([], [])


def test_what_is_left_of_a_run_is_stored_by_further_appends(level: Level) -> None:
    level.put(*[where("T", 0)] * 30, size=300)
    run = level.run()
    appends = 0
    while run.queues:
        run.drop(level.store.writer.append_moved(run.block, run.queues))
        appends += 1
    assert appends > 1, "the log takes as many as its file has room for"
    target = level.store.queue("T", 0)
    bodies = [
        int(decode(level.store.log.stored(at, size)).body)
        for at, size, *_ in target.entries(0, target.max_offset)
    ]
    assert bodies == list(range(30))
