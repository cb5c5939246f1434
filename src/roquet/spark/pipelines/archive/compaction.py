"""Few large files of a day in place of many small ones.

compact(spark, Compaction("/data/archive"))
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from pyspark.sql import SparkSession

from roquet.spark.pipelines.archive.backends import keeper_of
from roquet.spark.pipelines.archive.change import Compacted

SIZE_WANTED: Final = 128 << 20


@dataclass(frozen=True)
class Compaction:
    """Which archive; once a day has `files_min` files, these are put together until they have `size_wanted` bytes."""

    folder: str
    size_wanted: int = SIZE_WANTED
    files_min: int = 2
    file_format: str = ""


def compact(spark: SparkSession, job: Compaction) -> Compacted:
    """Whenever this is killed, each message is in the archive once.

    :raises ArchiveError: the archive cannot be used, or somebody else is changing it.
    """
    return keeper_of(job.folder, job.file_format).compact(spark, job.size_wanted, job.files_min)
