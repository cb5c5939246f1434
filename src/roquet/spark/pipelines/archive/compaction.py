"""The job that compacts an archive, whatever backend keeps it.

compact(spark, Compaction("/data/archive"))
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from pyspark.sql import SparkSession

from roquet.spark.pipelines.archive.backends import backend_of
from roquet.spark.pipelines.archive.change import Compacted

SIZE_WANTED: Final = 128 << 20


@dataclass(frozen=True)
class Compaction:
    """The settings of a compaction.

    Small files of a day are merged to files of about `size_wanted` bytes, once there are
    `files_min`.
    """

    folder: str
    size_wanted: int = SIZE_WANTED
    files_min: int = 2
    file_format: str = ""


def compact(spark: SparkSession, job: Compaction) -> Compacted:
    """Merge small files of an archive. If the run is killed, each message is in the archive once.

    :raises ArchiveError: the archive cannot be used, or another process is changing it.
    """
    return backend_of(job.folder, job.file_format).compact(spark, job.size_wanted, job.files_min)
