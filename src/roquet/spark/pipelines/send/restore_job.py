"""Sends messages of an archive to a cluster.

since = MessageFilter(since_ms=1763700000000)
restore(spark, Restore("/data/archive", "127.0.0.1:9876", topics=("orders",), choice=since))
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from roquet.spark.pipelines._shared.job_size import JobSize, Planned, ignore_size
from roquet.spark.pipelines._shared.message_filter import ALL, MessageFilter
from roquet.spark.pipelines.archive.job import read_archive
from roquet.spark.pipelines.send.resend import BODY_BYTES, body_bytes, left_out, send, sendable

_HAS_BODY: Final = "octet_length(body) > 0"


@dataclass(frozen=True)
class Restore:
    """The settings of a restore.

    `topics`: empty for all topics. `to`: the target topic; None for the topic of each message.
    `keep_queues`: send each message to the queue id that it had. `rate`: maximum messages per
    second. `options`: of the sink, such as delivery=effectively-once. `file_format`: as in
    `Archive`.
    """

    folder: str
    name_server: str
    topics: tuple[str, ...] = ()
    choice: MessageFilter = ALL
    to: str | None = None
    keep_queues: bool = False
    rate: float | None = None
    options: Mapping[str, str] = field(default_factory=dict, repr=False)
    file_format: str = ""


@dataclass(frozen=True)
class Restored:
    """The number of messages sent, and what could not be sent.

    `without_body`: messages with an empty body, which were skipped. `properties`: names of
    properties that are reserved by the protocol or have blank values, with the number of messages
    sent without them.
    """

    rows: int
    without_body: int
    properties: Mapping[str, int]


def restore(spark: SparkSession, job: Restore, planned: Planned = ignore_size) -> Restored:
    """Send the messages. Topics must exist, unless brokers create topics on demand.

    :raises roquet.spark.pipelines.archive.state.ArchiveError: the archive cannot be used.
    """
    stored = read_archive(spark, job.folder, job.file_format)
    if job.topics:
        stored = stored.where(f.col("topic").isin(*job.topics))
    chosen = job.choice.of(stored)
    found, size = _looked_at(chosen)
    planned(JobSize(found.rows, size))
    topic = f.col("topic") if job.to is None else f.lit(job.to)
    if found.rows:
        messages = sendable(chosen.where(_HAS_BODY), topic, keep_queues=job.keep_queues)
        send(messages, {"nameServer": job.name_server, **job.options}, job.rate)
    return found


def _looked_at(chosen: DataFrame) -> tuple[Restored, int]:
    """The messages to send, and the bytes of their bodies."""
    by_kind = chosen.groupBy(f.expr(_HAS_BODY).alias("sent"), left_out().alias("names"))
    kinds = by_kind.agg(f.count("*").alias("count"), body_bytes()).collect()
    properties: Counter[str] = Counter()
    for kind in (kind for kind in kinds if kind.sent):
        properties.update(dict.fromkeys(kind.names or (), kind["count"]))
    rows = sum(kind["count"] for kind in kinds)
    without_body = sum(kind["count"] for kind in kinds if not kind.sent)
    restored = Restored(rows - without_body, without_body, dict(sorted(properties.items())))
    return restored, sum(kind[BODY_BYTES] or 0 for kind in kinds)
