"""Sends messages of a topic again: dead letters to their original topic, others to a given one.

redrive(spark, Redrive("127.0.0.1:9876", "%DLQ%billing", MessageFilter(key="order-17")))
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as f

from roquet.errors import OptionError, RoquetError
from roquet.protocol.records.message import DEAD_LETTER_PREFIX, RETRY_PREFIX, RETRY_TOPIC
from roquet.spark._arrow.schema import SPARK_SCHEMA
from roquet.spark.pipelines._shared.job_size import JobSize, Planned, ignore_size
from roquet.spark.pipelines._shared.message_filter import ALL, MessageFilter
from roquet.spark.pipelines._shared.ranges_read import (
    ranges_now,
    read_ranges,
    selected,
)
from roquet.spark.pipelines.send.resend import BODY_BYTES, body_bytes, send, sendable

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
    """The dead letter topic of a group."""
    return DEAD_LETTER_PREFIX + group


class NoOrigin(RoquetError):  # noqa: N818
    """Messages have no original topic. The text has their count; the user must name a topic."""


@dataclass(frozen=True)
class Redrive:
    """The settings of a redrive.

    `to`: the target topic; None for the topic that each message had before it was a dead letter or
    retry. `rate`: maximum messages per second. `options`: of the source. `write_options`: of the
    sink.
    """

    name_server: str
    topic: str
    choice: MessageFilter = ALL
    to: str | None = None
    rate: float | None = None
    options: Mapping[str, str] = field(default_factory=dict, repr=False)
    write_options: Mapping[str, str] = field(default_factory=dict, repr=False)

    def check(self) -> None:
        """Check the settings.

        :raises OptionError: `to` is missing though `topic` has no dead letters or retries, or is
            `topic`.
        """
        if self.to is None and not self.topic.startswith((DEAD_LETTER_PREFIX, RETRY_PREFIX)):
            raise OptionError(
                "to is missing: only dead letters and retries have an original topic, "
                f"{self.topic} has neither"
            )
        if self.to == self.topic:
            raise OptionError(f"to: the messages are in {self.topic} already, give another topic")


@dataclass(frozen=True)
class Redriven:
    """The number of messages per target topic, and the oldest of them as a sample."""

    rows: Mapping[str, int]
    sample: tuple[Mapping[str, Any], ...]

    @property
    def count(self) -> int:
        return sum(self.rows.values())


def plan(spark: SparkSession, job: Redrive, shown: int = 10) -> Redriven:
    """The messages that `redrive` would send now. Sends nothing.

    :param shown: the number of messages in the sample.
    :raises OptionError: an option is invalid.
    :raises NoOrigin: messages have no original topic.
    """
    found, _ = _found(job, _chosen(spark, job), shown)
    return found


def redrive(spark: SparkSession, job: Redrive, planned: Planned = ignore_size) -> Redriven:
    """Send the messages. They also stay in their topic, so a second run sends them again.

    Messages that arrive after the start, such as those that this job sends, are not sent.

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
    """The messages to send, and the bytes of their bodies."""
    kinds = messages.groupBy("to").agg(f.count("*").alias("count"), body_bytes()).collect()
    rows = {row.to: row["count"] for row in kinds}
    if None in rows:
        raise NoOrigin(
            f"{rows[None]} messages of {job.topic} have no original topic: name a topic for them"
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
    ranges = ranges_now(source)
    messages = (
        read_ranges(spark, source, ranges) if ranges else spark.createDataFrame([], SPARK_SCHEMA)
    )
    return job.choice.of(messages).withColumn("to", _target(job))


def _target(job: Redrive) -> Column:
    return f.lit(job.to) if job.to is not None else f.element_at("properties", RETRY_TOPIC)
