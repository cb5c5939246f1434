"""Which keeper an archive has: plain Parquet, or a table of Delta Lake."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from roquet.spark._options.values import one_of
from roquet.spark.pipelines.archive.change import ArchiveBackend
from roquet.spark.pipelines.archive.delta import DeltaArchive
from roquet.spark.pipelines.archive.folder import STATES
from roquet.spark.pipelines.archive.parquet import ParquetArchive
from roquet.spark.pipelines.archive.state import ArchiveError

FORMATS: Final = ("parquet", "delta")


def keeper_of(folder: str, file_format: str = "") -> ArchiveBackend:
    """The keeper of an archive of that format; without one, of the archive that is there, or plain Parquet.

    :param folder: a path; or a URL, if the format is delta.
    :raises ArchiveError: there is one of another format, or there cannot be one.
    :raises OptionError: there is no such format.
    """
    there = format_of(folder)
    wanted = one_of("format", file_format, FORMATS) if file_format else there
    if there not in (None, wanted):
        raise ArchiveError(
            f"{folder} has an archive of format {there}, not {wanted}: give a new folder"
        )
    return DeltaArchive(folder) if wanted == "delta" else ParquetArchive(folder)


def format_of(folder: str) -> str | None:
    """Of the archive that is there; None: there is none, or nobody can look there."""
    marks = {"delta": "_delta_log", "parquet": STATES}
    return next((name for name, mark in marks.items() if (Path(folder) / mark).is_dir()), None)
