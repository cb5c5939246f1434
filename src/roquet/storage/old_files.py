"""Drops the old files of a store: which of them it can do without, and their deletion.

Which files are old enough is the rule of `retention`. See docs/storage/retention.md.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Final

from roquet.common.steps import Steps, in_parts
from roquet.errors import UnreadableFile
from roquet.storage.checkpoint import Checkpoint
from roquet.storage.dispatch.dispatch import Dispatch
from roquet.storage.files.deletion import Deletion
from roquet.storage.files.disk import Disk
from roquet.storage.index.index import Index
from roquet.storage.log.commit_log import CommitLog
from roquet.storage.queues.consume_queue import ConsumeQueue
from roquet.storage.queues.queues import Queues
from roquet.storage.retention import Usage

_QUEUES_AT_ONCE: Final = 256
_TRIMMED_AT_ONCE: Final = 8
"""Queues trimmed in one step. Fewer than `_QUEUES_AT_ONCE`, since finding a queue's first entry
that is left takes several reads."""


@dataclass(frozen=True, slots=True)
class Expired:
    """Deletions of the files that the store has forgotten; each may be called off the loop.

    The log's files are to be deleted oldest first, so that a crash leaves no gap between files. The
    same holds for the files of one folder in `queues` and `index`.
    """

    log: list[Deletion]
    queues: list[Deletion]
    index: list[Deletion]


class OldFiles:
    """The files at the beginning of log, queues and index, as retention needs them.

    Invariant: the log keeps its last file, and all records that a crash may leave without queue
    entries.
    """

    def __init__(
        self,
        disk: Disk,
        root: Path,
        log: CommitLog,
        queues: Queues,
        index: Index | None,
        checkpoint: Checkpoint,
        dispatch: Dispatch,
    ) -> None:
        self._disk = disk
        self._root = root
        self._log = log
        self._queues = queues
        self._index = index
        self._checkpoint = checkpoint
        self._dispatch = dispatch
        self.has_untrimmed = False
        """Whether a queue could not be read when the log lost files. Its first entries point to
        deleted records until `forget_oldest` is called again."""

    def usage(self) -> Usage:
        """The used share of each drive; may be called off the loop."""
        ratio = self._disk.used_ratio
        root = self._root
        log = min(ratio(folder) for folder in self._log.folders)
        return Usage(log, ratio(root / "consumequeue"), ratio(root / "index"))

    def last_writes(self) -> list[tuple[int, int]]:
        """End and time of the last write (wall clock, ms) of each log segment but the last.

        Oldest first. May be called off the loop.
        """
        starts = self._log.file_starts
        return [(end, self._log.modified_ms(start)) for start, end in pairwise(starts)]

    def forget_oldest(self, count: int) -> Steps[Expired]:
        """Forget the log's first `count` files, and files of queues and index that belong to them.

        The log forgets its files last, so that no queue has entries whose records are forgotten.

        The log's last file stays. Files that end after the last checkpoint's mark stay, too: a
        crash may take the queue entries of records after the mark, and a queue left with entries of
        deleted records only would not know its next offset. Without a mark the queues' own durable
        ends decide. If a full drive has no room for the queue entries of the first file's records,
        that one file is forgotten all the same, since nothing else would make room.

        Bytes that a caller has read from a file remain valid.
        """
        log = self._log
        new_start = yield from self._new_start(count)
        trimmed: list[list[Deletion] | None] = []
        for part in in_parts(self._queues.present(), _TRIMMED_AT_ONCE):
            trimmed += [_trimmed(queue, new_start) for queue in part]
            yield
        self.has_untrimmed = None in trimmed
        deletions = log.forget_before(new_start)
        queues = [deletion for of_queue in trimmed for deletion in of_queue or ()]
        return Expired(
            deletions,
            queues,
            self._index.forget_before(log.start) if self._index is not None else [],
        )

    def _new_start(self, count: int) -> Steps[int]:
        """Where the log begins without those of its first `count` files that may be deleted."""
        log = self._log
        mark = self._checkpoint.mark
        durable_to = min(
            log.flushed_to,
            mark.position if mark is not None else (yield from self._durable_in_queues()),
        )
        starts = log.file_starts[: count + 1]
        new_start = max((start for start in starts if start <= durable_to), default=log.start)
        waits = (
            self._dispatch.lacks_room
            and len(starts) > 1
            and self._dispatch.position < starts[1] <= log.flushed_to
        )
        if new_start == log.start and waits and (yield from self._dispatch.pass_over(starts[1])):
            new_start = starts[1]
        return new_start

    def _durable_in_queues(self) -> Steps[int]:
        """The physical offset before which all records' entries are known to be durable."""
        durable_to: int = self._dispatch.position
        for part in in_parts(self._queues.present(), _TRIMMED_AT_ONCE):
            durable_to = min([durable_to, *(queue.durable_before for queue in part)])
            yield
        return durable_to

    def expired_queues(self, kept: Collection[str]) -> Steps[list[ConsumeQueue]]:
        """Queues whose messages are all deleted from the log, but for the topics `kept`."""
        found: list[ConsumeQueue] = []
        for part in in_parts(self._queues.present(), _QUEUES_AT_ONCE):
            found += [queue for queue in part if self.is_expired(queue) and queue.topic not in kept]
            yield
        return found

    def is_expired(self, queue: ConsumeQueue) -> bool:
        """Whether the queue had messages, and all are deleted from the log."""
        return queue.max_offset > 0 and queue.log_end <= self._log.start


def _trimmed(queue: ConsumeQueue, log_start: int) -> list[Deletion] | None:
    """Trim a queue; None for a queue that cannot be read, which has been logged already."""
    try:
        return [] if queue.is_lost else queue.trim(log_start)
    except UnreadableFile:
        return None
