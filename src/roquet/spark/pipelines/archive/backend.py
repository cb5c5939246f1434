"""The storage of archives: the columns of every archive, and what each kind of storage can do.

Invariant: a change is made entirely or not at all, one at a time.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.types import DateType, StructField, StructType

from roquet.protocol.records.message import MessageQueue
from roquet.spark._arrow.schema import SPARK_SCHEMA

PARTITIONS: Final = ("topic", "day")
FILE_SCHEMA: Final = StructType(
    [column for column in SPARK_SCHEMA if column.name not in PARTITIONS]
)
ARCHIVE_SCHEMA: Final = StructType(
    [*FILE_SCHEMA, SPARK_SCHEMA["topic"], StructField("day", DateType())]
)
_DAY: Final = "date_from_unix_date(CAST(floor(unix_seconds(storeTimestamp) / 86400) AS INT))"
"""SQL for the day of storeTimestamp in UTC, independent of the session's time zone."""


@dataclass(frozen=True)
class Archived:
    """The result of one run: what it added, and the archive after it. `size`: bytes of Parquet."""

    rows: int
    size: int
    files: int
    version: int
    rows_in_all: int


@dataclass(frozen=True)
class Compacted:
    """The result of a compaction: the days rewritten, and their files before and after."""

    days: int
    files_before: int
    files_after: int


class Change(Protocol):
    """One change of an archive in progress.

    `progress`: the next offset to archive of each queue. `staging`: the folder in which the files
    of this change grow; None if it is unknown.
    """

    @property
    def progress(self) -> Mapping[MessageQueue, int]: ...

    @property
    def staging(self) -> Path | None: ...

    def nothing(self) -> Archived:
        """The result of a run that found no new messages."""

    def add(
        self, messages: DataFrame, progress: Mapping[MessageQueue, int], rows: int | None
    ) -> Archived:
        """Add messages and the progress after them, and commit the change.

        :param messages: in the columns of an archive.
        :param rows: the expected count of messages; None if unknown.
        :raises ArchiveError: the count is another, or another process has changed the archive.
        """


class ArchiveBackend(Protocol):
    """The storage of one archive."""

    def changing(self, spark: SparkSession) -> AbstractContextManager[Change]:
        """Begin a change.

        :raises ArchiveError: the archive cannot be used, or another process is changing it.
        """

    def messages(self, spark: SparkSession) -> DataFrame:
        """All archived messages, in the columns of an archive.

        :raises ArchiveError: there is no archive, or it cannot be used.
        """

    def compact(self, spark: SparkSession, size_wanted: int, files_min: int) -> Compacted:
        """Merge small files into files of `size_wanted` bytes. Raises as `changing` does."""


def with_day(messages: DataFrame) -> DataFrame:
    """Messages in the columns of an archive: those of `format("rocketmq")`, and the day."""
    return messages.withColumn("day", f.expr(_DAY))
