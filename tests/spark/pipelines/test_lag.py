"""Consumer groups' backlog: asked of real brokers, kept in Parquet, shown."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from roquet import PullConsumer
from roquet.admin.backlog import Backlog, QueueBacklog
from roquet.dev import Cluster
from roquet.protocol.records.message import MessageQueue
from roquet.spark.pipelines.lag import (
    POINTS_MAX,
    Lag,
    Series,
    lag,
    lag_page,
    lag_rows,
    series_of,
    thinned,
)
from tests.spark.pipelines.conftest import send

QUEUE = MessageQueue("orders", "broker-a", 0)


def commit(name_server: str, group: str, done: int) -> None:
    """Let the group be so far with the first queue, and with no other."""

    async def committing() -> None:
        async with PullConsumer(name_server) as consumer:
            first, *_ = await consumer.queues("orders")
            await consumer.commit(group, first, done)

    asyncio.run(committing())


@pytest.mark.spark
@pytest.mark.long
def test_what_groups_have_before_them_is_sampled(
    spark: SparkSession, cluster: Cluster, tmp_path: Path
) -> None:
    send(cluster.name_server, "orders", range(200))
    commit(cluster.name_server, "billing", 20)
    seen: list[int] = []
    job = Lag(cluster.name_server, str(tmp_path / "lag"), ("billing",), every_s=0.2, for_s=0.5)

    def told(found: Backlog) -> None:
        seen.append(sum(each.lag for each in found.queues))
        if len(seen) == 1:
            send(cluster.name_server, "orders", range(50))

    done = lag(spark, job, told)

    assert (done.samples, done.failed) == (3, 0)
    assert seen == [180, 230, 230]
    (series,) = series_of(spark.read.parquet(job.folder))
    assert (series.group, series.topic, [behind for _, behind in series.points]) == (
        "billing",
        "orders",
        seen,
    )
    assert "billing: orders" in lag_page([series])
    assert lag(spark, job).samples == 3
    assert len(series_of(spark.read.parquet(job.folder))[0].points) == 6, "samples are appended"


@pytest.mark.spark
@pytest.mark.long
def test_a_cluster_that_does_not_answer_costs_its_samples_only(
    spark: SparkSession, tmp_path: Path
) -> None:
    done = lag(spark, Lag("127.0.0.1:1", str(tmp_path / "lag"), every_s=0.1, for_s=0.2))

    assert (done.samples, done.rows, done.failed) == (2, 0, 2)
    assert not (tmp_path / "lag").exists()


def test_a_group_beyond_its_queue_is_not_behind() -> None:
    found = Backlog((QueueBacklog("g", QUEUE, 5, 9, None),), ())

    ((*_, end, progress, behind, last),) = lag_rows(found, 1_000)
    assert (end, progress, behind, last) == (5, 9, 0, None)


def test_a_line_of_many_points_keeps_its_peaks_and_its_end() -> None:
    points = [(float(at), 0) for at in range(10 * POINTS_MAX)]
    points[1234] = (1234.0, 77)
    points[-1] = (points[-1][0], 3)

    shown = thinned(points)

    assert len(shown) <= POINTS_MAX + 1
    assert (1234.0, 77) in shown
    assert shown[-1] == points[-1]
    assert thinned(points[:5]) == points[:5]


def test_a_page_shows_each_group() -> None:
    text = lag_page([Series("g<1>", "t", ((0.0, 5), (60.0, 9))), Series("g2", "t", ((0.0, 1),))])

    assert text.count("<polyline") == 2
    assert "g&lt;1&gt;: t" in text
    assert "1970-01-01 00:01:00 UTC" in text
    assert "No group" in lag_page([])
