"""Plain Parquet: few large files of a day in place of many small ones."""

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
    """Write the days anew that have several small files, a day of a topic after the other, in the order of queues.

    Each is one change of the archive: a killed run leaves every day as it was or as it shall be, after the next opening
    of the archive. Plain readers of the folder may see a day's rows twice while its files change places, which takes
    some renames and no writing; `read_archive` never does.

    :raises ArchiveError: the archive cannot be used, or somebody else is changing it.
    """
    days = before = after = 0
    with folder.changing() as state:
        for day, names in folder.day_folders(state.files).items():
            for small in bins(state, names, size_wanted, files_min):
                count = len(state.files)
                state = _put_together(spark, folder, state, day, small)
                days, before = days + 1, before + len(small)
                after += len(small) + len(state.files) - count
    return Compacted(days, before, after)


def bins(
    state: ArchiveState, names: list[str], size_wanted: int, files_min: int = 2
) -> list[list[str]]:
    """Which of a day's files are put together: neighbours, so many at least, none larger than what is wanted."""
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


def _put_together(
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
            f"{day}: {state.rows} rows became {after.rows}: the archive is left as it was"
        )
    folder.commit(after, staging)
    return after
