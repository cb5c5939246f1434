"""Samples the backlog of consumer groups over time, to Parquet, and reports it as HTML.

lag(spark, Lag("127.0.0.1:9876", "/data/lag", groups=("billing",), every_s=10, for_s=3600))
lag_page(series_of(spark.read.parquet("/data/lag")))
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from roquet.admin.access import Access
from roquet.admin.backlog import Backlog, QueueBacklog, backlog
from roquet.admin.cluster import AdminClient
from roquet.common.runtime import Runtime
from roquet.errors import RoquetError
from roquet.spark.pipelines._shared.location import as_spark_sees
from roquet.spark.pipelines._shared.page import page, paragraph, table
from roquet.spark.pipelines._shared.run_sync import run_sync
from roquet.spark.pipelines.svg import lines

SCHEMA: Final = (
    "sampledAt timestamp, consumerGroup string, topic string, brokerName string, queueId int, "
    "brokerOffset long, consumerOffset long, lag long, lastTimestamp timestamp"
)
WRITE_EVERY_S: Final = 60.0
"""Seconds between writes of samples. One file for each sample would be too many files."""
POINTS_MAX: Final = 600
"""Points of a line in the chart; more would not be visible at its width."""
TITLES: Final = ("group", "topic", "first", "most", "last")
_DAY: Final = "date_from_unix_date(CAST(floor(unix_seconds(sampledAt) / 86400) AS INT))"

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Lag:
    """The settings of a lag job.

    `folder`: where samples are written. `groups`: empty for all groups that brokers know.
    `every_s`: seconds between samples. `for_s`: seconds until the job ends.
    """

    name_server: str
    folder: str
    groups: tuple[str, ...] = ()
    every_s: float = 10.0
    for_s: float = math.inf
    access: Access = field(default_factory=Access)


@dataclass
class Sampled:
    """The counts of a job: samples, rows, and samples in which a broker failed."""

    samples: int = 0
    rows: int = 0
    failed: int = 0


Told = Callable[[Backlog], None]


def lag(spark: SparkSession, job: Lag, told: Told = lambda found: None) -> Sampled:
    """Sample the backlog every `every_s` seconds, and append it to Parquet files by day (UTC).

    A broker that does not answer is logged, and is missing in that sample. After an interrupt the
    remaining samples are written. A job killed with -9 loses the samples of the last minute.

    :param told: called with each sample.
    """
    sampling = _Sampling(spark, job, told)
    try:
        sampling.run()
    except KeyboardInterrupt:
        log.info("interrupted, writing the remaining samples")
    sampling.write()
    return sampling.sampled


@dataclass
class _Sampling:
    spark: SparkSession
    job: Lag
    told: Told
    sampled: Sampled = field(default_factory=Sampled)
    _rows: list[tuple[Any, ...]] = field(default_factory=list)
    _written: float = field(default_factory=time.monotonic)

    def run(self) -> None:
        began = time.monotonic()
        while True:
            self._sample()
            if time.monotonic() - self._written >= WRITE_EVERY_S:
                self.write()
            due_s = self.sampled.samples * self.job.every_s
            if round(due_s, 3) >= round(self.job.for_s, 3):
                return
            time.sleep(max(0.0, began + due_s - time.monotonic()))

    def _sample(self) -> None:
        now_ms = Runtime().now_ms()
        try:
            found = run_sync(self._ask)
        except (RoquetError, OSError) as error:
            found = Backlog((), (str(error),))
        for failure in found.failures:
            log.warning("broker missing in this sample: error=%s", failure)
        self._rows += lag_rows(found, now_ms)
        self.sampled.samples += 1
        self.sampled.rows += len(found.queues)
        self.sampled.failed += bool(found.failures)
        self.told(found)

    async def _ask(self) -> Backlog:
        async with AdminClient(self.job.name_server, **self.job.access) as cluster:
            return await backlog(cluster, self.job.groups)

    def write(self) -> None:
        """Write the samples. If the write is interrupted, the next call writes them again."""
        self._written = time.monotonic()
        if self._rows:
            frame = self.spark.createDataFrame(self._rows, SCHEMA).withColumn("day", f.expr(_DAY))
            folder = as_spark_sees(self.job.folder)
            frame.coalesce(1).write.mode("append").partitionBy("day").parquet(folder)
            self._rows = []


def lag_rows(found: Backlog, now_ms: int) -> list[tuple[Any, ...]]:
    """A row of `SCHEMA` per queue."""
    return [_row(each, _moment(now_ms)) for each in found.queues]


def _row(at: QueueBacklog, now: datetime | None) -> tuple[Any, ...]:
    queue = at.queue
    where = (now, at.group, queue.topic, queue.broker_name, queue.queue_id)
    return (*where, at.end, at.offset, at.lag, _moment(at.last_ms))


def _moment(ms: int | None) -> datetime | None:
    return None if ms is None else datetime.fromtimestamp(ms / 1000, UTC)


@dataclass(frozen=True)
class Series:
    """The backlog of a group in a topic: points (seconds since 1970, messages), sorted by time."""

    group: str
    topic: str
    points: tuple[tuple[float, int], ...]

    @property
    def name(self) -> str:
        return f"{self.group}: {self.topic}"

    @property
    def first(self) -> int:
        return self.points[0][1]

    @property
    def most(self) -> int:
        return max(lag for _, lag in self.points)

    @property
    def last(self) -> int:
        return self.points[-1][1]

    def row(self) -> tuple[object, ...]:
        """A row for a table with `TITLES`."""
        return (self.group, self.topic, self.first, self.most, self.last)

    def to_json(self) -> dict[str, Any]:
        return dict(zip(TITLES, self.row(), strict=True)) | {"samples": len(self.points)}


def series_of(samples: DataFrame) -> list[Series]:
    """The backlog of each group and topic over time, summed over all queues.

    :param samples: as `lag` wrote them. Many samples are thinned out, see `thinned`.
    """
    at = f.unix_millis("sampledAt") / 1000
    sums = samples.groupBy("consumerGroup", "topic", at.alias("at")).agg(f.sum("lag").alias("lag"))
    found: dict[tuple[str, str], list[tuple[float, int]]] = {}
    for row in sums.orderBy("consumerGroup", "topic", "at").toLocalIterator():
        found.setdefault((row.consumerGroup, row.topic), []).append((row.at, row.lag))
    return [
        Series(group, topic, tuple(thinned(points))) for (group, topic), points in found.items()
    ]


def thinned(points: Sequence[tuple[float, int]]) -> list[tuple[float, int]]:
    """At most `POINTS_MAX` points, each the highest of its interval, and the last point."""
    width = -(-len(points) // POINTS_MAX)
    if width <= 1:
        return list(points)
    parts = (points[start : start + width] for start in range(0, len(points) - 1, width))
    return [*(max(part, key=lambda point: point[1]) for part in parts), points[-1]]


def lag_page(series: Sequence[Series]) -> str:
    """An HTML page with the chart and a table of its numbers."""
    if not series:
        return page("Backlog of consumer groups", [paragraph("No group has consumer offsets.")])
    times = [at for each in series for at, _ in each.points]
    labels = (_time(min(times)), _time(max(times)))
    chart = lines({each.name: each.points for each in series}, x_labels=labels, unit="messages")
    return page(
        "Backlog of consumer groups", [chart, table(TITLES, [each.row() for each in series])]
    )


def _time(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
