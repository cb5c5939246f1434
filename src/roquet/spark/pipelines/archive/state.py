"""PURE: what an archive holds at one version: how far it is with each queue, and its files.

Keeps: a state is whole: whoever has the newest needs no other.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from roquet.errors import RoquetError
from roquet.protocol.records.message import MessageQueue
from roquet.spark._options.queue_json import by_queue, to_tree
from roquet.spark._options.values import OptionError

FORMAT: Final = 1


class ArchiveError(RoquetError):
    """The archive cannot be used as it is; the message names the file and what to do."""


@dataclass(frozen=True)
class StoredFile:
    """A Parquet file of the archive: its rows, and its size in bytes."""

    rows: int
    size: int


@dataclass(frozen=True)
class ArchiveState:
    """The archive after so many changes.

    `progress`: the next queue offset to archive; `files`: by their paths within the archive, with `/`; `staged`: the
    folder that this version's new files were written to; `removed`: the files that they stand in the place of.
    """

    version: int = 0
    progress: Mapping[MessageQueue, int] = field(default_factory=dict)
    files: Mapping[str, StoredFile] = field(default_factory=dict)
    staged: str = ""
    removed: tuple[str, ...] = ()

    @property
    def rows(self) -> int:
        return sum(file.rows for file in self.files.values())

    @property
    def size(self) -> int:
        """In bytes."""
        return sum(file.size for file in self.files.values())

    def with_rows(
        self, progress: Mapping[MessageQueue, int], files: Mapping[str, StoredFile]
    ) -> ArchiveState:
        """The next version, after new rows came."""
        return ArchiveState(
            self.version + 1, {**self.progress, **progress}, {**self.files, **files}
        )

    def with_fewer_files(
        self, replaced: Iterable[str], files: Mapping[str, StoredFile]
    ) -> ArchiveState:
        """The next version, in which `files` hold the rows of `replaced`."""
        gone = tuple(sorted(replaced))
        kept = {name: file for name, file in self.files.items() if name not in gone}
        return ArchiveState(self.version + 1, self.progress, {**kept, **files}, removed=gone)

    def to_json(self) -> str:
        """Text that `from_json` reads; its order depends on nothing but the state."""
        tree = {
            "format": FORMAT,
            "version": self.version,
            "progress": to_tree(self.progress.items()),
            "files": {name: [file.rows, file.size] for name, file in self.files.items()},
            "staged": self.staged,
            "removed": list(self.removed),
        }
        return json.dumps(tree, sort_keys=True, indent=1)

    @classmethod
    def from_json(cls, text: str, source: str) -> ArchiveState:
        """:raises ArchiveError: the text is none of `to_json`, or one of a later roquet; it names `source`."""
        try:
            tree = json.loads(text)
            if tree["format"] != FORMAT:
                raise ArchiveError(
                    f"{source} has format {tree['format']}, this roquet knows {FORMAT}: use a later roquet"
                )
            return _from_tree(tree)
        except (ValueError, KeyError, TypeError, AttributeError, OptionError) as error:
            raise ArchiveError(
                f"{source} is no state of an archive ({error!r}): put back a copy of it"
            ) from error


def progress_of(tree: object) -> dict[MessageQueue, int]:
    """:raises OptionError, ValueError: these are no offsets by queue."""
    return {queue: int(str(at)) for queue, at in by_queue("progress", tree, "offsets by queue")}


def _from_tree(tree: Mapping[str, Any]) -> ArchiveState:
    files = {name: StoredFile(rows, size) for name, (rows, size) in tree["files"].items()}
    return ArchiveState(
        tree["version"],
        progress_of(tree["progress"]),
        files,
        tree["staged"],
        tuple(tree["removed"]),
    )
