"""Files that are replaced atomically and durably, backups, durable file names."""

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
"""By the path's hash: two threads that replace one file would write into the same .tmp file."""


def not_in_file_names() -> str:
    """The characters that this system allows in no file name."""
    return '\0/\\:*?"<>|' if sys.platform == "win32" else "\0/"


def is_file_name(name: str) -> bool:
    """Whether a file or folder of this system can have this name."""
    if sys.platform == "win32" and name.endswith((".", " ")):  # which Windows drops
        return False
    return name not in ("", ".", "..") and not set(name) & set(not_in_file_names())


def backup_of(path: Path) -> Path:
    return path.with_name(path.name + ".bak")


def damaged_of(path: Path) -> Path:
    return path.with_name(path.name + ".damaged")


def _unfinished(path: Path) -> Path:
    return path.with_name(path.name + ".tmp")


def replace(path: Path, data: bytes) -> None:
    """Replace the content of `path`, atomically and durably.

    After a crash the file has the old content or the new. Missing folders are made.

    :raises OSError: the file could not be written, and has the old content. If only the sync of its
        folder failed, it has the new content, and a crash may bring back the old.
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
            # the drive that does not let it be written may not let it be deleted
            with suppress(OSError):
                fresh.unlink()
            raise
        sync(path.parent)


def _content(path: Path) -> bytes | None:
    return path.read_bytes() if path.exists() else None


def replace_with_backup(
    path: Path,
    data: bytes,
    read: Callable[[Path], bytes | None] = _content,
    replace: Callable[[Path, bytes], None] = replace,
) -> None:
    """As `replace`, and keep the old content as `backup_of(path)`.

    :param read: reads a file, None if there is none; another one for files of a simulated drive.
    :param replace: replaces a file atomically and durably, likewise.
    """
    old = read(path)
    if old == data:
        return
    if old:
        replace(backup_of(path), old)
    replace(path, data)


def read_with_backup(
    path: Path, parse: Callable[[bytes], T]
) -> tuple[T | None, list[tuple[Path, Exception]]]:
    """Read a file, or its backup if the file cannot be read.

    The backup then replaces the file, which is kept as `damaged_of(path)`. Otherwise the next write
    would replace the good backup by the damaged file.

    :param parse: decodes the bytes; raises ValueError or KeyError if it cannot.
    :returns: the decoded content (None if neither can be read or exists), and which of the two
        files could not be read, with the error.
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
            with suppress(OSError):  # its content was read and can be used without
                with suppress(FileNotFoundError):
                    path.replace(damaged_of(path))
                replace(path, data)
        return found, problems
    return None, [problem for problem in problems if not isinstance(problem[1], FileNotFoundError)]


def remove_unfinished(path: Path) -> None:
    """Delete the .tmp files that a crash during `replace` left of a file and its backup.

    No thread may be writing them.
    """
    for each in (path, backup_of(path)):
        with suppress(OSError):  # it does no harm if it stays
            _unfinished(each).unlink()


def make_folders(folder: Path) -> None:
    """Make a folder and its missing parents, durably."""
    for made in made_folders(folder):
        sync(made.parent)


def made_folders(folder: Path) -> list[Path]:
    """Make a folder and its missing parents.

    :returns: the folders that were made, outermost first. Their names are not durable yet.
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
    """Make a file, or the file names in a folder, durable.

    Does nothing on Windows, which keeps names durable itself and syncs files in another way.

    :raises OSError: the sync failed; the error names the path.
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
    """Context manager that adds the path to errors of calls that only know a descriptor."""
    try:
        yield
    except OSError as error:
        if error.filename is None:
            error.filename = str(path)
        raise
