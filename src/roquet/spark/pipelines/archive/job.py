"""Archives topics, each message once, however often the job runs or is killed (decision 0019).

archive(spark, Archive(Topics("127.0.0.1:9876", ("orders",)), "/data/archive"))
read_archive(spark, "/data/archive").where("topic = 'orders' AND day >= '2026-11-01'")
compact(spark, Compaction("/data/archive"))
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from pyspark.sql import DataFrame, SparkSession

from roquet.spark._arrow.schema import SPARK_SCHEMA
from roquet.spark._options.ranges import QueueRange
from roquet.spark._options.values import one_of
from roquet.spark.pipelines._shared.job_size import JobSize, Planned, ignore_size
from roquet.spark.pipelines.archive.backend import (
    ArchiveBackend,
    Archived,
    Change,
    Compacted,
    with_day,
)
from roquet.spark.pipelines.archive.delta import DeltaArchive
from roquet.spark.pipelines.archive.folder import STATES
from roquet.spark.pipelines.archive.parquet import ParquetArchive
from roquet.spark.pipelines.archive.plan import ends
from roquet.spark.pipelines.archive.sources import Source
from roquet.spark.pipelines.archive.state import ArchiveError

FORMATS: Final = ("parquet", "delta")


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


@dataclass(frozen=True)
class Compaction:
    """The settings of a compaction.

    Small files of a day are merged to files of about `size_wanted` bytes, once there are
    `files_min`.
    """

    folder: str
    size_wanted: int = 128 << 20
    files_min: int = 2
    file_format: str = ""


def archive(spark: SparkSession, job: Archive, planned: Planned = ignore_size) -> Archived:
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


def compact(spark: SparkSession, job: Compaction) -> Compacted:
    """Merge small files of an archive. If the run is killed, each message is in the archive once.

    :raises ArchiveError: the archive cannot be used, or another process is changing it.
    """
    return backend_of(job.folder, job.file_format).compact(spark, job.size_wanted, job.files_min)


def backend_of(folder: str, file_format: str = "") -> ArchiveBackend:
    """The storage of an archive.

    :param folder: a path; or a URL, if the format is delta.
    :param file_format: if empty, the format of the existing archive, or parquet.
    :raises ArchiveError: the folder has an archive of another format, or is a URL without delta.
    :raises OptionError: there is no such format.
    """
    there = format_of(folder)
    wanted = one_of("format", file_format, FORMATS) if file_format else there
    if there not in (None, wanted):
        raise ArchiveError(
            f"{folder} has an archive in format {there}, not {wanted}: give a new folder"
        )
    return DeltaArchive(folder) if wanted == "delta" else ParquetArchive(folder)


def format_of(folder: str) -> str | None:
    """The format of the existing archive; None if there is none, or the folder cannot be read."""
    marks = {"delta": "_delta_log", "parquet": STATES}
    return next((name for name, mark in marks.items() if (Path(folder) / mark).is_dir()), None)
