"""Conditions of a query become bounds of the read, and those that it does not meet exactly go back
to Spark.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    LessThan,
    LessThanOrEqual,
    Not,
    StringStartsWith,
)

from roquet.protocol.records.message import MessageQueue
from roquet.spark._options.pushed_filters import EVERYTHING, narrowed
from roquet.spark._options.ranges import QueueRange

QUEUE = MessageQueue("orders", "broker-a", 3)
AT = datetime(2023, 11, 14, 22, 13, 20, 500, tzinfo=UTC)
AT_MS = 1_700_000_000_000


@pytest.mark.parametrize(
    ("wanted", "passes"),
    [
        (EqualTo(("topic",), "orders"), True),
        (EqualNullSafe(("topic",), "stock"), False),
        (In(("brokerName",), ("broker-b", "broker-a")), True),
        (In(("brokerName",), ("broker-b",)), False),
        (In(("queueId",), (1, 3)), True),
        (EqualTo(("queueId",), 4), False),
    ],
)
def test_queues_are_chosen_and_spark_tests_nothing_more(wanted: Filter, passes: bool) -> None:
    narrowing, left = narrowed([wanted])
    assert narrowing.wants(QUEUE) == passes
    assert left == []


@pytest.mark.parametrize(
    ("wanted", "start", "end"),
    [
        (EqualTo(("queueOffset",), 7), 7, 8),
        (GreaterThan(("queueOffset",), 7), 8, 20),
        (GreaterThanOrEqual(("queueOffset",), 7), 7, 20),
        (LessThan(("queueOffset",), 7), 5, 7),
        (LessThanOrEqual(("queueOffset",), 7), 5, 8),
        (GreaterThan(("queueOffset",), -9), 5, 20),
    ],
)
def test_offsets_are_bounded_exactly(wanted: Filter, start: int, end: int) -> None:
    narrowing, left = narrowed([wanted])
    assert narrowing.clip([QueueRange(QUEUE, 5, 20)]) == [QueueRange(QUEUE, start, end)]
    assert left == []


def test_what_no_offset_passes_is_not_read_at_all() -> None:
    narrowing, _ = narrowed([LessThan(("queueOffset",), 9), GreaterThan(("queueOffset",), 9)])
    assert narrowing.clip([QueueRange(QUEUE, 5, 20)]) == []


@pytest.mark.parametrize(
    ("wanted", "times"),
    [
        (GreaterThan(("storeTimestamp",), AT), (AT_MS, None)),
        (GreaterThanOrEqual(("storeTimestamp",), AT), (AT_MS, None)),
        (LessThan(("storeTimestamp",), AT), (None, AT_MS + 1)),
        (LessThanOrEqual(("storeTimestamp",), AT), (None, AT_MS + 1)),
        (EqualTo(("storeTimestamp",), AT), (AT_MS, AT_MS + 1)),
    ],
)
def test_times_bound_the_read_and_spark_tests_the_rest(
    wanted: Filter, times: tuple[int | None, int | None]
) -> None:
    narrowing, left = narrowed([wanted])
    assert (narrowing.time_from_ms, narrowing.time_until_ms) == times
    assert left == [wanted]


def test_conditions_add_up() -> None:
    narrowing, left = narrowed(
        [
            In(("queueId",), (1, 3)),
            EqualTo(("queueId",), 3),
            In(("tags",), ("A", "B")),
            EqualTo(("tags",), "B"),
            GreaterThan(("storeTimestamp",), AT),
            GreaterThan(("storeTimestamp",), AT + timedelta(seconds=1)),
            GreaterThan(("queueOffset",), 5),
            GreaterThan(("queueOffset",), 9),
        ]
    )
    assert narrowing.allowed == {"queueId": frozenset({3}), "tags": frozenset({"B"})}
    assert narrowing.tags_among(None) == frozenset({"B"})
    assert (narrowing.offset_from, narrowing.time_from_ms, len(left)) == (10, AT_MS + 1000, 2)


@pytest.mark.parametrize(
    "wanted",
    [
        Not(EqualTo(("topic",), "orders")),
        StringStartsWith(("topic",), "or"),
        IsNotNull(("queueId",)),
        EqualTo(("keys",), "k"),
        EqualNullSafe(("tags",), None),
        EqualTo(("queueId",), "3"),
        In(("queueOffset",), (1, 2)),
        In(("storeTimestamp",), (AT,)),
        EqualTo(("properties", "KEYS"), "k"),
        EqualTo(("storeTimestamp",), AT.replace(tzinfo=None)),
        GreaterThan(("topic",), "a"),
    ],
)
def test_what_is_not_understood_goes_back_to_spark(wanted: Filter) -> None:
    assert narrowed([wanted]) == (EVERYTHING, [wanted])
