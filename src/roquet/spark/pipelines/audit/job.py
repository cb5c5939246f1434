"""Compares two copies of queues message by message: masters, slaves, or store files.

master = Brokers("127.0.0.1:9876", "master")
slave = Brokers("127.0.0.1:9876", "slave")
audit(spark, Audit(master, slave, ("orders",))).to_html()
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import astuple, dataclass, field
from typing import Final, Literal, TypeAlias

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.types import StructType

from roquet.errors import OptionError
from roquet.protocol.records.layout import CHECKSUM_BITS
from roquet.spark._arrow.schema import SPARK_SCHEMA
from roquet.spark._options.ranges import QueueRange
from roquet.spark.pipelines._shared.job_size import JobSize, Planned, ignore_size
from roquet.spark.pipelines._shared.ranges_read import (
    QUEUE,
    chosen,
    ranges_now,
    read_ranges,
    selected,
)
from roquet.spark.pipelines.audit.report import AuditReport, QueueAudit

KEY: Final = (*QUEUE, "queueOffset")
COMPARED: Final = ("commitLogOffset", "msgId", "bodyCRC")
"""Compared columns. If a side has an offset twice, its first message in the log is compared."""
READ_SCHEMA: Final = StructType(
    [SPARK_SCHEMA[name] for name in (*KEY, *COMPARED, "sysFlag", "body")]
)
_COMPRESSED: Final = 1
_NO_PROGRESS_MS: Final = "5000"
"""How long a lagging slave has to reach the end that its master had when the audit began."""
_ANY_BROKER: Final = "broker"
"""The broker name of both stores if two stores are compared: they are copies of one broker."""


@dataclass(frozen=True)
class Brokers:
    """The masters or the slaves of running brokers. `options`: of `format("rocketmq")`."""

    name_server: str
    read_from: Literal["master", "slave"]
    options: Mapping[str, str] = field(default_factory=dict, repr=False)

    @property
    def name(self) -> str:
        return self.read_from

    def reads(self) -> dict[str, str]:
        """The options of a read that skips missing messages instead of failing.

        :raises OptionError: `options` contains readFrom.
        """
        if any(name.lower() == "readfrom" for name in self.options):
            raise OptionError("readFrom: the sides of an audit set this option, leave it out")
        defaults = {
            "readFrom": "slave-only" if self.read_from == "slave" else "master",
            "failOnDataLoss": "false",
            "noProgressTimeoutMs": _NO_PROGRESS_MS,
        }
        return _with_defaults(defaults, self.options)


@dataclass(frozen=True)
class Stored:
    """The store directory of a broker, stopped or not. `options`: of `format("rocketmq-store")`."""

    path: str
    options: Mapping[str, str] = field(default_factory=dict, repr=False)

    @property
    def name(self) -> str:
        return self.path

    def reads(self) -> dict[str, str]:
        """As `Brokers.reads`. Bodies with wrong checksums are read, too: they are counted."""
        return _with_defaults({"mode": "PERMISSIVE", "checkCrc": "false"}, self.options)


Side: TypeAlias = Brokers | Stored


@dataclass(frozen=True)
class Audit:
    """The settings of an audit: two sides, and topics by name or by a pattern.

    `broker_name`: compare only queues of this broker. Required if one side is a store and the other
    a running broker.
    """

    left: Side
    right: Side
    topics: tuple[str, ...] = ()
    pattern: str = ""
    broker_name: str = ""

    def check(self) -> None:
        """Check the settings.

        :raises OptionError: the broker name is required and missing.
        """
        kinds = {type(side) for side in (self.left, self.right)}
        if len(kinds) > 1 and not self.broker_name:
            raise OptionError("the broker name is missing: name the broker whose store is compared")


def audit(spark: SparkSession, job: Audit, planned: Planned = ignore_size) -> AuditReport:
    """Compare the messages of both sides by topic, broker, queue and offset.

    Compares ids, stored CRCs and physical offsets, and checks bodies against their CRCs. Of running
    brokers, the messages are compared that masters had when the audit began, so producers may go on
    sending. Messages that a side has lost are reported as missing, and do not end the audit.

    :raises RoquetError: a side cannot be read, or the settings are incomplete.
    """
    job.check()
    brokers = next((side for side in (job.left, job.right) if isinstance(side, Brokers)), None)
    ranges = None if brokers is None else _ranges(job, brokers)
    planned(JobSize(2 * sum(each.size for each in ranges or ())))
    if ranges == []:
        return AuditReport(job.left.name, job.right.name, ())
    left, right = (_rows(spark, job, side, ranges) for side in (job.left, job.right))
    return AuditReport(job.left.name, job.right.name, tuple(compare(left, right)))


def _ranges(job: Audit, brokers: Brokers) -> list[QueueRange]:
    source = selected(brokers.name_server, job.topics, job.pattern, brokers.options)
    return [each for each in ranges_now(source) if job.broker_name in ("", each.queue.broker_name)]


def _rows(
    spark: SparkSession, job: Audit, side: Side, ranges: list[QueueRange] | None
) -> DataFrame:
    if isinstance(side, Brokers):
        assert ranges is not None
        return read_ranges(
            spark,
            selected(side.name_server, job.topics, job.pattern, side.reads()),
            ranges,
            READ_SCHEMA,
        )
    which = chosen(job.topics, job.pattern)
    options = {"brokerName": job.broker_name or _ANY_BROKER, **which, **side.reads()}
    stored = (
        spark.read.format("rocketmq-store").schema(READ_SCHEMA).options(**options).load(side.path)
    )
    return stored if ranges is None else _within(spark, stored, ranges)


def _within(spark: SparkSession, stored: DataFrame, ranges: list[QueueRange]) -> DataFrame:
    rows = [(*astuple(each.queue), each.start, each.end) for each in ranges]
    edges = spark.createDataFrame(
        rows, "topic string, brokerName string, queueId int, start long, end long"
    )
    kept = stored.join(f.broadcast(edges), list(QUEUE))
    return kept.where(
        (f.col("queueOffset") >= f.col("start")) & (f.col("queueOffset") < f.col("end"))
    )


def _with_defaults(defaults: Mapping[str, str], given: Mapping[str, str]) -> dict[str, str]:
    names = {name.lower() for name in given}
    return {name: value for name, value in defaults.items() if name.lower() not in names} | dict(
        given
    )


def compare(left: DataFrame, right: DataFrame) -> list[QueueAudit]:
    """The differences of two tables of messages, per queue. One shuffle moves each row once."""
    both = _marked(left, is_left=True).unionAll(_marked(right, is_left=False))
    per_offset = both.groupBy(*KEY).agg(
        f.sum("left").alias("left"),
        f.sum("right").alias("right"),
        f.max(f.when(f.col("left") == 1, f.col("corrupt"))).alias("corruptLeft"),
        f.max(f.when(f.col("right") == 1, f.col("corrupt"))).alias("corruptRight"),
        (_first("left") != _first("right")).alias("unequal"),
    )
    kinds = _kinds()
    first = f.coalesce(
        *(f.when(condition, f.lit(name.replace("_", " "))) for name, condition in kinds.items())
    )
    per_queue = (
        per_offset.withColumn("kind", first)
        .groupBy(
            "topic", f.col("brokerName").alias("broker_name"), f.col("queueId").alias("queue_id")
        )
        .agg(
            f.sum("left").alias("left_rows"),
            f.sum("right").alias("right_rows"),
            (f.max(f.when(f.col("left") > 0, f.col("queueOffset"))) + 1).alias("left_end"),
            (f.max(f.when(f.col("right") > 0, f.col("queueOffset"))) + 1).alias("right_end"),
            *(f.count_if(condition).alias(name) for name, condition in kinds.items()),
            f.min(f.when(f.col("kind").isNotNull(), f.col("queueOffset"))).alias(
                "first_difference"
            ),
            f.min_by("kind", f.when(f.col("kind").isNotNull(), f.col("queueOffset"))).alias(
                "first_is"
            ),
        )
    )
    return sorted((QueueAudit(**row.asDict()) for row in per_queue.collect()), key=str)


def _first(side: str) -> Column:
    return f.min(f.when(f.col(side) == 1, f.col("compared")))


def _kinds() -> dict[str, Column]:
    """The conditions for each kind of difference, the most serious first."""
    left, right = f.col("left"), f.col("right")
    return {
        "missing_left": left == 0,
        "missing_right": right == 0,
        "different": f.col("unequal") & (left > 0) & (right > 0),
        "corrupt_left": f.coalesce("corruptLeft", f.lit(False)),
        "corrupt_right": f.coalesce("corruptRight", f.lit(False)),
        "doubled_left": left > 1,
        "doubled_right": right > 1,
    }


def _marked(side: DataFrame, *, is_left: bool) -> DataFrame:
    """Columns for the comparison of one side.

    Compressed bodies are not checked: the CRC is that of the compressed body, which the source has
    already decompressed.
    """
    is_compressed = (f.col("sysFlag").bitwiseAND(_COMPRESSED)) != 0
    crc = f.crc32("body").bitwiseAND(CHECKSUM_BITS)
    return side.select(
        *KEY,
        f.lit(int(is_left)).alias("left"),
        f.lit(int(not is_left)).alias("right"),
        f.struct(*COMPARED).alias("compared"),
        (~is_compressed & (crc != f.col("bodyCRC"))).alias("corrupt"),
    )
