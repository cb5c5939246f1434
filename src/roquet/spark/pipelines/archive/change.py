"""What the keepers of archives have in common: one change of one after the other, each whole or not at all."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from pyspark.sql import DataFrame, SparkSession

from roquet.protocol.records.message import MessageQueue


@dataclass(frozen=True)
class Archived:
    """What one run added, and the archive after it; `size` in bytes of Parquet."""

    rows: int
    size: int
    files: int
    version: int
    rows_in_all: int


@dataclass(frozen=True)
class Compacted:
    """How many files there were of the days that were written anew, and how many there are now."""

    days: int
    files_before: int
    files_after: int


class Change(Protocol):
    """An archive as it is, for the one who is to change it.

    `progress`: the next offset to archive, by queue; `staging`: where files of this change grow, if that can be told.
    """

    @property
    def progress(self) -> Mapping[MessageQueue, int]: ...

    @property
    def staging(self) -> Path | None: ...

    def nothing(self) -> Archived:
        """What is to be said of a run that found nothing new."""

    def add(
        self, messages: DataFrame, progress: Mapping[MessageQueue, int], rows: int | None
    ) -> Archived:
        """Messages, in the archive's columns, and the progress after them.

        :param rows: how many there have to be; None: that cannot be known.
        :raises ArchiveError: there were others, or somebody else has changed the archive.
        """


class ArchiveBackend(Protocol):
    """Where an archive is, and in what form."""

    def changing(self, spark: SparkSession) -> AbstractContextManager[Change]:
        """:raises ArchiveError: the archive cannot be used, or somebody else is changing it."""

    def messages(self, spark: SparkSession) -> DataFrame:
        """All that is archived as of now, in the columns of an archive.

        :raises ArchiveError: there is no archive, or it cannot be used.
        """

    def compact(self, spark: SparkSession, size_wanted: int, files_min: int) -> Compacted:
        """Few large files in place of many small ones; raises as `changing`."""
