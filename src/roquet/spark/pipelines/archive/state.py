"""PURE: the state of an archive at one version: the next offset of each queue, and its files.

Invariant: a state is complete. The newest state describes the archive without older ones.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from roquet.errors import OptionError, RoquetError
from roquet.protocol.records.message import MessageQueue
from roquet.spark._options.queue_json import by_queue, to_tree

FORMAT: Final = 1


class ArchiveError(RoquetError):
    """An archive cannot be used as it is. The text names the file or table and says what to do."""


@dataclass(frozen=True)
class StoredFile:
    """A Parquet file of an archive: its rows, and its size in bytes."""

    rows: int
    size: int


@dataclass(frozen=True)
class ArchiveState:
    """The state of an archive after `version` changes.

    `progress`: the next offset to archive of each queue. `files`: by their paths within the
    archive, with `/`. `staged`: the folder that the new files of this version were written to.
    `removed`: the files that they replace.
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
        """The next version, with new rows."""
        return ArchiveState(
            self.version + 1, {**self.progress, **progress}, {**self.files, **files}
        )

    def with_fewer_files(
        self, replaced: Iterable[str], files: Mapping[str, StoredFile]
    ) -> ArchiveState:
        """The next version, in which `files` contain the rows of the files `replaced`."""
        gone = tuple(sorted(replaced))
        kept = {name: file for name, file in self.files.items() if name not in gone}
        return ArchiveState(self.version + 1, self.progress, {**kept, **files}, removed=gone)

    def to_json(self) -> str:
        """JSON for `from_json`. Equal states have equal texts."""
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
        """Parse the text of `to_json`.

        :param source: the file's name, for the error.
        :raises ArchiveError: the text is damaged, or a later version of roquet wrote it.
        """
        try:
            tree = json.loads(text)
            if tree["format"] != FORMAT:
                raise ArchiveError(
                    f"{source} has format {tree['format']}, this roquet reads format {FORMAT}: "
                    "use a later roquet"
                )
            return _from_tree(tree)
        except (ValueError, KeyError, TypeError, AttributeError, OptionError) as error:
            raise ArchiveError(
                f"{source} is no valid state of an archive ({error!r}): restore it from a copy"
            ) from error


def progress_of(tree: object) -> dict[MessageQueue, int]:
    """The next offsets to archive in parsed JSON.

    :raises OptionError, ValueError: `tree` has no offsets by queue.
    """
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
