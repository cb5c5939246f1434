"""Messages sent again: from archives and from dead letters, as they were, chosen, and not too
fast.
"""

from __future__ import annotations

import asyncio
import json
import time
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession

from roquet import Consumer, Message, Producer
from roquet.dev import Cluster
from roquet.spark.pipelines._shared.job_size import JobSize
from roquet.spark.pipelines._shared.message_filter import MessageFilter
from roquet.spark.pipelines.archive.job import Archive, archive
from roquet.spark.pipelines.archive.sources import StoredTopics, Topics
from roquet.spark.pipelines.send.redrive_job import NoOrigin, Redrive, plan, redrive
from roquet.spark.pipelines.send.resend import paced
from roquet.spark.pipelines.send.restore_job import Restore, Restored, restore
from tests.interop.processes import SEND_MS_MAX
from tests.spark.pipelines.conftest import numbers_in, send
from tests.storetool.stores import FLAG, Broker


def read(spark: SparkSession, cluster: Cluster, topic: str) -> DataFrame:
    return (
        spark.read.format("rocketmq")
        .options(nameServer=cluster.name_server, subscribe=topic)
        .load()
    )


def refuse(name_server: str, topic: str, group: str, count: int) -> None:
    """Let a group make dead letters of all messages of a topic."""

    async def refusing() -> None:
        async with (
            asyncio.timeout(60),
            Consumer(name_server, group, topic, "earliest", max_reconsume_times=0) as consumer,
        ):
            for _ in range(count):
                message = await anext(aiter(consumer))
                message.retry()

    asyncio.run(refusing())


@pytest.mark.spark
@pytest.mark.long
def test_what_was_archived_comes_back_as_it_was(
    spark: SparkSession, cluster: Cluster, tmp_path: Path
) -> None:
    async def sending() -> None:
        async with Producer(cluster.name_server, "pipelines", timeout_ms=SEND_MS_MAX) as producer:
            for number in range(40):
                properties = {"shop": f"s{number % 2}", "note": "a b"}
                message = Message(
                    "orders",
                    b"%d" % number,
                    tags="T",
                    keys=(f"k{number}", "all"),
                    properties=properties,
                )
                await producer.send(replace(message, flag=number))

    asyncio.run(sending())
    archive(spark, Archive(Topics(cluster.name_server, ("orders",)), str(tmp_path)))

    told: list[JobSize] = []
    done = restore(
        spark, Restore(str(tmp_path), cluster.name_server, ("orders",), to="again"), told.append
    )

    assert done == Restored(40, 0, {})
    assert told == [JobSize(40, size=10 + 2 * 30)]
    columns = ["body", "tags", "keys", "flag", "properties.shop", "properties.note"]
    before, after = (
        set(read(spark, cluster, topic).select(*columns).collect()) for topic in ("orders", "again")
    )
    assert len(before) == 40
    assert after == before

    some = MessageFilter(key="k1.", where="properties.shop = 's1'")
    job = Restore(
        str(tmp_path), cluster.name_server, choice=some, to="some", keep_queues=True, rate=50.0
    )
    began = time.monotonic()
    assert restore(spark, job).rows == 5
    assert time.monotonic() - began >= 5 / 50
    assert numbers_in(read(spark, cluster, "some")) == [11, 13, 15, 17, 19]
    place = {row.keys: row.queueId for row in read(spark, cluster, "orders").collect()}
    assert all(place[row.keys] == row.queueId for row in read(spark, cluster, "some").collect())
    nothing = MessageFilter(until_ms=1)
    assert (
        restore(spark, Restore(str(tmp_path), cluster.name_server, choice=nothing, to="none")).rows
        == 0
    )


@pytest.mark.spark
@pytest.mark.long
def test_what_no_client_can_send_is_left_out_and_counted(
    spark: SparkSession, cluster: Cluster, tmp_path: Path
) -> None:
    broker = Broker(tmp_path / "store")
    broker.put(b"whole", "orders", TAGS="T", UNIQ_KEY="A", shop="s1")
    broker.put(b"", "orders", UNIQ_KEY="B", CORRELATION_ID="of nobody")
    for body in (b"asked", b"answered"):
        broker.put(body, "orders", CORRELATION_ID="x", note="a", blank=" ")
    broker.stop()
    folder = str(tmp_path / "archive")
    archive(
        spark, Archive(StoredTopics((str(tmp_path / "store"),), ("broker-a",), ("orders",)), folder)
    )

    done = restore(spark, Restore(folder, cluster.name_server))

    assert done == Restored(3, 1, {"CORRELATION_ID": 2, "blank": 2})
    found = read(spark, cluster, "orders").collect()
    assert {bytes(row.body) for row in found} == {b"whole", b"asked", b"answered"}
    assert {row.flag for row in found} == {FLAG}


@pytest.mark.spark
@pytest.mark.long
def test_dead_letters_go_back_to_where_they_came_from(
    spark: SparkSession, cluster: Cluster
) -> None:
    send(cluster.name_server, "orders", range(10))
    refuse(cluster.name_server, "orders", "billing", 10)
    job = Redrive(
        cluster.name_server, "%DLQ%billing", MessageFilter(where="cast(body AS string) >= '5'")
    )

    found = plan(spark, job)

    assert dict(found.rows) == {"orders": 5}
    assert sorted(row["keys"] for row in found.sample) == [f"k{number}" for number in range(5, 10)]
    assert read(spark, cluster, "orders").count() == 10, "a plan sends nothing"

    told: list[JobSize] = []
    assert redrive(spark, job, told.append).count == 5
    assert told == [JobSize(5, size=5)]

    assert numbers_in(read(spark, cluster, "orders")) == sorted([*range(10), *range(5, 10)])
    assert read(spark, cluster, "%DLQ%billing").count() == 10, "dead letters stay"
    assert json.dumps(dict(found.rows))


@pytest.mark.spark
@pytest.mark.long
def test_what_does_not_say_where_it_came_from_needs_a_topic(
    spark: SparkSession, cluster: Cluster
) -> None:
    send(cluster.name_server, "%DLQ%g", range(3))
    with pytest.raises(NoOrigin, match="3 messages of %DLQ%g have no original topic"):
        redrive(spark, Redrive(cluster.name_server, "%DLQ%g"))

    assert redrive(spark, Redrive(cluster.name_server, "%DLQ%g", to="there")).count == 3
    assert numbers_in(read(spark, cluster, "there")) == [0, 1, 2]


def test_rows_come_at_the_rate_that_is_wanted_in_small_pieces() -> None:
    batch = pa.RecordBatch.from_pydict({"x": list(range(150))})
    began = time.monotonic()

    pieces = list(paced(1000)(iter([batch, batch])))

    assert time.monotonic() - began >= 0.3
    assert [each for piece in pieces for each in piece.column(0).to_pylist()] == [
        *range(150),
        *range(150),
    ]
    assert max(piece.num_rows for piece in pieces) == 100
