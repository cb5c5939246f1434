"""Batch reads as Spark's tasks do them, from our broker and from Apache's: what is asked for comes,
or is told of.
"""

from __future__ import annotations

import asyncio
import json
import time
import uuid
from collections.abc import Iterator, Sequence

import pyarrow as pa
import pytest

import roquet
from roquet.errors import OptionError, RoquetError, RouteNotFound
from roquet.spark._arrow.schema import ARROW_SCHEMA
from roquet.spark._options.ranges import DataLoss, QueueRange
from roquet.spark._options.read import ReadOptions
from roquet.spark._read.batch import plan, read
from tests.interop import wire
from tests.interop.apache import require_java
from tests.interop.ground import BROKER, QUICK, Ground
from tests.interop.processes import SEND_MS_MAX
from tests.spark.conftest import QUEUES, topic

__all__ = ["topic"]

pytestmark = [pytest.mark.process, pytest.mark.interop]

SCHEMA = pa.schema(
    [ARROW_SCHEMA.field(name) for name in ("queueId", "queueOffset", "body", "storeTimestamp")]
)
DELETE_TOPIC_IN_BROKER, DELETE_TOPIC_IN_NAMESRV = 215, 216
EACH = 10
"""Messages in each queue of a topic but the last, which has none."""
SMALL_FILES = {"mappedFileSizeCommitLog": 64 * 1024, "mappedFileSizeConsumeQueue": 20 * 1000}
"""Apache's broker looks for a queue's begin in its first file only."""


@pytest.fixture(scope="module", params=["ours", "Apache's"])
def ground(request: pytest.FixtureRequest) -> Iterator[Ground]:
    if request.param != "ours":
        require_java()
    with Ground(is_apache=request.param != "ours", broker={**QUICK, **SMALL_FILES}) as running:
        yield running


@pytest.fixture
def filled(ground: Ground, topic: str) -> str:
    for queue_id in range(QUEUES - 1):
        send(ground, topic, queue_id, bodies(queue_id))
    return topic


def bodies(queue_id: int, count: int = EACH, size: int = 0) -> list[str]:
    return [f"{queue_id}-{number}".ljust(size, ".") for number in range(count)]


ALL = bodies(0) + bodies(1)


def send(ground: Ground, topic: str, queue_id: int, texts: Sequence[str]) -> None:
    """With tags a and b in turn."""

    async def sending() -> None:
        queue = roquet.MessageQueue(topic, BROKER, queue_id)
        async with roquet.Producer(ground.namesrv, "sender", timeout_ms=SEND_MS_MAX) as producer:
            for number, text in enumerate(texts):
                await producer.send(
                    roquet.Message(topic, text.encode(), tags="ab"[number % 2]), queue=queue
                )

    asyncio.run(sending())


def options(ground: Ground, **given: str) -> ReadOptions:
    return ReadOptions.of_batch(
        {"nameServer": ground.namesrv, "noProgressTimeoutMs": "5000"} | given
    )


def rows_of(part: QueueRange, wanted: ReadOptions) -> Iterator[dict[str, object]]:
    for batch in read(part, wanted, SCHEMA):
        yield from batch.to_pylist()


def texts(ground: Ground, **given: str) -> list[str]:
    """The bodies of all that is asked for, queue by queue."""
    wanted = options(ground, **given)
    return [bytes(row["body"]).decode() for part in plan(wanted) for row in rows_of(part, wanted)]  # type: ignore[call-overload]


def by_queue(topic: str, **numbers: int) -> str:
    """JSON of the form that options have: `q0=5` is offset 5 of queue 0."""
    return json.dumps({topic: {BROKER: {name[1:]: number for name, number in numbers.items()}}})


def delete(ground: Ground, topic: str) -> None:
    assert wire.ask(ground.broker.address, DELETE_TOPIC_IN_BROKER, {"topic": topic}).code == 0
    assert wire.ask(ground.namesrv, DELETE_TOPIC_IN_NAMESRV, {"topic": topic}).code == 0


