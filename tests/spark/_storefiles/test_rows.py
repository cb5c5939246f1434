"""Records are selected in columns as each alone would be."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql.datasource import EqualTo, Filter, GreaterThanOrEqual, In, LessThan

from roquet.protocol.records import message as m
from roquet.protocol.records.block import RecordBlock
from roquet.protocol.records.message import MessageQueue
from roquet.protocol.records.record import Record
from roquet.spark._options.pushed_filters import narrowed
from roquet.spark._options.store import StoreOptions
from roquet.spark._storefiles.rows import RowChoice
from tests.protocol.examples import RECORD

BROKER = "broker-a"
TOPICS = ("orders", "stock", "%RETRY%g")
KINDS = (0, m.TRANSACTION_PREPARED, m.TRANSACTION_COMMIT, m.TRANSACTION_ROLLBACK)
A_WHILE = settings(max_examples=50)
RECORDS = st.builds(
    replace,
    st.just(RECORD),
    topic=st.sampled_from(TOPICS),
    queue_id=st.integers(0, 2),
    queue_offset=st.integers(0, 9),
    store_ms=st.integers(0, 9),
    sys_flag=st.sampled_from((0, *KINDS)),
)


def selected(
    records: Sequence[Record], filters: Sequence[Filter] = (), **given: str
) -> list[Record]:
    """The records of one block that a read with these options and filters selects."""
    options = StoreOptions.of({"path": "/"} | given).narrowed_to(narrowed(list(filters))[0])
    data = [record.encode() for record in records]
    starts = np.cumsum([0, *map(len, data)])
    block = RecordBlock(0, b"".join(data), starts[:-1], int(starts[-1]))
    return [records[row] for row in RowChoice(options, BROKER).of(block).tolist()]


def by_queue(topic: str, queue_id: int, value: int) -> str:
    return f'{{"{topic}":{{"{BROKER}":{{"{queue_id}":{value}}}}}}}'


def is_message(record: Record) -> bool:
    return record.sys_flag in (0, m.TRANSACTION_COMMIT)


@A_WHILE
@given(st.lists(RECORDS, max_size=8), st.sets(st.sampled_from(TOPICS), min_size=1))
def test_topics_are_selected_by_name(records: list[Record], topics: set[str]) -> None:
    assert selected(records, subscribe=",".join(topics)) == [
        record for record in records if is_message(record) and record.topic in topics
    ]


@A_WHILE
@given(st.lists(RECORDS, max_size=8))
def test_without_a_selection_the_topics_of_applications_are_selected(records: list[Record]) -> None:
    expected = [record for record in records if is_message(record) and record.topic[0] != "%"]

    assert selected(records) == selected(records, subscribePattern="[a-z].*") == expected


@A_WHILE
@given(st.lists(RECORDS, max_size=8), st.integers(0, 9), st.integers(0, 9))
def test_offsets_bound_the_queue_that_they_name(
    records: list[Record], start: int, end: int
) -> None:
    def is_within(record: Record) -> bool:
        is_named = (record.topic, record.queue_id) == ("orders", 1)
        return not is_named or start <= record.queue_offset < end

    assert selected(
        records,
        subscribe=",".join(TOPICS),
        startingOffsets=by_queue("orders", 1, start),
        endingOffsets=by_queue("orders", 1, end),
    ) == [record for record in records if is_message(record) and is_within(record)]


@A_WHILE
@given(st.lists(RECORDS, max_size=8), st.integers(0, 9), st.integers(0, 9))
def test_times_bound_the_queue_that_they_name_or_all(
    records: list[Record], start: int, end: int
) -> None:
    def is_within(record: Record) -> bool:
        is_named = (record.topic, record.queue_id) == ("orders", 1)
        return (not is_named or start <= record.store_ms) and record.store_ms < end

    assert selected(
        records,
        subscribe=",".join(TOPICS),
        startingOffsetsByTimestamp=by_queue("orders", 1, start),
        endingTimestamp=str(end),
    ) == [record for record in records if is_message(record) and is_within(record)]


@A_WHILE
@given(st.lists(RECORDS, max_size=8), st.integers(0, 9))
def test_assigned_queues_are_selected_within_their_bounds(
    records: list[Record], start: int
) -> None:
    def is_within(record: Record) -> bool:
        queue = (record.topic, record.queue_id)
        return queue == ("stock", 2) or (queue == ("orders", 1) and start <= record.queue_offset)

    assert selected(
        records,
        assign=f'{{"orders":{{"{BROKER}":[1],"broker-b":[0]}},"stock":{{"{BROKER}":[2]}}}}',
        startingOffsets=by_queue("orders", 1, start),
    ) == [record for record in records if is_message(record) and is_within(record)]


@A_WHILE
@given(st.lists(RECORDS, max_size=8))
def test_filters_of_a_query_leave_out_more(records: list[Record]) -> None:
    filters = [
        In(("queueId",), (0, 2)),
        GreaterThanOrEqual(("queueOffset",), 3),
        LessThan(("queueOffset",), 7),
        EqualTo(("topic",), "orders"),
    ]

    assert selected(records, filters) == [
        record
        for record in records
        if is_message(record)
        and (record.topic, record.queue_id % 2) == ("orders", 0)
        and 3 <= record.queue_offset < 7
    ]


def test_bounds_of_another_broker_bound_nothing() -> None:
    records = [replace(RECORD, topic="orders", queue_offset=offset) for offset in range(3)]

    assert selected(records, subscribe="orders", startingOffsets='{"orders":{"b":{"3":2}}}') == (
        records
    )


@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        ({"subscribe": "orders"}, {("orders", 0), ("orders", 1)}),
        ({"subscribePattern": "or.*|st.*"}, {("orders", 0), ("orders", 1), ("stock", 0)}),
        ({"assign": f'{{"orders":{{"{BROKER}":[1]}},"stock":{{"b":[0]}}}}'}, {("orders", 1)}),
    ],
)
def test_a_queue_is_wanted_if_records_of_it_may_be_selected(
    given: dict[str, str], wanted: set[tuple[str, int]]
) -> None:
    queues = [("orders", 0), ("orders", 1), ("stock", 0), ("%RETRY%g", 0)]
    choice = RowChoice(StoreOptions.of({"path": "/"} | given), BROKER)

    assert {queue for queue in queues if choice.wants(*queue)} == wanted


def test_a_queue_that_a_filter_leaves_out_is_not_wanted() -> None:
    narrowing, _ = narrowed([EqualTo(("queueId",), 1), EqualTo(("topic",), "orders")])
    choice = RowChoice(StoreOptions.of({"path": "/"}).narrowed_to(narrowing), BROKER)

    wanted = [MessageQueue("orders", BROKER, 1)]
    assert [
        queue
        for queue in (*wanted, MessageQueue("orders", BROKER, 0), MessageQueue("stock", BROKER, 1))
        if choice.wants(queue.topic, queue.queue_id)
    ] == wanted
