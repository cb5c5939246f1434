"""An archive as a Delta Lake table. A commit to the table's log has rows and progress in one step.

Invariant: the progress is that of the newest of roquet's commits that the current table is based
on.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from typing import Any, Final
from uuid import uuid4

import pyspark
from pyspark.sql import DataFrame, SparkSession

from roquet.protocol.records.message import MessageQueue
from roquet.spark.pipelines._shared.location import as_spark_sees
from roquet.spark.pipelines.archive.backend import PARTITIONS, Archived, Compacted
from roquet.spark.pipelines.archive.commits import TableCommit, commit_text, progress_by
from roquet.spark.pipelines.archive.state import ArchiveError

APPLICATION: Final = "roquet-archive"
"""The application id of commits. Delta refuses a second commit with the same id and version."""
COMMITS_SEEN: Final = 50
"""How many commits are searched for the progress first; then all are."""
MISSING: Final = (
    "an archive of format delta needs Delta Lake's connector: pip install 'roquet[spark]' "
    "'delta-spark==4.4.0', which brings the PySpark that it works with"
)
_CONFLICT: Final = "ConcurrentTransaction"
_SCALA: Final = "2.13"
_SIZES: Final = tuple(f"spark.databricks.delta.optimize.{kind}FileSize" for kind in ("min", "max"))
_NONE: Final = TableCommit(-1)
"""Stands for the newest commit of a table that does not exist yet."""


def delta_conf() -> dict[str, str]:
    """The Spark settings for Delta tables. Spark downloads the connector's jars from Maven.

    :raises ArchiveError: the connector is not installed.
    """
    try:
        connector = version("delta-spark")
    except PackageNotFoundError as error:
        raise ArchiveError(MISSING) from error
    spark = ".".join(pyspark.__version__.split(".")[:2])
    return {
        "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
        "spark.jars.packages": f"io.delta:delta-spark_{spark}_{_SCALA}:{connector}",
        # Spark has it already, and a local Maven cache may have an incomplete copy.
        "spark.jars.excludes": "org.slf4j:slf4j-api",
    }


class DeltaArchive:
    """A Delta table at a path, or at a URL of a file system that the session supports."""

    def __init__(self, folder: str) -> None:
        self._path = as_spark_sees(folder)

    @contextmanager
    def changing(self, spark: SparkSession) -> Iterator[DeltaChange]:
        """Begin a change. Other processes may change the table; of two archive runs one fails."""
        yield DeltaChange(spark, self._path)

    def messages(self, spark: SparkSession) -> DataFrame:
        if not _delta_table(spark).isDeltaTable(spark, self._path):
            raise ArchiveError(f"{self._path} is no archive: roquet pipeline archive creates one")
        return _rows(spark, self._path)

    def compact(self, spark: SparkSession, size_wanted: int, files_min: int) -> Compacted:
        """Run Delta's OPTIMIZE, if there are `files_min` - 1 commits since the last one.

        Running readers keep using the old files, which exist until an operator runs VACUUM.
        """
        if any(
            commit.operation == "OPTIMIZE" for commit in _commits(spark, self._path, files_min - 1)
        ):
            return Compacted(0, 0, 0)
        for name in _SIZES:
            spark.conf.set(name, str(size_wanted))
        try:
            done = (
                _delta_table(spark)
                .forPath(spark, self._path)
                .optimize()
                .executeCompaction()
                .first()
                .metrics
            )
        finally:
            for name in _SIZES:
                spark.conf.unset(name)
        return Compacted(done.partitionsOptimized, done.numFilesRemoved, done.numFilesAdded)


class DeltaChange:
    """One commit to the table.

    Invariant: the progress is as of the newest commit at the beginning, or a later one. If it is of
    a later commit of roquet's, Delta refuses this commit.
    """

    staging = None

    def __init__(self, spark: SparkSession, path: str) -> None:
        self._spark = spark
        self._path = path
        is_there = _delta_table(spark).isDeltaTable(spark, path)
        self._newest = _commits(spark, path, 1)[0] if is_there else _NONE
        self.progress = self._progress() if is_there else {}

    def nothing(self) -> Archived:
        return Archived(
            0, 0, 0, self._newest.version, 0 if self._newest is _NONE else self._count()
        )

    def add(
        self, messages: DataFrame, progress: Mapping[MessageQueue, int], rows: int | None
    ) -> Archived:
        text = commit_text({**self.progress, **progress}, uuid4().hex)
        once = {
            "txnAppId": APPLICATION,
            "txnVersion": str(self._newest.version + 1),
            "userMetadata": text,
        }
        try:
            messages.write.format("delta").mode("append").partitionBy(*PARTITIONS).options(
                **once
            ).save(self._path)
        except Exception as error:  # the connector's exceptions have no common class
            if _CONFLICT in f"{type(error)} {error}":
                raise self._changed_elsewhere() from error
            raise
        commit = next(
            (each for each in _commits(self._spark, self._path, COMMITS_SEEN) if each.text == text),
            None,
        )
        if commit is None:
            raise self._changed_elsewhere()
        added, size, files = (
            int(commit.metrics[name]) for name in ("numOutputRows", "numOutputBytes", "numFiles")
        )
        if rows is not None and added != rows:
            raise ArchiveError(
                f"{rows} messages were expected and {added} were written, as version "
                f"{commit.version} of the table: RESTORE TABLE delta.`{self._path}` "
                f"TO VERSION AS OF {self._newest.version} removes them"
            )
        return Archived(added, size, files, commit.version, self._count())

    def _progress(self) -> Mapping[MessageQueue, int]:
        for limit in (COMMITS_SEEN, None):
            progress = progress_by(_commits(self._spark, self._path, limit))
            if progress is not None:
                return progress
        if self._count():
            raise ArchiveError(
                f"{self._path} is no archive: no commit in its log has the progress of an archive"
            )
        return {}

    def _count(self) -> int:
        """The rows of the table, from the statistics in its log."""
        return _rows(self._spark, self._path).count()

    def _changed_elsewhere(self) -> ArchiveError:
        return ArchiveError(
            f"{self._path} is being changed by another process: wait for it, or stop it"
        )


def _delta_table(spark: SparkSession) -> Any:
    """The connector's class DeltaTable.

    :raises ArchiveError: the connector is not installed, or the session lacks its settings.
    """
    try:
        found = import_module("delta.tables").DeltaTable
    except ImportError as error:
        raise ArchiveError(MISSING) from error
    if "Delta" not in (spark.conf.get("spark.sql.extensions", "") or ""):
        raise ArchiveError(
            "the session does not support Delta tables: start it with session(..., **delta_conf())"
        )
    return found


def _rows(spark: SparkSession, path: str) -> DataFrame:
    return spark.read.format("delta").load(path)


def _commits(spark: SparkSession, path: str, limit: int | None) -> list[TableCommit]:
    """The table's commits, the newest first; at most `limit`."""
    return [
        TableCommit(
            row.version,
            row.operation,
            row.userMetadata or "",
            row.operationParameters or {},
            row.operationMetrics or {},
        )
        for row in _delta_table(spark).forPath(spark, path).history(limit).collect()
    ]
