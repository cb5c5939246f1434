"""An archive of plain Parquet files, in a folder with the archive's state (decision 0019)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from itertools import groupby
from pathlib import Path
from typing import Final

from pyspark.sql import DataFrame, SparkSession

from roquet.protocol.records.message import MessageQueue
from roquet.spark.pipelines.archive.backend import (
    ARCHIVE_SCHEMA,
    FILE_SCHEMA,
    PARTITIONS,
    Archived,
    Compacted,
)
from roquet.spark.pipelines.archive.folder import ArchiveFolder
from roquet.spark.pipelines.archive.state import ArchiveError, ArchiveState

ORDER: Final = ("brokerName", "queueId", "queueOffset")


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
        """Rewrite the days that have several small files, one day of a topic after the other.

        Each day is one change of the archive. If a run is killed, the next opening of the archive
        finds every day either as it was or rewritten. Readers of the folder that do not use
        `read_archive` may see the rows of a day twice during the renames of its files.

        :param size_wanted: bytes; larger files are not rewritten, and new files are not larger.
        :param files_min: only so many files or more are merged.
        """
        days = before = after = 0
        with self._folder.changing() as state:
            for day, names in groupby(
                sorted(state.files), key=lambda name: name.rpartition("/")[0]
            ):
                groups = bins(state, names, size_wanted, files_min)
                days += bool(groups)
                for small in groups:
                    count = len(state.files)
                    state = self._merged(spark, state, day, small)
                    before += len(small)
                    after += len(small) + len(state.files) - count
        return Compacted(days, before, after)

    def _merged(
        self, spark: SparkSession, state: ArchiveState, day: str, names: list[str]
    ) -> ArchiveState:
        staging = self._folder.staging(state)
        paths = [str(self._folder.path / name) for name in names]
        rows = spark.read.schema(FILE_SCHEMA).parquet(*paths)
        rows.coalesce(1).sortWithinPartitions(*ORDER).write.parquet(str(staging / day))
        after = state.with_fewer_files(names, self._folder.staged_files(staging))
        if after.rows != state.rows:
            raise ArchiveError(
                f"{day}: the archive has {state.rows} rows and would have {after.rows} after the "
                "compaction: it was not changed"
            )
        self._folder.commit(after, staging)
        return after


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


def bins(
    state: ArchiveState, names: Iterable[str], size_wanted: int, files_min: int = 2
) -> list[list[str]]:
    """Groups of a day's files to merge, in the order of their names.

    Each group has at least `files_min` files, each smaller than `size_wanted`, and together at most
    `size_wanted` bytes.
    """
    found: list[list[str]] = [[]]
    size = 0
    for name in sorted(names):
        more = state.files[name].size
        if more >= size_wanted:
            continue
        if size + more > size_wanted and found[-1]:
            found.append([])
            size = 0
        found[-1].append(name)
        size += more
    return [each for each in found if len(each) >= files_min]
