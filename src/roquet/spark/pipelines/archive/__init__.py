"""Archives topics as a table in Parquet or Delta Lake."""

from __future__ import annotations

from typing import TYPE_CHECKING

from roquet.common.lazy import attributes_of

if TYPE_CHECKING:
    from roquet.spark.pipelines.archive.change import Archived, Compacted
    from roquet.spark.pipelines.archive.compaction import Compaction, compact
    from roquet.spark.pipelines.archive.delta import delta_conf
    from roquet.spark.pipelines.archive.job import Archive, archive, read_archive
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

if not TYPE_CHECKING:  # with __getattr__, a type checker would accept any attribute
    __getattr__ = attributes_of(
        __name__,
        {
            "Archive": "roquet.spark.pipelines.archive.job",
            "ArchiveError": "roquet.spark.pipelines.archive.state",
            "Archived": "roquet.spark.pipelines.archive.change",
            "Compacted": "roquet.spark.pipelines.archive.change",
            "Compaction": "roquet.spark.pipelines.archive.compaction",
            "ArchiveTrigger": "roquet.spark.pipelines.archive.stream",
            "StoredTopics": "roquet.spark.pipelines.archive.sources",
            "Topics": "roquet.spark.pipelines.archive.sources",
            "archive": "roquet.spark.pipelines.archive.job",
            "archive_stream": "roquet.spark.pipelines.archive.stream",
            "compact": "roquet.spark.pipelines.archive.compaction",
            "delta_conf": "roquet.spark.pipelines.archive.delta",
            "read_archive": "roquet.spark.pipelines.archive.job",
        },
    )
