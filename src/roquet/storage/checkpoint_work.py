"""Prepares a checkpoint: collects the syncs that it runs, 256 queues per step.

The broker serves clients between the steps.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from functools import partial
from typing import Final, TypeAlias

from roquet.common.steps import Steps, in_parts
from roquet.errors import UnreadableFile
from roquet.storage.checkpoint import Checkpoint, CheckpointMark
from roquet.storage.files.sync_failure import SyncHealth
from roquet.storage.index.index import Index
from roquet.storage.log.commit_log import CommitLog
from roquet.storage.log.dispatch_request import read_dispatch_request
from roquet.storage.queues.consume_queue import ConsumeQueue, record_end
from roquet.storage.queues.queues import Queues

_QUEUES_AT_ONCE: Final = 256

Sync = Callable[[], None]
Works: TypeAlias = tuple[Sync, Callable[[], None]]
"""A function that syncs all files of the store, and one that saves the checkpoint after that."""


Gathered: TypeAlias = tuple[list[Sync], CheckpointMark | None]
"""Functions that sync log, queues and index, in this order, and the mark to save after them."""


def gather(
    log: CommitLog,
    queues: Queues,
    index: Index | None,
    position: int | None,
    gone: Callable[[ConsumeQueue], None],
) -> Steps[Gathered]:
    """Collect the syncs of log, queues and index, and make the mark that holds once they have run.

    Invariant: the syncs cover all records before the mark, since queues and log only grow during
    the steps and the log's sync is prepared last. A queue that the mark counts is synced with its
    entries.

    :param position: physical offset up to which queues and index are complete; None: make no mark.
    :param gone: called with a queue of which a file was deleted, in the thread that syncs.
    """
    index_mark = index.mark if index is not None else (-1, 0, 0)
    of_index = index.sync_work() if index is not None else []
    syncs: list[Sync] = []
    newest, used, entry_count = _Newest(log, position or 0), 0, 0
    for part in in_parts(queues.present(), _QUEUES_AT_ONCE):
        for queue in part:
            sync = queue.sync_work()
            if sync is not None:
                syncs.append(partial(_sync, queue, sync, gone))
            used += queue.max_offset > 0
            if position is not None:
                entry_count += newest.look(queue)
                if queue.log_end > position:  # the look has searched the queue's entries
                    yield
        yield
    record = newest.record() if position is not None else None
    mark = (
        CheckpointMark(position, *record, *index_mark, used, entry_count)
        if position is not None and record is not None
        else None
    )
    return [log.sync_work(log.end), *syncs, *of_index], mark


def works(
    gathered: Gathered,
    checkpoint: Checkpoint,
    sync_health: SyncHealth,
    last_ms: int,
    to_delete: Collection[ConsumeQueue],
) -> Works:
    """What a checkpoint does off the loop.

    :param last_ms: the store time of the last record before the syncs were gathered.
    :param to_delete: queues that the mark does not count, as they are going to be deleted.
    """
    syncs, mark = gathered
    queue_count = sum(queue.max_offset > 0 for queue in to_delete)
    entry_count = sum(queue.max_offset for queue in to_delete if not queue.is_lost)

    def sync_all() -> None:
        unreadable: UnreadableFile | None = None
        for sync in syncs:
            try:
                sync()
            except UnreadableFile as error:
                unreadable = error  # a deleted file must not keep the others from a sync
        sync_health.check()
        if unreadable is not None:
            raise unreadable

    def save() -> None:
        noted = mark or checkpoint.mark
        checkpoint.note(
            last_ms if mark is not None else 0,
            None if noted is None else noted.without(queue_count, entry_count),
        )
        checkpoint.save()

    return sync_all, save


def _sync(queue: ConsumeQueue, sync: Sync, gone: Callable[[ConsumeQueue], None]) -> None:
    try:
        sync()
    except UnreadableFile:
        gone(queue)
        raise


class _Newest:
    """Finds the newest record before a physical offset that has a queue entry."""

    def __init__(self, log: CommitLog, position: int) -> None:
        self._log = log
        self._position = position
        self._at: int | None = None
        self._end = 0
        self._unreadable_to = 0
        """The end in the log of the last record of a queue that cannot be read."""

    def look(self, queue: ConsumeQueue) -> int:
        """Look at one more queue.

        :returns: the queue offset after its last record before the position; 0 for a lost queue.
        """
        if queue.is_lost:
            return 0
        has_grown = queue.log_end > self._position
        is_newer = queue.log_end > self._end
        try:
            end = queue.end_before(self._position) if has_grown else queue.max_offset
            entry = queue.entry(end - 1) if is_newer else None
        except UnreadableFile:
            self._unreadable_to = max(self._unreadable_to, queue.log_end)
            return queue.max_offset
        if entry is not None:
            log_end = record_end(entry[0], entry[1]) if has_grown else queue.log_end
            if log_end > self._end:
                self._end, self._at = log_end, entry[0]
        return end

    def record(self) -> tuple[int, int] | None:
        """The newest record's physical offset and store time; None if they are not known."""
        if self._at is None or self._unreadable_to > self._end:
            return None
        try:
            record = self._log.record_at(self._at)
        except UnreadableFile:
            return None
        return (
            None
            if record is None
            else (self._at, read_dispatch_request(self._at, memoryview(record)).store_ms)
        )