# what is asked for


def test_every_message_comes_once_and_in_order(ground: Ground, filled: str) -> None:
    assert texts(ground, subscribe=filled) == ALL
    assert texts(ground, subscribe=filled, minPartitions="7") == ALL
    assert texts(ground, subscribe=filled, maxRecordsPerPartition="3", pullBatchSize="2") == ALL


def test_a_topic_without_messages_has_no_rows(ground: Ground, topic: str) -> None:
    assert texts(ground, subscribe=topic) == []


def test_a_pattern_that_no_topic_matches_has_no_rows(ground: Ground) -> None:
    assert texts(ground, subscribePattern="no-such-.*") == []


def test_a_pattern_finds_its_topics(ground: Ground, filled: str) -> None:
    assert texts(ground, subscribePattern=filled[:-1] + ".") == ALL


def test_offsets_bound_each_queue(ground: Ground, filled: str) -> None:
    found = texts(
        ground,
        subscribe=filled,
        startingOffsets=by_queue(filled, q0=4, q1=-2),
        endingOffsets=by_queue(filled, q0=6, q1=3),
    )

    assert found == bodies(0)[4:6] + bodies(1)[:3]


def test_queues_assigned_are_all_that_is_read(ground: Ground, filled: str) -> None:
    assert texts(ground, assign=json.dumps({filled: {BROKER: [1, 2]}})) == bodies(1)


@pytest.mark.parametrize(
    ("tags", "kept"), [("a", slice(0, None, 2)), ("b||c", slice(1, None, 2)), ("c", slice(0))]
)
def test_tags_are_compared_by_their_letters(
    ground: Ground, filled: str, tags: str, kept: slice
) -> None:
    assert texts(ground, subscribe=filled, tags=tags) == bodies(0)[kept] + bodies(1)[kept]


def test_times_bound_a_read_exactly(ground: Ground, topic: str) -> None:
    send(ground, topic, 0, bodies(0))
    time.sleep(0.02)  # a broker's clock counts milliseconds
    send(ground, topic, 0, bodies(5))
    wanted = options(ground, subscribe=topic)
    stored = [row["storeTimestamp"] for part in plan(wanted) for row in rows_of(part, wanted)]
    first_of_second = round(stored[EACH].timestamp() * 1000)  # type: ignore[attr-defined]

    since = {
        "startingTimestamp": str(first_of_second),
        "startingOffsetsByTimestampStrategy": "latest",
    }
    assert texts(ground, subscribe=topic, **since) == bodies(5)
    assert texts(ground, subscribe=topic, endingTimestamp=str(first_of_second)) == bodies(0)
    assert texts(ground, subscribe=topic, endingTimestamp=str(first_of_second + 10**7)) == bodies(
        0
    ) + bodies(5)


def test_messages_that_fill_their_files_come_whole(ground: Ground) -> None:
    topic = f"T-{uuid.uuid4().hex[:8]}"
    ground.create_topic(topic, 1)
    large = "x" * (SMALL_FILES["mappedFileSizeCommitLog"] - 1000)
    send(ground, topic, 0, [large, "small", large])

    assert texts(ground, subscribe=topic) == [large, "small", large]


# what is not there


