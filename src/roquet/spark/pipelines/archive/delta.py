"""An archive as a table of Delta Lake: its log, which commits rows and progress in one step, is the archive's state.

Keeps: the progress is that of the newest commit of ours that the table, as it is now, comes from.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Final
from uuid import uuid4

import pyspark
from pyspark.sql import DataFrame, SparkSession

from roquet.protocol.records.message import MessageQueue
from roquet.spark.pipelines.archive.change import Archived, Compacted
from roquet.spark.pipelines.archive.columns import PARTITIONS
from roquet.spark.pipelines.archive.commits import Commit, commit_text, progress_by
from roquet.spark.pipelines.archive.folder import is_url
from roquet.spark.pipelines.archive.state import ArchiveError

APPLICATION: Final = "roquet-archive"
"""The name by which the table's log refuses a second commit of one version."""
COMMITS_SEEN: Final = 50
"""So far the log is looked back at first; then all of it."""
MISSING: Final = (
    "an archive of format delta needs Delta Lake's connector: pip install 'roquet[spark]' 'delta-spark==4.4.0', "
    "which brings the PySpark that it works with"
)
_CONFLICT: Final = "ConcurrentTransaction"
_SCALA: Final = "2.13"
_SIZES: Final = tuple(f"spark.databricks.delta.optimize.{kind}FileSize" for kind in ("min", "max"))
_NONE: Final = Commit(-1)
"""The newest commit of a table that is still to be made."""


def delta_conf() -> dict[str, str]:
    """The settings of a session that is to know Delta's tables; the connector's jars come from Maven's repositories.

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
        "spark.jars.excludes": "org.slf4j:slf4j-api",  # Spark has it, and a local cache of Maven's may have half of it
    }


class DeltaArchive:
    """At a path, or at a URL that the session's file systems know."""

    def __init__(self, folder: str) -> None:
        self._path = folder if is_url(folder) else str(Path(folder).absolute())

    @contextmanager
    def changing(self, spark: SparkSession) -> Iterator[DeltaChange]:
        """Others may change the table meanwhile; who archives into it at the same time fails."""
        yield DeltaChange(spark, self._path)

    def messages(self, spark: SparkSession) -> DataFrame:
        if not _delta_table(spark).isDeltaTable(spark, self._path):
            raise ArchiveError(f"{self._path} is no archive: roquet pipeline archive makes one")
        return _rows(spark, self._path)

    def compact(self, spark: SparkSession, size_wanted: int, files_min: int) -> Compacted:
        """Delta's own OPTIMIZE, once that many changes came since the last one. Readers go on with the files that they
        know, which stay there until somebody calls VACUUM.
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
    """One commit to the table, after the one that was the newest when this began.

    Keeps: the progress is as of that commit or a later one; if of a later one of ours, the log refuses this one's.
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
        except Exception as error:  # the connector has classes of its own
            if _CONFLICT in f"{type(error)} {error}":
                raise self._elsewhere() from error
            raise
        commit = next(
            (each for each in _commits(self._spark, self._path, COMMITS_SEEN) if each.text == text),
            None,
        )
        if commit is None:
            raise self._elsewhere()
        added, size, files = (
            int(commit.metrics[name]) for name in ("numOutputRows", "numOutputBytes", "numFiles")
        )
        if rows is not None and added != rows:
            raise ArchiveError(
                f"{rows} messages were to be archived and {added} were written, as version {commit.version} of the "
                f"table: RESTORE TABLE delta.`{self._path}` TO VERSION AS OF {self._newest.version} takes them back"
            )
        return Archived(added, size, files, commit.version, self._count())

    def _progress(self) -> Mapping[MessageQueue, int]:
        for limit in (COMMITS_SEEN, None):
            progress = progress_by(_commits(self._spark, self._path, limit))
            if progress is not None:
                return progress
        if self._count():
            raise ArchiveError(
                f"{self._path} is no archive: no commit in its log says how far it is"
            )
        return {}

    def _count(self) -> int:
        """By the log's statistics."""
        return _rows(self._spark, self._path).count()

    def _elsewhere(self) -> ArchiveError:
        return ArchiveError(
            f"{self._path} is being changed by another process: wait for it, or stop it"
        )


def _delta_table(spark: SparkSession) -> Any:
    """:raises ArchiveError: the connector is not installed, or the session does not know it."""
    try:
        found = import_module("delta.tables").DeltaTable
    except ImportError as error:
        raise ArchiveError(MISSING) from error
    if "Delta" not in (spark.conf.get("spark.sql.extensions", "") or ""):
        raise ArchiveError(
            "the session does not know Delta's tables: start it with session(..., **delta_conf())"
        )
    return found


def _rows(spark: SparkSession, path: str) -> DataFrame:
    return spark.read.format("delta").load(path)


def _commits(spark: SparkSession, path: str, limit: int | None) -> list[Commit]:
    """The newest ones first."""
    return [
        Commit(
            row.version,
            row.operation,
            row.userMetadata or "",
            row.operationParameters or {},
            row.operationMetrics or {},
        )
        for row in _delta_table(spark).forPath(spark, path).history(limit).collect()
    ]
