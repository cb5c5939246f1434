"""Streams through Spark, from our broker and from Apache's: every message once, whatever happens
meanwhile.
"""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Awaitable, Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

import roquet
from roquet.protocol.records.layout import checksum
from tests.interop import wire
from tests.interop.apache import require_java
from tests.interop.ground import BROKER, Ground
from tests.interop.processes import SEND_MS_MAX, wait_until

pytestmark = [pytest.mark.spark, pytest.mark.process]

DELETE_TOPIC_IN_BROKER, DELETE_TOPIC_IN_NAMESRV = 215, 216
Row = tuple[int, int, str]
"""Queue id, queue offset, body."""


@pytest.fixture(
    scope="module",
    params=["ours", pytest.param("apache", marks=[pytest.mark.interop, pytest.mark.long])],
)
def ground(request: pytest.FixtureRequest) -> Iterator[Ground]:
    is_apache = request.param == "apache"
    if is_apache:
        require_java()
    with Ground(is_apache=is_apache) as running:
        yield running


def send(ground: Ground, topic: str, queue_id: int, bodies: Sequence[str]) -> None:
    async def sending() -> None:
        queue = roquet.MessageQueue(topic, BROKER, queue_id)
        async with roquet.Producer(ground.namesrv, "sender", timeout_ms=SEND_MS_MAX) as producer:
            await producer.send_batch(
                [roquet.Message(topic, body.encode()) for body in bodies], queue=queue
            )

    asyncio.run(sending())


def delete(ground: Ground, topic: str) -> None:
    assert wire.ask(ground.broker.address, DELETE_TOPIC_IN_BROKER, {"topic": topic}).code == 0
    assert wire.ask(ground.namesrv, DELETE_TOPIC_IN_NAMESRV, {"topic": topic}).code == 0


def names(prefix: str, count: int, start: int = 0) -> list[str]:
    return [f"{prefix}{number}" for number in range(start, start + count)]


class Pipe:
    """A stream of one selection into Parquet files, with a checkpoint: it may be started again and
    again.
    """

    def __init__(self, spark: SparkSession, ground: Ground, folder: Path, **options: str) -> None:
        self._spark = spark
        self._options = {"nameServer": ground.namesrv, "startingOffsets": "earliest"} | options
        self._data, self._checkpoint = str(folder / "data"), str(folder / "checkpoint")

    def frame(self, **more: str) -> DataFrame:
        reader = self._spark.readStream.format("rocketmq").options(**(self._options | more))
        return reader.schema("queueId int, queueOffset bigint, body binary, topic string").load()

    def start(self, trigger: dict[str, Any], **more: str) -> StreamingQuery:
        text = self.frame(**more).selectExpr(
            "topic", "queueId", "queueOffset", "CAST(body AS STRING) AS body"
        )
        writer = text.writeStream.format("parquet").option("checkpointLocation", self._checkpoint)
        return writer.trigger(**trigger).start(self._data)

    def drain(self, **more: str) -> list[int]:
        """Read all there is; gives the number of rows of each batch."""
        query = self.start({"availableNow": True}, **more)
        query.awaitTermination()
        return [progress["numInputRows"] for progress in query.recentProgress]

    def rows(self) -> list[Row]:
        found = (
            self._spark.read.parquet(self._data)
            .orderBy("topic", "queueId", "queueOffset")
            .collect()
        )
        return [(row.queueId, row.queueOffset, row.body) for row in found]


def expected(*queues: Sequence[str]) -> list[Row]:
    return [
        (queue_id, offset, body)
        for queue_id, bodies in enumerate(queues)
        for offset, body in enumerate(bodies)
    ]


def test_restarts_read_on_and_limits_hold(
    spark: SparkSession, ground: Ground, tmp_path: Path
) -> None:
    ground.create_topic("restarted", 2)
    send(ground, "restarted", 0, names("a", 10))
    send(ground, "restarted", 1, names("b", 2))
    pipe = Pipe(spark, ground, tmp_path, subscribe="restarted")
    batches = pipe.drain(maxOffsetsPerTrigger="8")
    assert (sum(batches), max(batches)) == (12, 8)
    send(ground, "restarted", 1, names("b", 4, start=2))
    assert sum(pipe.drain(startingOffsets="latest")) == 4
    assert pipe.rows() == expected(names("a", 10), names("b", 6))


def test_messages_of_every_kind_come_as_they_were_sent(spark: SparkSession, ground: Ground) -> None:
    ground.create_topic("kinds", 1)
    sent = asyncio.run(_send_every_kind(ground, "kinds"))
    _wait_for_messages(ground, "kinds", len(sent))
    frame = (
        spark.read.format("rocketmq")
        .option("nameServer", ground.namesrv)
        .option("subscribe", "kinds")
        .load()
    )
    found = frame.select("tags", "body", "bodyCRC", "queueOffset").collect()
    assert {row.tags: bytes(row.body) for row in found} == sent
    assert {row.tags: row.bodyCRC for row in found if row.tags != "compressed"} == {
        kind: checksum(body) for kind, body in sent.items() if kind != "compressed"
    }
    assert sorted(row.queueOffset for row in found) == list(range(len(sent)))


