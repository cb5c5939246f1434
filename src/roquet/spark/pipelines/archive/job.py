"""Archives topics, each message once, however often the job runs or is killed (decision 0019).

archive(spark, Archive(Topics("127.0.0.1:9876", ("orders",)), "/data/archive"))
read_archive(spark, "/data/archive").where("topic = 'orders' AND day >= '2026-11-01'")
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pyspark.sql import DataFrame, SparkSession

from roquet.spark._arrow.schema import SPARK_SCHEMA
from roquet.spark._options.ranges import QueueRange
from roquet.spark.pipelines._shared.job_size import JobSize, Planned, nobody_asks
from roquet.spark.pipelines.archive.backends import backend_of
from roquet.spark.pipelines.archive.change import ArchiveBackend, Archived, Change
from roquet.spark.pipelines.archive.columns import with_day
from roquet.spark.pipelines.archive.plan import ends
from roquet.spark.pipelines.archive.sources import Source


@dataclass(frozen=True)
class Archive:
    """The settings of an archive: its source and where to store it.

    `folder`: a path, or a URL if `file_format` is "delta". `file_format`: "parquet" or "delta"; if
    empty, the format of the existing archive, or Parquet for a new one.
    """

    source: Source
    folder: str
    file_format: str = ""

    @property
    def backend(self) -> ArchiveBackend:
        """The storage of the archive.

        :raises ArchiveError: the folder has an archive of another format, or is not possible for
            one.
        """
        return backend_of(self.folder, self.file_format)


def archive(spark: SparkSession, job: Archive, planned: Planned = nobody_asks) -> Archived:
    """Add all messages that the source has and the archive does not, in one change.

    :raises OptionError: an option is invalid.
    :raises DataLoss: messages were lost before they were archived; see the option failOnDataLoss.
    :raises ArchiveError: the archive cannot be used, or another process is changing it.
    """
    with job.backend.changing(spark) as change:
        return add(spark, change, job.source, job.source.backlog(spark, change.progress), planned)


def add(
    spark: SparkSession,
    change: Change,
    source: Source,
    ranges: Sequence[QueueRange],
    planned: Planned,
) -> Archived:
    """Add the messages of these ranges in one change."""
    rows = sum(each.size for each in ranges)
    if not rows:
        return change.nothing()
    planned(JobSize(rows, folder=change.staging))
    messages = with_day(source.messages(spark, (each for each in ranges if each.size)))
    return change.add(messages, ends(ranges), rows if source.is_exact else None)


def read_archive(spark: SparkSession, folder: str, file_format: str = "") -> DataFrame:
    """All messages of an archive, with the columns of `format("rocketmq")` and `day`.

    :param file_format: as in `Archive`.
    :raises ArchiveError: there is no archive, or it cannot be used.
    """
    return backend_of(folder, file_format).messages(spark).select(*SPARK_SCHEMA.names, "day")
