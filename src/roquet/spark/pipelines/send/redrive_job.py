"""Messages of a topic sent once more: dead letters to where they came from, or any topic to another one.

redrive(spark, Redrive("127.0.0.1:9876", "%DLQ%billing", Choice(key="order-17")))
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as f

from roquet.errors import RoquetError
from roquet.protocol.records.message import DEAD_LETTER_PREFIX, RETRY_PREFIX, RETRY_TOPIC
from roquet.spark._arrow.schema import SPARK_SCHEMA
from roquet.spark._options.ranges import QueueRange
from roquet.spark._options.values import OptionError
from roquet.spark.pipelines._shared.job_size import JobSize, Planned, nobody_asks
from roquet.spark.pipelines._shared.message_filter import ALL, MessageFilter
from roquet.spark.pipelines._shared.ranges_read import (
    bounds_now,
    read_options,
    read_ranges,
    selected,
)
from roquet.spark.pipelines.send.send import BODY_BYTES, body_bytes, send, sendable

SHOWN: Final = (
    "brokerName",
    "queueId",
    "queueOffset",
    "storeTimestamp",
    "keys",
    "tags",
    "reconsumeTimes",
)


def dead_letters_of(group: str) -> str:
    """The topic of what a group gave up."""
    return DEAD_LETTER_PREFIX + group


class NoOrigin(RoquetError):  # noqa: N818
    """Messages do not say which topic they came from; the message says how many: name a topic for them."""


@dataclass(frozen=True)
class Redrive:
    """Which messages of `topic` go to which topic: `to`, or the one that they came from before they were dead letters.

    `options` are of the source, `write_options` of the sink; `rate`: messages a second.
    """

    name_server: str
    topic: str
    choice: MessageFilter = ALL
    to: str | None = None
    rate: float | None = None
    options: Mapping[str, str] = field(default_factory=dict, repr=False)
    write_options: Mapping[str, str] = field(default_factory=dict, repr=False)

    def check(self) -> None:
        """:raises OptionError: no topic is named, and messages of this one do not say theirs; or it would be itself."""
        if self.to is None and not self.topic.startswith((DEAD_LETTER_PREFIX, RETRY_PREFIX)):
            raise OptionError(
                f"to: only dead letters and retries know where they came from, {self.topic} has neither"
            )
        if self.to == self.topic:
            raise OptionError(f"to: the messages are in {self.topic} already")


@dataclass(frozen=True)
class Redriven:
    """Messages per topic they go to, or went to, and the first of them in the order of their storing."""

    rows: Mapping[str, int]
    sample: tuple[Mapping[str, Any], ...]

    @property
    def count(self) -> int:
        return sum(self.rows.values())


def plan(spark: SparkSession, job: Redrive, shown: int = 10) -> Redriven:
    """What would be sent, now: nothing is.

    :raises OptionError: an option cannot be used.
    :raises NoOrigin: messages do not say where they came from.
    """
    found, _ = _found(job, _chosen(spark, job), shown)
    return found


def redrive(spark: SparkSession, job: Redrive, planned: Planned = nobody_asks) -> Redriven:
    """Send them. The topic keeps them: done once more, this sends them once more.

    Which messages are looked at is settled in the beginning: what comes meanwhile, even by this, is not sent.

    :raises OptionError, NoOrigin: as `plan`.
    """
    messages = _chosen(spark, job)
    found, size = _found(job, messages, 0)
    planned(JobSize(found.count, size))
    if found.count:
        sent = sendable(messages, f.col("to"))
        send(sent, {"nameServer": job.name_server, **job.write_options}, job.rate)
    return found


def _found(job: Redrive, messages: DataFrame, shown: int) -> tuple[Redriven, int]:
    """What is to be sent, and the bytes of the bodies in it."""
    kinds = messages.groupBy("to").agg(f.count("*").alias("count"), body_bytes()).collect()
    rows = {row.to: row["count"] for row in kinds}
    if None in rows:
        raise NoOrigin(
            f"{rows[None]} messages of {job.topic} do not say where they came from: name a topic for them"
        )
    sample = (
        messages.select("to", *SHOWN).orderBy("storeTimestamp").limit(shown).collect()
        if shown
        else []
    )
    return Redriven(rows, tuple(row.asDict() for row in sample)), sum(
        row[BODY_BYTES] or 0 for row in kinds
    )


def _chosen(spark: SparkSession, job: Redrive) -> DataFrame:
    """The messages, with the columns of the source and `to`."""
    job.check()
    source = selected(job.name_server, (job.topic,), "", job.options)
    bounds = bounds_now(read_options(source))
    ranges = [QueueRange(queue, at.min, at.max) for queue, at in bounds.items() if at.max > at.min]
    messages = (
        read_ranges(spark, source, ranges) if ranges else spark.createDataFrame([], SPARK_SCHEMA)
    )
    return job.choice.of(messages).withColumn("to", _target(job))


def _target(job: Redrive) -> Column:
    return f.lit(job.to) if job.to is not None else f.element_at("properties", RETRY_TOPIC)