@pytest.mark.parametrize(
    ("given", "error", "words"),
    [
        ({"subscribe": "no-such-topic"}, RouteNotFound, "no-such-topic"),
        (
            {"assign": '{{"{topic}":{{"ground-a":[0,7]}}}}'},
            OptionError,
            "assign: there is no queue {topic}@ground-a:7",
        ),
        (
            {"assign": '{{"{topic}":{{"other":[0]}}}}'},
            OptionError,
            "assign: there is no queue {topic}@other:0",
        ),
        (
            {"subscribe": "{topic}", "startingOffsets": '{{"{topic}":{{"ground-a":{{"7":1}}}}}}'},
            OptionError,
            "startingOffsets: there is no queue {topic}@ground-a:7; topic {topic} has {topic}@ground-a:0",
        ),
        (
            {"subscribe": "{topic}", "startingOffsets": '{{"{topic}":{{"ground-a":{{"0":11}}}}}}'},
            DataLoss,
            "wanted offset 11, min 0, max 10",
        ),
        (
            {"subscribe": "{topic}", "endingOffsets": '{{"{topic}":{{"ground-a":{{"0":11}}}}}}'},
            DataLoss,
            "wanted offset 11, min 0, max 10",
        ),
        (
            {"subscribe": "{topic}", "startingTimestamp": "9999999999999"},
            OptionError,
            "has no message stored at 9999999999999 or later",
        ),
    ],
)
def test_what_is_not_there_is_told_of(
    ground: Ground, filled: str, given: dict[str, str], error: type[RoquetError], words: str
) -> None:
    with pytest.raises(error) as told:
        texts(ground, **{name: value.format(topic=filled) for name, value in given.items()})
    assert words.format(topic=filled) in str(told.value)


@pytest.mark.parametrize(
    ("given", "found"),
    [
        ({"subscribe": "{topic},no-such-topic"}, ALL),
        ({"assign": '{{"{topic}":{{"ground-a":[1,7],"other":[0]}}}}'}, bodies(1)),
        (
            {
                "subscribe": "{topic}",
                "startingOffsets": '{{"{topic}":{{"ground-a":{{"0":99,"7":1}}}}}}',
            },
            bodies(1),
        ),
        (
            {"subscribe": "{topic}", "startingTimestamp": "9999999999999"}
            | {"startingOffsetsByTimestampStrategy": "latest"},
            [],
        ),
    ],
)
def test_what_may_be_lost_is_left_out(
    ground: Ground, filled: str, given: dict[str, str], found: list[str]
) -> None:
    named = {name: value.format(topic=filled) for name, value in given.items()}

    assert texts(ground, **named, failOnDataLoss="false") == found


# what goes meanwhile


def test_a_topic_deleted_between_planning_and_reading_is_told_of(
    ground: Ground, filled: str
) -> None:
    wanted = options(ground, subscribe=filled, noProgressTimeoutMs="1000")
    part, *_ = plan(wanted)
    delete(ground, filled)

    with pytest.raises(RoquetError, match=f"{filled}@{BROKER}:0") as told:
        list(rows_of(part, wanted))
    assert any("while reading" in note for note in told.value.__notes__)


def test_a_broker_that_restarts_while_it_is_read_is_read_on(ground: Ground, filled: str) -> None:
    wanted = options(ground, subscribe=filled, pullBatchSize="1", noProgressTimeoutMs="60000")
    first, second = plan(wanted)
    ground.broker.kill()
    ground.broker.start()

    found = [
        bytes(row["body"]).decode()  # type: ignore[call-overload]
        for part in (first, second)
        for row in rows_of(part, wanted)
    ]

    assert found == ALL


def test_messages_whose_file_was_deleted_are_data_loss_or_left_out(ground: Ground) -> None:
    topic = f"T-{uuid.uuid4().hex[:8]}"
    ground.create_topic(topic, 1)
    send(ground, topic, 0, bodies(0, 200, 1000))
    wanted = options(ground, subscribe=topic)
    (part,) = plan(wanted)
    ground.broker.stop()
    *old, _, _ = sorted((ground.broker.store_dir / "commitlog").iterdir())
    for file in old:
        file.unlink()
    ground.broker.start()

    left = texts(ground, subscribe=topic)

    assert 0 < len(left) < 200
    assert left == bodies(0, 200, 1000)[-len(left) :]
    with pytest.raises(DataLoss, match=f"wanted offset 0, min {200 - len(left)}, max 200"):
        texts(ground, subscribe=topic, startingOffsets=by_queue(topic, q0=0))
    with pytest.raises(DataLoss, match=f"min {200 - len(left)}, max 200"):
        list(rows_of(part, wanted))
    assert (
        texts(
            ground, subscribe=topic, startingOffsets=by_queue(topic, q0=0), failOnDataLoss="false"
        )
        == left
    )
