"""Resolves paths to store directories, and finds the names of their brokers."""

from __future__ import annotations

from dataclasses import dataclass
from glob import glob, has_magic
from pathlib import Path
from typing import Final

from roquet.errors import OptionError, StoreError
from roquet.spark._options.store import StoreOptions

_USUAL_NAME: Final = "store"
"""The default name of store directories, which says nothing about the broker."""


@dataclass(frozen=True)
class StoreDirectory:
    """One store: its root, and the folders of its log if they are not the default one below it."""

    root: Path
    log_folders: tuple[Path, ...]
    broker_name: str


def places(options: StoreOptions) -> list[StoreDirectory]:
    """The stores to read, without duplicates.

    :raises StoreError: a path matches no directory.
    :raises OptionError: commitLog or brokerName do not match the number of stores.
    """
    roots = list(dict.fromkeys(root for path in options.paths for root in _roots(path)))
    if options.commit_log and len(roots) > 1:
        raise OptionError(
            f"commitLog is for one store, path has {len(roots)}: "
            "read them separately and union the DataFrames"
        )
    folders = tuple(map(_directory, options.commit_log))
    return [
        StoreDirectory(root, folders, name)
        for root, name in zip(roots, _names(options, roots), strict=True)
    ]


def _roots(path: str) -> list[Path]:
    if not has_magic(path) or Path(path).is_dir():
        return [_directory(path)]
    found = sorted(Path(each).resolve() for each in glob(path) if Path(each).is_dir())
    if not found:
        raise StoreError(f"path: no directory matches {path}")
    return found


def _directory(path: str) -> Path:
    if not Path(path).is_dir():
        raise StoreError(f"path: {path} is no directory on this machine")
    return Path(path).resolve()


def _names(options: StoreOptions, roots: list[Path]) -> list[str]:
    given = list(options.broker_names)
    if not given:
        return [
            root.parent.name if root.name == _USUAL_NAME and root.parent.name else root.name
            for root in roots
        ]
    if len(given) == 1:
        return given * len(roots)
    if len(given) != len(roots):
        raise OptionError(
            f"brokerName: {len(given)} names for {len(roots)} stores, give one name or one for each"
        )
    return given
