"""Compacts an archive of plain Parquet: merges the small files of each day."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from pyspark.sql import SparkSession

from roquet.spark.pipelines.archive.change import Compacted
from roquet.spark.pipelines.archive.columns import FILE_SCHEMA
from roquet.spark.pipelines.archive.folder import ArchiveFolder
from roquet.spark.pipelines.archive.state import ArchiveError, ArchiveState

ORDER: Final = ("brokerName", "queueId", "queueOffset")


def compact_days(
    spark: SparkSession, folder: ArchiveFolder, size_wanted: int, files_min: int
) -> Compacted:
    """Rewrite the days that have several small files, one day of a topic after the other.

    Each day is one change of the archive. If a run is killed, the next opening of the archive finds
    every day either as it was or rewritten. Readers of the folder that do not use `read_archive`
    may see the rows of a day twice during the renames of its files.

    :param size_wanted: bytes; larger files are not rewritten, and new files are not larger.
    :param files_min: only so many files or more are merged.
    :raises ArchiveError: the archive cannot be used, or another process is changing it.
    """
    days = before = after = 0
    with folder.changing() as state:
        for day, names in folder.day_folders(state.files).items():
            for small in bins(state, names, size_wanted, files_min):
                count = len(state.files)
                state = _merged(spark, folder, state, day, small)
                days += 1
                before += len(small)
                after += len(small) + len(state.files) - count
    return Compacted(days, before, after)


def bins(
    state: ArchiveState, names: list[str], size_wanted: int, files_min: int = 2
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


def _merged(
    spark: SparkSession, folder: ArchiveFolder, state: ArchiveState, day: str, names: list[str]
) -> ArchiveState:
    staging = folder.staging(state)
    paths = [str(folder.path / name) for name in names]
    rows = spark.read.schema(FILE_SCHEMA).parquet(*paths)
    rows.coalesce(1).sortWithinPartitions(*ORDER).write.parquet(str(staging / Path(day)))
    files = folder.staged_files(staging)
    after = state.with_fewer_files(names, files)
    if after.rows != state.rows:
        raise ArchiveError(
            f"{day}: the archive has {state.rows} rows and would have {after.rows} after the "
            "compaction: it was not changed"
        )
    folder.commit(after, staging)
    return after
