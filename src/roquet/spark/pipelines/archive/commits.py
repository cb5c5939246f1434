"""PURE: the progress of an archive, from the commits in the log of its Delta table.

roquet's commits have it in their userMetadata: {"roquetArchive": 1, "progress": {...}, "change":
"..."}.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from roquet.protocol.records.message import MessageQueue
from roquet.spark._options.queue_json import to_tree
from roquet.spark.pipelines.archive.state import ArchiveError, progress_of

FORMAT: Final = 1
_MARK: Final = "roquetArchive"


@dataclass(frozen=True)
class TableCommit:
    """One row of a table's history. `text` is the userMetadata."""

    version: int
    operation: str = ""
    text: str = ""
    parameters: Mapping[str, str | None] = field(default_factory=dict)
    metrics: Mapping[str, str] = field(default_factory=dict)


def commit_text(progress: Mapping[MessageQueue, int], change: str) -> str:
    """The userMetadata of a commit. `change` must be unique."""
    return json.dumps({_MARK: FORMAT, "progress": to_tree(progress.items()), "change": change})


def progress_by(commits: Iterable[TableCommit]) -> Mapping[MessageQueue, int] | None:
    """The progress in the newest of roquet's commits that the table is based on; None without any.

    :param commits: the newest first.
    :raises ArchiveError: a RESTORE does not name its version, or a later roquet wrote a commit.
    """
    at = math.inf
    for commit in commits:
        if commit.version > at:
            continue
        if commit.operation == "RESTORE":
            at = _restored(commit)
        elif (progress := _progress(commit)) is not None:
            return progress
    return None


def _restored(commit: TableCommit) -> int:
    """The version that a RESTORE went back to."""
    number = commit.parameters.get("version") or ""
    if not number.isdecimal():
        raise ArchiveError(
            f"version {commit.version} of the table was restored by time, so its progress is "
            "unknown: RESTORE it TO VERSION AS OF a number"
        )
    return int(number)


def _progress(commit: TableCommit) -> Mapping[MessageQueue, int] | None:
    if _MARK not in commit.text:
        return None
    source = f"version {commit.version} of the table"
    try:
        tree = json.loads(commit.text)
        form = tree[_MARK]
    except (ValueError, KeyError, TypeError):
        return None
    if form != FORMAT:
        raise ArchiveError(
            f"{source} has format {form}, this roquet reads format {FORMAT}: use a later roquet"
        )
    return progress_of(tree["progress"])