def test_a_running_query_survives_its_broker_takes_in_new_queues_and_topics_and_ends_with_a_topic(
    spark: SparkSession, ground: Ground, tmp_path: Path
) -> None:
    ground.create_topic("run-1", 1)
    options = {
        "subscribePattern": "run-.*",
        "consumerGroup": "watched",
        "noProgressTimeoutMs": "20000",
    }
    options["minOffsetsPerTrigger"] = "1"
    pipe = Pipe(spark, ground, tmp_path, **options)
    query = pipe.start({"processingTime": "100 milliseconds"})
    try:
        send(ground, "run-1", 0, names("a", 5))
        wait_until(lambda: _rows_read(query) == 5, "the first messages")
        ground.broker.kill()
        ground.broker.start()
        send(ground, "run-1", 0, names("a", 5, start=5))
        ground.create_topic("run-1", 2)
        ground.create_topic("run-2", 1)
        send(ground, "run-1", 1, names("b", 3))
        send(ground, "run-2", 0, names("c", 2))
        wait_until(
            lambda: _rows_read(query) == 15, "the messages after the restart and of new queues"
        )
        send(ground, "run-2", 0, names("c", 1, start=2))
        wait_until(
            lambda: _rows_read(query) == 16, "one more batch, whose begin ends the one before"
        )
        assert _committed(ground, "watched", "run-1", 0) == 10
        latest = query.recentProgress[-1]["sources"][0]["latestOffset"]
        assert json.loads(latest)["queues"]["run-1"] == {BROKER: {"0": 10, "1": 3}}
        assert pipe.rows() == [*expected(names("a", 10), names("b", 3)), *expected(names("c", 3))]
        delete(ground, "run-2")
        with pytest.raises(
            StreamingQueryException, match="data loss in queue run-2@ground-a:0: wanted offset"
        ):
            query.awaitTermination(60)
    finally:
        query.stop()


async def _send_every_kind(ground: Ground, topic: str) -> dict[str, bytes]:
    """Kind, which is the tag, -> body, of all messages that a reader shall see."""

    def decided(
        state: roquet.TransactionState,
    ) -> Callable[..., Awaitable[roquet.TransactionState]]:
        async def told(*_: object) -> roquet.TransactionState:
            return state

        return told

    commit, rollback, unknown = map(decided, roquet.TransactionState)
    bodies = {
        "delayed": b"later",
        "huge": random.Random(1).randbytes((4 << 20) - 1000),
        "compressed": b"x" * 100_000,
    }
    async with roquet.TransactionProducer(
        ground.namesrv, "kinds", unknown, compress_from_size=50_000, timeout_ms=SEND_MS_MAX
    ) as producer:
        await producer.send(roquet.Message(topic, bodies["delayed"], tags="delayed", delay_level=1))
        await producer.send(roquet.Message(topic, bodies["compressed"], tags="compressed"))
        for number in range(3):
            bodies[f"batch{number}"] = b"batch%d" % number
        batch = [
            roquet.Message(topic, bodies[f"batch{number}"], tags=f"batch{number}")
            for number in range(3)
        ]
        await producer.send_batch(batch)
        bodies["committed"] = b"committed"
        await producer.send_in_transaction(
            roquet.Message(topic, b"committed", tags="committed"), commit
        )
        await producer.send_in_transaction(
            roquet.Message(topic, b"rolled back", tags="rolled back"), rollback
        )
        await producer.send_in_transaction(roquet.Message(topic, b"open", tags="open"), unknown)
    async with roquet.Producer(
        ground.namesrv, "kinds", compress_from_size=8 << 20, timeout_ms=SEND_MS_MAX
    ) as plain:
        await plain.send(roquet.Message(topic, bodies["huge"], tags="huge"))
    return bodies


def _wait_for_messages(ground: Ground, topic: str, count: int) -> None:
    async def end() -> int:
        async with roquet.PullConsumer(ground.namesrv) as consumer:
            return await consumer.max_offset(roquet.MessageQueue(topic, BROKER, 0))

    wait_until(lambda: asyncio.run(end()) >= count, f"{count} messages in {topic}")


def _rows_read(query: StreamingQuery) -> int:
    if (failure := query.exception()) is not None:
        raise failure
    return sum(progress["numInputRows"] for progress in query.recentProgress)


def _committed(ground: Ground, group: str, topic: str, queue_id: int) -> int | None:
    async def asking() -> int | None:
        async with roquet.PullConsumer(ground.namesrv) as consumer:
            return await consumer.committed(group, roquet.MessageQueue(topic, BROKER, queue_id))

    return asyncio.run(asking())
