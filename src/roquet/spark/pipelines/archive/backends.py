"""Chooses the storage of an archive: plain Parquet or a Delta Lake table."""

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


def backend_of(folder: str, file_format: str = "") -> ArchiveBackend:
    """The storage of an archive.

    :param folder: a path; or a URL, if the format is delta.
    :param file_format: if empty, the format of the existing archive, or parquet.
    :raises ArchiveError: the folder has an archive of another format, or is a URL without delta.
    :raises OptionError: there is no such format.
    """
    there = format_of(folder)
    wanted = one_of("format", file_format, FORMATS) if file_format else there
    if there not in (None, wanted):
        raise ArchiveError(
            f"{folder} has an archive in format {there}, not {wanted}: give a new folder"
        )
    return DeltaArchive(folder) if wanted == "delta" else ParquetArchive(folder)


def format_of(folder: str) -> str | None:
    """The format of the existing archive; None if there is none, or the folder cannot be read."""
    marks = {"delta": "_delta_log", "parquet": STATES}
    return next((name for name, mark in marks.items() if (Path(folder) / mark).is_dir()), None)
