"""Topics to Parquet, each message once, however often the job is run or killed (decision 0019).

archive(spark, Archive(Topics("127.0.0.1:9876", ("orders",)), "/data/archive"))
read_archive(spark, "/data/archive").where("topic = 'orders' AND day >= '2026-11-01'")
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.types import DateType, StructField, StructType

from roquet.spark.pipelines.archive_folder import ArchiveFolder
from roquet.spark.pipelines.archive_plan import ends
from roquet.spark.pipelines.archive_sources import Source
from roquet.spark.pipelines.archive_state import ArchiveError, ArchiveState
from roquet.spark.ranges import QueueRange
from roquet.spark.schema import SPARK_SCHEMA

DAY: Final = "date_from_unix_date(CAST(floor(unix_seconds(storeTimestamp) / 86400) AS INT))"
"""The day of storeTimestamp in UTC, whatever the session's time zone is."""
PARTITIONS: Final = ("topic", "day")
FILE_SCHEMA: Final = StructType([column for column in SPARK_SCHEMA if column.name not in PARTITIONS])
ARCHIVE_SCHEMA: Final = StructType([*FILE_SCHEMA, SPARK_SCHEMA["topic"], StructField("day", DateType())])


@dataclass(frozen=True)
class Archive:
    """What to archive, and where."""

    source: Source
    folder: str


@dataclass(frozen=True)
class Archived:
    """What one run added, and the archive after it; `size` in bytes of Parquet."""

    rows: int
    size: int
    files: int
    version: int
    rows_in_all: int


Planned = Callable[[int, Path], None]
"""Told before the work: so many rows, whose files grow in that folder."""


def archive(spark: SparkSession, job: Archive, planned: Planned = lambda rows, folder: None) -> Archived:
    """Add to the archive, in one change, all that the source holds and it does not.

    :raises OptionError: an option cannot be used.
    :raises roquet.spark.ranges.DataLoss: messages are gone that were never archived; see option failOnDataLoss.
    :raises ArchiveError: the archive cannot be used, or somebody else is changing it.
    """
    folder = ArchiveFolder(job.folder)
    with folder.changing() as state:
        return add(spark, folder, state, job.source, job.source.backlog(spark, state.progress), planned)


def add(
    spark: SparkSession,
    folder: ArchiveFolder,
    state: ArchiveState,
    source: Source,
    ranges: Sequence[QueueRange],
    planned: Planned,
) -> Archived:
    """The messages of these ranges, in one change of `state`."""
    rows = sum(each.size for each in ranges)
    if not rows:
        return Archived(0, 0, 0, state.version, state.rows)
    staging = folder.staging(state)
    planned(rows, staging)
    messages = source.messages(spark, (each for each in ranges if each.size)).withColumn("day", f.expr(DAY))
    messages.write.partitionBy(*PARTITIONS).parquet(str(staging))
    files = folder.staged_files(staging)
    after = state.with_rows(ends(ranges), files)
    added = after.rows - state.rows
    if added != rows and source.is_exact:
        raise ArchiveError(f"{rows} messages were to be archived and {added} were written: nothing is kept of them")
    folder.commit(after, staging)
    return Archived(added, after.size - state.size, len(files), after.version, after.rows)


def read_archive(spark: SparkSession, folder: str) -> DataFrame:
    """Every message of an archive as of now: the columns of `format("rocketmq")`, and `day`.

    Other than a plain `spark.read.parquet`, it goes by the archive's state, so it gives whole runs only, and is right
    beside a run that puts small files together; if that takes files away which this is about to read, it fails.

    :raises ArchiveError: there is no archive, or it cannot be used.
    """
    place = ArchiveFolder(folder)
    state = place.state()
    if not state.version:
        raise ArchiveError(f"{place.path} is no archive: roquet pipeline archive makes one")
    paths = [str(place.path / name) for name in sorted(state.files)]
    stored = spark.read.schema(ARCHIVE_SCHEMA).option("basePath", str(place.path)).parquet(*paths)
    return stored.select(*SPARK_SCHEMA.names, "day")
