"""Archives topics as a table in Parquet or Delta Lake."""

from __future__ import annotations

from roquet.spark.pipelines.archive.backend import Archived, Compacted
from roquet.spark.pipelines.archive.delta import delta_conf
from roquet.spark.pipelines.archive.job import Archive, Compaction, archive, compact, read_archive
from roquet.spark.pipelines.archive.sources import StoredTopics, Topics
from roquet.spark.pipelines.archive.state import ArchiveError
from roquet.spark.pipelines.archive.stream import ArchiveTrigger, archive_stream

__all__ = [
    "Archive",
    "ArchiveError",
    "ArchiveTrigger",
    "Archived",
    "Compacted",
    "Compaction",
    "StoredTopics",
    "Topics",
    "archive",
    "archive_stream",
    "compact",
    "delta_conf",
    "read_archive",
]
