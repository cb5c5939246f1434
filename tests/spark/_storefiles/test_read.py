"""Rows of store files, read as Spark's tasks do: nothing is missing, nothing comes twice, damage is
told of.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path

import pytest
from pyspark.sql.datasource import EqualTo, Filter, GreaterThan, GreaterThanOrEqual, In, LessThan

from roquet.protocol.records import message as m
from roquet.protocol.records.layout import checksum
from roquet.spark._arrow.corrupt import CORRUPT, TOLD_MAX
from roquet.spark._options.pushed_filters import narrowed
from roquet.spark._storefiles.plan import plan_parts
from roquet.spark._storefiles.read import CorruptStore, read
from tests.spark.store_rows import (
    ALL,
    COUNT,
    TINY,
    WITH_CORRUPT,
    bodies,
    messages,
    options,
    planned,
    rows,
)
from tests.storetool.stores import (
    LOG_FILE,
    START_MS,
    V6,
    Broker,
    file_of,
    flip,
    snapshot,
)

# what is read


@pytest.mark.parametrize("each", ["150", TINY, "3000", "1000000"])
def test_every_message_is_read_once_and_in_order_however_the_log_is_cut(
    tmp_path: Path, places: list[int], each: str
) -> None:
    assert bodies(tmp_path, bytesPerPartition=each) == messages()
    assert len(list((tmp_path / "commitlog").iterdir())) > 2


def test_a_row_has_every_column_of_its_message(tmp_path: Path) -> None:
    broker = Broker(tmp_path)
    broker.put(b"before")
    at = broker.put(
        b"hello", "orders", 3, born_host=V6, TAGS="T", KEYS="a b", UNIQ_KEY="U1", colour="blue"
    )
    broker.stop()

    (row,) = rows(tmp_path, subscribe="orders")

    born, stored = row.pop("bornTimestamp"), row.pop("storeTimestamp")
    assert born.timestamp() * 1000 == pytest.approx(START_MS + 2)
    assert stored.timestamp() * 1000 == pytest.approx(START_MS + 2)
    assert row.pop("properties") == [
        ("TAGS", "T"),
        ("KEYS", "a b"),
        ("UNIQ_KEY", "U1"),
        ("colour", "blue"),
    ]
    assert row == {
        "topic": "orders",
        "brokerName": tmp_path.name,
        "queueId": 3,
        "queueOffset": 0,
        "msgId": "U1",
        "keys": "a b",
        "tags": "T",
        "body": b"hello",
        "flag": 7,
        "sysFlag": m.BORN_HOST_V6,
        "bornHost": "[fe80::1]:50000",
        "storeHost": "127.0.0.1:10911",
        "reconsumeTimes": 0,
        "commitLogOffset": at,
        "bodyCRC": checksum(b"hello"),
    }


def test_nothing_is_written_and_no_lock_is_taken(tmp_path: Path, places: list[int]) -> None:
    before = snapshot(tmp_path)

    assert len(bodies(tmp_path)) == COUNT

    assert snapshot(tmp_path) == before


def test_what_no_consumer_gets_is_no_row(tmp_path: Path) -> None:
    broker = Broker(tmp_path)
    for kind in (0, m.TRANSACTION_PREPARED, m.TRANSACTION_COMMIT, m.TRANSACTION_ROLLBACK):
        broker.put(b"kind %d" % kind, sys_flag=kind, UNIQ_KEY=f"{kind}")
    broker.put(b"half", m.HALF_TOPIC, UNIQ_KEY="h")
    broker.put(b"op", m.HALF_OP_TOPIC)
    broker.put(b"again", m.RETRY_PREFIX + "G")
    broker.delayed()
    broker.stop()

    assert bodies(tmp_path) == [b"kind 0", b"kind %d" % m.TRANSACTION_COMMIT]
    assert bodies(tmp_path, subscribe="T") == bodies(tmp_path)


def test_topics_of_brokers_are_read_when_they_are_asked_for_by_name(tmp_path: Path) -> None:
    broker = Broker(tmp_path)
    broker.put(b"plain")
    broker.put(b"half", m.HALF_TOPIC, UNIQ_KEY="h")
    broker.put(b"again", m.RETRY_PREFIX + "G")
    broker.delayed()
    broker.stop()

    assert bodies(tmp_path, subscribe=f"{m.HALF_TOPIC},{m.SCHEDULE_TOPIC}") == [b"half", b"later"]
    assert bodies(tmp_path, subscribePattern="%RETRY%.*") == [b"again"]


def test_compressed_bodies_come_as_they_were(tmp_path: Path) -> None:
    broker = Broker(tmp_path)
    broker.put(zlib.compress(b"hello " * 50), sys_flag=m.COMPRESSED)
    broker.stop()

    assert bodies(tmp_path) == [b"hello " * 50]


def test_a_message_larger_than_what_is_read_at_once_is_read(tmp_path: Path) -> None:
    large = bytes(range(256)) * (5 << 12)
    broker = Broker(tmp_path, commit_log_file_size=12 << 20)
    broker.fill(3)
    broker.put(large)
    broker.fill(3)
    broker.stop()

    assert bodies(tmp_path, bytesPerPartition="1000") == [*messages(3), large, *messages(3)]


def test_tags_are_compared_by_their_letters(tmp_path: Path, places: list[int]) -> None:
    assert bodies(tmp_path, tags="a") == messages()[::2]
    assert bodies(tmp_path, tags="a || b") == messages()
    assert bodies(tmp_path, tags="other") == []


def test_topics_are_chosen_among_many(tmp_path: Path) -> None:
    broker = Broker(tmp_path)
    for number in range(90):
        broker.put(b"%d" % number, f"topic-{number % 9}")
    broker.stop()

    assert bodies(tmp_path, subscribe="topic-4") == [b"%d" % number for number in range(4, 90, 9)]
    assert len(bodies(tmp_path, subscribePattern="topic-[0-2]")) == 30
    assert bodies(tmp_path, subscribe="topic") == []


# where it begins and ends


@pytest.mark.parametrize("each", [TINY, "1000000"])
@pytest.mark.parametrize(
    ("since", "until"),
    [(0, 30), (30, 100), (20, 21), (20, 20), (-100, 1000), (-200_000, -100_000), (99, 10**6)],
)
def test_times_bound_the_messages_by_when_they_were_stored(
    tmp_path: Path, places: list[int], since: int, until: int, each: str
) -> None:
    first = START_MS + 1

    found = bodies(
        tmp_path,
        bytesPerPartition=each,
        startingTimestamp=str(first + since),
        endingTimestamp=str(first + until),
    )

    assert found == messages()[max(0, since) : max(0, until)]


def test_offsets_bound_the_queues_that_they_name(tmp_path: Path, places: list[int]) -> None:
    name = tmp_path.name

    found = rows(
        tmp_path,
        startingOffsets=f'{{"T":{{"{name}":{{"0":10,"1":-2}}}}}}',
        endingOffsets=f'{{"T":{{"{name}":{{"0":20}}, "other":{{"1":5}}}}}}',
        subscribe="T",
    )

    assert [row["queueOffset"] for row in found if row["queueId"] == 0] == list(range(10, 20))
    assert [row["queueOffset"] for row in found if row["queueId"] == 1] == list(range(50))


def test_times_bound_the_queues_that_they_name(tmp_path: Path, places: list[int]) -> None:
    found = bodies(
        tmp_path,
        subscribe="T",
        startingOffsetsByTimestamp=f'{{"T":{{"{tmp_path.name}":{{"0":{START_MS + 31}}}}}}}',
    )

    assert found == [body for number, body in enumerate(messages()) if number % 2 or number >= 30]


# conditions of a query


AT = datetime.fromtimestamp((START_MS + 41) / 1000, UTC)


@pytest.mark.parametrize(
    ("filters", "kept"),
    [
        ([EqualTo(("topic",), "T")], range(COUNT)),
        ([EqualTo(("topic",), "other")], []),
        ([In(("queueId",), (1, 7))], range(1, COUNT, 2)),
        ([EqualTo(("brokerName",), "another")], []),
        ([EqualTo(("tags",), "a"), GreaterThan(("queueOffset",), 9)], range(20, COUNT, 2)),
        ([GreaterThanOrEqual(("queueOffset",), 10), LessThan(("queueOffset",), 12)], range(20, 24)),
        ([LessThan(("storeTimestamp",), AT)], range(41)),
        ([GreaterThanOrEqual(("storeTimestamp",), AT)], range(40, COUNT)),
    ],
)
@pytest.mark.parametrize("each", [TINY, "1000000"])
def test_conditions_leave_out_rows_before_they_are_decoded(
    tmp_path: Path, places: list[int], filters: list[Filter], kept: Iterable[int], each: str
) -> None:
    """Spark itself tests times again: they are kept by milliseconds, and it compares
    microseconds.
    """
    wanted = options(tmp_path, bytesPerPartition=each).narrowed_to(narrowed(filters)[0])

    found = [
        row["body"]
        for part in plan_parts(wanted)
        for batch in read(part, wanted, ALL)
        for row in batch.to_pylist()
    ]

    assert found == [messages()[number] for number in kept]


def test_conditions_and_options_hold_together(tmp_path: Path, places: list[int]) -> None:
    wanted = options(
        tmp_path, tags="a", startingTimestamp=str(START_MS + 11), endingTimestamp=str(START_MS + 91)
    )
    filters = [
        In(("tags",), ("a", "c")),
        LessThan(("storeTimestamp",), AT),
        GreaterThan(("queueOffset",), 7),
    ]

    both = wanted.narrowed_to(narrowed(filters)[0])

    assert (both.tags, both.since_ms, both.until_ms) == (
        frozenset("a"),
        START_MS + 11,
        START_MS + 42,
    )
    assert [
        row["body"]
        for part in plan_parts(both)
        for batch in read(part, both, ALL)
        for row in batch.to_pylist()
    ] == [messages()[number] for number in range(16, 41, 2)]


def test_assigned_queues_are_all_that_is_read(tmp_path: Path, places: list[int]) -> None:
    assert bodies(tmp_path, assign=f'{{"T":{{"{tmp_path.name}":[1]}}}}') == messages()[1::2]


# stores that are not whole


def test_a_log_whose_first_files_were_deleted_begins_later(
    tmp_path: Path, places: list[int]
) -> None:
    (tmp_path / "commitlog" / f"{0:020d}").unlink()
    left = [body for at, body in zip(places, messages(), strict=True) if at >= LOG_FILE]

    assert bodies(tmp_path, bytesPerPartition=TINY) == left
    assert 0 < len(left) < COUNT


@pytest.mark.parametrize("each", [TINY, "1000000"])
@pytest.mark.parametrize("number", [0, 17, 40, COUNT - 1])
@pytest.mark.parametrize("field", [3, 5, 35, 90], ids=["size", "magic", "place", "body"])
def test_a_flipped_bit_loses_one_message_and_says_which(
    tmp_path: Path,
    places: list[int],
    number: int,
    field: int,
    each: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    name, index = file_of(tmp_path, places[number])
    flip(tmp_path / name, index + field)

    with pytest.raises(CorruptStore) as error:
        bodies(tmp_path, bytesPerPartition=each)
    assert (
        bodies(tmp_path, mode="PERMISSIVE", bytesPerPartition=each)
        == messages()[:number] + messages()[number + 1 :]
    )

    assert f"{tmp_path / name}, bytes {index} to " in str(error.value)
    assert any(f"{tmp_path / name}, bytes {index} to " in line for line in caplog.messages)


def test_a_damage_can_be_a_row(tmp_path: Path, places: list[int]) -> None:
    name, index = file_of(tmp_path, places[5])
    flip(tmp_path / name, index + 90)

    found = rows(tmp_path, schema=WITH_CORRUPT, mode="PERMISSIVE")

    (odd,) = [row for row in found if row[CORRUPT] is not None]
    size = places[6] - places[5]
    assert odd[CORRUPT].startswith(
        f"{tmp_path / name}, bytes {index} to {index + size - 1} ({size} bytes): its body"
    )
    assert (odd["commitLogOffset"], odd["brokerName"], odd["body"]) == (
        places[5],
        tmp_path.name,
        None,
    )
    assert len(found) == COUNT


def test_bodies_are_not_compared_with_their_checksums_where_nobody_asks(
    tmp_path: Path, places: list[int]
) -> None:
    name, index = file_of(tmp_path, places[5])
    flip(tmp_path / name, index + 90)

    assert len(bodies(tmp_path, checkCrc="false")) == COUNT


def test_a_damaged_body_of_another_topic_is_nobodys_concern(tmp_path: Path) -> None:
    broker = Broker(tmp_path)
    at = broker.put(b"damaged", "other")
    broker.put(b"sound")
    broker.stop()
    name, index = file_of(tmp_path, at)
    flip(tmp_path / name, index + 90)

    assert bodies(tmp_path, subscribe="T") == [b"sound"]
    with pytest.raises(CorruptStore):
        bodies(tmp_path, subscribe="other")


def test_a_body_that_does_not_decompress_is_a_damage(tmp_path: Path) -> None:
    broker = Broker(tmp_path)
    broker.put(b"first")
    broker.put(b"no zlib stream", sys_flag=m.COMPRESSED)
    broker.put(b"last")
    broker.stop()

    with pytest.raises(
        CorruptStore, match=r"bytes 97 to .* queue offset 1: the compressed body is damaged"
    ):
        bodies(tmp_path)
    assert bodies(tmp_path, mode="PERMISSIVE") == [b"first", b"last"]


def test_of_many_damages_the_log_has_some_and_their_number(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    broker = Broker(tmp_path)
    for _ in range(TOLD_MAX + 5):
        broker.put(b"no zlib stream", sys_flag=m.COMPRESSED)
    broker.put(b"last")
    broker.stop()

    assert bodies(tmp_path, mode="PERMISSIVE") == [b"last"]
    lines = [line for line in caplog.messages if line.startswith("damaged data skipped")]
    assert len(lines) == TOLD_MAX + 1
    assert lines[-1].startswith(f"damaged data skipped, total: count={TOLD_MAX + 5} range=")


def test_a_body_that_would_become_too_large_is_a_damage(tmp_path: Path) -> None:
    broker = Broker(tmp_path)
    for size in (4999, 5000, 5001):
        broker.put(zlib.compress(bytes(size)), sys_flag=m.COMPRESSED)
    broker.stop()

    found = rows(tmp_path, schema=WITH_CORRUPT, mode="PERMISSIVE", maxUncompressedBytes="5000")

    assert [len(row["body"]) for row in found if row[CORRUPT] is None] == [4999, 5000]
    (odd,) = [row[CORRUPT] for row in found if row[CORRUPT] is not None]
    assert "queue offset 2: the body, stored in" in odd
    assert odd.endswith("has more than 5000 when it is decompressed")


@pytest.mark.parametrize("each", [TINY, "1000000"])
def test_a_file_that_is_missing_in_the_middle_is_a_damage(
    tmp_path: Path, places: list[int], each: str
) -> None:
    (tmp_path / "commitlog" / f"{LOG_FILE:020d}").unlink()

    with pytest.raises(CorruptStore, match="there is no such file"):
        bodies(tmp_path, bytesPerPartition=each)
    left = [
        body
        for at, body in zip(places, messages(), strict=True)
        if not LOG_FILE <= at < 2 * LOG_FILE
    ]
    assert bodies(tmp_path, mode="PERMISSIVE", bytesPerPartition=each) == left


def test_a_file_that_is_deleted_between_planning_and_reading_is_told_of(
    tmp_path: Path, places: list[int]
) -> None:
    wanted = options(tmp_path)
    (part,) = planned(tmp_path)
    (tmp_path / "commitlog" / f"{0:020d}").unlink()

    with pytest.raises(CorruptStore, match="there is no such file: it was deleted meanwhile"):
        list(read(part, wanted, ALL))


def test_a_file_that_was_cut_short_is_read_as_far_as_it_goes(
    tmp_path: Path, places: list[int]
) -> None:
    first = tmp_path / "commitlog" / f"{0:020d}"
    first.write_bytes(first.read_bytes()[: places[7] + 20])

    with pytest.raises(CorruptStore):
        bodies(tmp_path)
    left = [
        body for number, body in enumerate(messages()) if number < 7 or places[number] >= LOG_FILE
    ]
    assert bodies(tmp_path, mode="PERMISSIVE") == left
