"""Whole files that a crash leaves as they were or as they are to be, and the names of files made durable."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Lock
from typing import Final, TypeVar

T = TypeVar("T")

_WRITING: Final = tuple(Lock() for _ in range(16))
"""By path: two threads that replace the same file would write into one unfinished file."""


def backup_of(path: Path) -> Path:
    return path.with_name(path.name + ".bak")


def damaged_of(path: Path) -> Path:
    return path.with_name(path.name + ".damaged")


def _unfinished(path: Path) -> Path:
    return path.with_name(path.name + ".tmp")


def replace(path: Path, data: bytes) -> None:
    """Make `path` hold `data`, durably and at once: after a crash it is the old file or the new. Folders are made.

    :raises OSError: it could not be written; the old file is whole. (Only where the sync of the folder failed, the file
        is the new one already, and a crash may bring back the old one.)
    """
    make_folders(path.parent)
    fresh = _unfinished(path)
    with _WRITING[hash(path) % len(_WRITING)]:
        try:
            with naming(fresh), fresh.open("wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            fresh.replace(path)
        except OSError:
            with suppress(
                OSError
            ):  # what keeps it from being written may keep it from being deleted
                fresh.unlink()
            raise
        sync(path.parent)


def replace_with_backup(path: Path, data: bytes) -> None:
    """As `replace`; what the file held before is its backup then."""
    old = path.read_bytes() if path.exists() else b""
    if old == data:
        return
    if old:
        replace(backup_of(path), old)
    replace(path, data)


def read_with_backup(
    path: Path, parse: Callable[[bytes], T]
) -> tuple[T | None, list[tuple[Path, Exception]]]:
    """What a file holds or, where that cannot be read, its backup, which takes the file's place: else the next write
    would make a backup of what is broken. That is kept as `damaged_of(path)`.

    :param parse: raises ValueError or KeyError for bytes that it cannot read.
    :return: None where neither can be read or is there; and which of the two could not be read, and why.
    """
    remove_unfinished(path)
    problems: list[tuple[Path, Exception]] = []
    for candidate in (path, backup_of(path)):
        try:
            data = candidate.read_bytes()
            found = parse(data)
        except (OSError, ValueError, KeyError) as error:
            problems.append((candidate, error))
            continue
        if candidate != path:
            with suppress(OSError):  # what it holds is known all the same
                with suppress(FileNotFoundError):
                    path.replace(damaged_of(path))
                replace(path, data)
        return found, problems
    return None, [problem for problem in problems if not isinstance(problem[1], FileNotFoundError)]


def remove_unfinished(path: Path) -> None:
    """Delete what a crash may have left of a `replace` of this file and of its backup; nobody may be writing them."""
    for each in (path, backup_of(path)):
        with suppress(OSError):  # it does no harm where it is
            _unfinished(each).unlink()


def make_folders(folder: Path) -> None:
    """Make a folder and those above it where they are missing, durably."""
    for made in made_folders(folder):
        sync(made.parent)


def made_folders(folder: Path) -> list[Path]:
    """Make a folder and those above it where they are missing. Gives those that were made, outermost first: their names
    are not durable yet.
    """
    if folder.is_dir():
        return []
    made = made_folders(folder.parent)
    try:
        folder.mkdir()
    except FileExistsError:
        if not folder.is_dir():
            raise
    return [*made, folder]


def sync(path: Path) -> None:
    """Make a file, or the names in a folder, durable; Windows does the latter by itself, the former not in this way.

    :raises OSError: it names the path.
    """
    if sys.platform == "win32":
        return
    descriptor = os.open(path, os.O_RDONLY)
    try:
        with naming(path):
            os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def naming(path: Path) -> Iterator[None]:
    """Let errors of calls that only know a descriptor name the file."""
    try:
        yield
    except OSError as error:
        if error.filename is None:
            error.filename = str(path)
        raise
