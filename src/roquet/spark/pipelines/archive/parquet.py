"""An archive of plain Parquet files, in a folder with the archive's state (decision 0019)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from roquet.protocol.records.message import MessageQueue
from roquet.spark.pipelines.archive.change import Archived, Compacted
from roquet.spark.pipelines.archive.columns import ARCHIVE_SCHEMA, PARTITIONS
from roquet.spark.pipelines.archive.folder import ArchiveFolder
from roquet.spark.pipelines.archive.parquet_compaction import compact_days
from roquet.spark.pipelines.archive.state import ArchiveError, ArchiveState


class ParquetArchive:
    """An archive in a folder of a file system.

    :raises ArchiveError: the folder is a URL.
    """

    def __init__(self, folder: str | Path) -> None:
        self._folder = ArchiveFolder(folder)

    @contextmanager
    def changing(self, _spark: SparkSession) -> Iterator[ParquetChange]:
        with self._folder.changing() as state:
            yield ParquetChange(self._folder, state)

    def messages(self, spark: SparkSession) -> DataFrame:
        """Read the files that the archive's state names, unlike a plain `spark.read.parquet`.

        So the result has complete changes only, and no row twice during a compaction. It fails if a
        compaction deletes files before they were read.
        """
        path = self._folder.path
        state = self._folder.state()
        if not state.version:
            raise ArchiveError(f"{path} is no archive: roquet pipeline archive creates one")
        files = [str(path / name) for name in sorted(state.files)]
        return spark.read.schema(ARCHIVE_SCHEMA).option("basePath", str(path)).parquet(*files)

    def compact(self, spark: SparkSession, size_wanted: int, files_min: int) -> Compacted:
        return compact_days(spark, self._folder, size_wanted, files_min)


class ParquetChange:
    """One change of the folder's state. The caller holds the folder's lock."""

    def __init__(self, folder: ArchiveFolder, state: ArchiveState) -> None:
        self._folder = folder
        self._state = state
        self.staging = folder.staging(state)

    @property
    def progress(self) -> Mapping[MessageQueue, int]:
        return self._state.progress

    def nothing(self) -> Archived:
        return Archived(0, 0, 0, self._state.version, self._state.rows)

    def add(
        self, messages: DataFrame, progress: Mapping[MessageQueue, int], rows: int | None
    ) -> Archived:
        messages.write.partitionBy(*PARTITIONS).parquet(str(self.staging))
        files = self._folder.staged_files(self.staging)
        before, after = self._state, self._state.with_rows(progress, files)
        added = after.rows - before.rows
        if rows is not None and added != rows:
            raise ArchiveError(
                f"{self._folder.path}: {rows} messages were expected and {added} were written: "
                "the archive was not changed"
            )
        self._folder.commit(after, self.staging)
        return Archived(added, after.size - before.size, len(files), after.version, after.rows)
