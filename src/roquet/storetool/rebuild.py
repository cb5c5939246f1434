"""Rebuilds consume queues and index from the log, with the code of a broker's dispatch.

The file `abort` exists and the checkpoint is empty from the first deletion to the last write. So if
the rebuild is interrupted, the next start of a broker recovers from the whole log.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np

from roquet.errors import StoreError
from roquet.protocol.records.block import RecordBlock
from roquet.storage.checkpoint import Checkpoint, CheckpointMark
from roquet.storage.dispatch import columns as dispatch_rows
from roquet.storage.dispatch.dispatch import Dispatch
from roquet.storage.files.disk import RealDisk
from roquet.storage.files.folders import LogFolders
from roquet.storage.files.sync_failure import SyncCheckedDisk, SyncHealth
from roquet.storage.index.index import Index
from roquet.storage.log.commit_log import CommitLog
from roquet.storage.log.dispatch_request import DispatchRequest
from roquet.storage.log.holes import Hole, HoleScanner, pieces
from roquet.storage.queues.queues import Queues
from roquet.storetool.files import StoreFiles, queue_folders, series
from roquet.storetool.read.column_scan import ColumnScan, RecordColumns
from roquet.storetool.read.index_files import Shape
from roquet.storetool.state import kept_topics

_NO_DELAY_MS: Final = 1000
"""The delay of levels below 1, or if there are no levels; as in Apache's broker."""
_UNKNOWN_INDEX: Final = -1
"""With this index name in the checkpoint mark, recovery truncates the index by the checkpoint's
index time."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What to rebuild, and the sizes of the new files.

    :param queues: whether to rebuild the consume queues; `index` likewise.
    :param queue_file_size: bytes of a consume queue's file.
    :param shape: slots and entries of an index file.
    :param delay_levels_ms: the delay of each level from 1 on, as the broker is configured.
    :param ext_file_size: bytes of a file of extension units; None if queues have none.
    """

    queues: bool
    index: bool
    queue_file_size: int
    shape: Shape
    delay_levels_ms: tuple[int, ...]
    ext_file_size: int | None = None

    def delay_ms(self, level: int) -> int:
        """Return the delay of a level in ms.

        See docs/storage/consume-queue.md#the-schedule-topic-has-delivery-times.
        """
        if level < 1 or not self.delay_levels_ms:
            return _NO_DELAY_MS
        return self.delay_levels_ms[min(level, len(self.delay_levels_ms)) - 1]


@dataclass(frozen=True, slots=True)
class Rebuilt:
    """The result of a rebuild.

    :param records: the number of dispatched records.
    :param damaged: the number of records left out because their bodies are damaged.
    """

    records: int
    damaged: int


def ext_file_size(root: Path) -> int | None:
    """Return the bytes of a file of extension units, or None if the store has none."""
    folders = queue_folders(root / "consumequeue_ext")
    return max(
        (file.size for *_, folder in folders for file in series([folder]).files), default=None
    )


@dataclass(slots=True)
class _LiveRecords:
    """Decides which records get queue entries: not those of topics that were deleted.

    If a topic was deleted and created again, its queues begin again at a lower queue offset. The
    records before that belong to the deleted topic.

    :param kept_topics: the topics that are not deleted; None if that is not known.
    :param starts: per queue (topic, queue id) the physical offset of the first record that gets an
        entry; a queue that never began again is not in it.
    :param ends: per queue the queue offset after the records so far.
    """

    kept_topics: frozenset[str] | None
    starts: dict[tuple[str, int], int]
    ends: dict[tuple[str, int], int]

    def take(self, rows: RecordColumns) -> None:
        """Find out where queues begin again, by the next records.

        :raises StoreError: a queue has a gap, and cannot be rebuilt.
        """
        for queue, group in rows.by_queue():
            breaks = np.flatnonzero(np.diff(rows.queue_offset[group]) != 1) + 1
            for run in np.split(group, breaks):
                self._take_run(
                    queue, int(rows.queue_offset[run[0]]), len(run), int(rows.physical[run[0]])
                )

    def _take_run(self, queue: tuple[str, int], offset: int, count: int, at: int) -> None:
        """Take `count` records with consecutive queue offsets.

        :param offset: the queue offset of the first of them; `at` its physical offset.
        """
        expected = self.ends.get(queue, offset)
        if offset > expected:
            raise StoreError(
                f"{queue[0]} {queue[1]} goes from queue offset {expected - 1} to {offset} "
                f"at physical offset {at}: a queue with a gap cannot be rebuilt, "
                "nothing was changed; `roquet store check` says what is damaged"
            )
        if offset < expected:
            self.starts[queue] = at
        self.ends[queue] = offset + count

    def has(self, request: DispatchRequest) -> bool:
        """Whether one record gets a queue entry; `choose` decides the same for a block."""
        is_kept = self.kept_topics is None or request.topic in self.kept_topics
        return is_kept and request.physical >= self.starts.get((request.topic, request.queue_id), 0)

    def choose(self, block: RecordBlock, rows: dispatch_rows.Rows) -> None:
        """Clear `is_queued` of the rows of deleted topics."""
        for number, topic in enumerate(rows.topics):
            if self.kept_topics is not None and topic not in self.kept_topics:
                rows.is_queued &= rows.topic_ids != number
        for (topic, queue_id), start in self.starts.items():
            if start > block.at and topic in rows.topics:
                is_of_queue = (rows.topic_ids == rows.topics.index(topic)) & (
                    block.queue_ids == queue_id
                )
                rows.is_queued &= ~is_of_queue | (block.physical >= start)


def rebuild(
    files: StoreFiles, plan: Plan, progress: Callable[[int], None] = lambda size: None
) -> Rebuilt:
    """Rebuild queues, index or both.

    A record whose body is damaged gets a blank as its queue entry, as in a broker's dispatch.

    :param progress: called with the number of bytes of the log read since the last call;
        the log is read twice.
    :raises StoreError: a broker uses the store, or other parts of its log are damaged. Nothing was
        changed then.
    """
    disk = RealDisk()
    lock = disk.lock(files.root / "lock")
    try:
        live_records = _LiveRecords(kept_topics(files.root), {}, {})
        checked = _check_log(files, live_records, progress)
        known = Checkpoint(disk, files.root / "checkpoint")
        known.load()
        with _recovered_if_interrupted(disk, files.root) as checkpoint:
            count = _Rebuild(disk, files, plan, live_records, checked, known.mark).run(
                checkpoint, progress
            )
            return Rebuilt(count, len(checked.bad_bodies))
    finally:
        lock.release()


def _check_log(
    files: StoreFiles, live_records: _LiveRecords, progress: Callable[[int], None]
) -> ColumnScan:
    """Walk through the whole log before anything is changed.

    :raises StoreError: files are missing, or records are damaged.
    """
    if files.log.strays or files.log.gaps:
        strays = [stray.path for stray in files.log.strays]
        path = strays[0] if strays else files.log.place(files.log.gaps[0][0])[0]
        raise StoreError(
            f"{path} is missing or does not belong there, nothing was changed; "
            "`roquet store check` says more"
        )
    scan = ColumnScan(files.log, 0, progress)
    last = 0
    for rows in scan:
        if scan.damages:
            break
        live_records.take(rows)
        last = int(rows.physical[-1])
    if scan.damages:
        damage = scan.damages[0]
        raise StoreError(
            f"the log is damaged from physical offset {damage.start} to {damage.end - 1} "
            f"({damage.reason}): nothing was changed; restore these bytes from a slave or a backup"
        )
    if last in scan.bad_bodies:
        # No valid record follows. Recovery decides whether the log ends before this one.
        raise StoreError(
            f"the log's last record, at physical offset {last}, has a damaged body: nothing was "
            "changed; restore these bytes from a slave or a backup, or, after a crash, start the "
            "broker first: it recovers the log"
        )
    return scan


@contextmanager
def _recovered_if_interrupted(disk: RealDisk, root: Path) -> Iterator[Checkpoint]:
    """Make the next start of a broker recover the whole log, unless the block succeeds.

    Yields the checkpoint to save at the end.
    """
    abort = root / "abort"
    was_clean = disk.read(abort) is None
    disk.replace(abort, b"")
    Checkpoint(disk, root / "checkpoint").save()
    checkpoint = Checkpoint(disk, root / "checkpoint")
    yield checkpoint
    if was_clean:  # otherwise the next start recovers anyway, from the whole log
        checkpoint.save()
        disk.delete(abort)


class _Rebuild:
    """One rebuild of a store whose log has been checked.

    :param known: the checkpoint mark before the rebuild. If the index is not rebuilt, what the mark
        says of the index stays valid.
    """

    def __init__(
        self,
        disk: RealDisk,
        files: StoreFiles,
        plan: Plan,
        live_records: _LiveRecords,
        checked: ColumnScan,
        known: CheckpointMark | None,
    ) -> None:
        self._files = files
        self._plan = plan
        self._live_records = live_records
        self._end = checked.end
        self._bad_bodies = checked.bad_bodies
        self._known = known
        log_file_size = files.log.file_size or 1  # a log without segments needs any size but 0
        self._log = CommitLog(disk, LogFolders(disk, files.log.folders), log_file_size)
        checked_disk = SyncCheckedDisk(disk, SyncHealth())
        self._queues = Queues(checked_disk, files.root, plan.queue_file_size, plan.ext_file_size)
        folder, shape = files.root / "index", plan.shape
        self._index = (
            Index(checked_disk, folder, shape.slots, shape.entries) if plan.index else None
        )
        self._dispatch = Dispatch(self._log, self._queues, self._index, plan.delay_ms)

    def run(self, checkpoint: Checkpoint, progress: Callable[[int], None]) -> int:
        """Delete the old files, dispatch the log, and set the checkpoint.

        :returns: the number of dispatched records.
        """
        self._delete_old()
        self._log.load()
        # The log's files are not truncated: that is left to the broker's recovery.
        self._log.end = self._end
        self._queues.load()
        count = 0
        last: RecordBlock | None = None
        try:
            start = self._files.log.start
            scanner = HoleScanner(self._log)
            for piece in pieces(self._log, start, scanner, known=self._bad_bodies):
                if isinstance(piece, Hole):
                    self._step_over(piece)
                    progress(piece.size)
                else:
                    self._put(piece)
                    progress(int(piece.sizes.sum()))
                    count += len(piece)
                    last = piece
            self._make_durable()
            if last is not None:
                store_ms = int(last.store_ms[-1])
                checkpoint.note(
                    store_ms, self._mark(int(last.physical[-1]), int(last.sizes[-1]), store_ms)
                )
        finally:
            self._queues.close()
            if self._index is not None:
                self._index.close()
            self._log.close()
        return count

    def _delete_old(self) -> None:
        names = ["consumequeue", "consumequeue_ext"] if self._plan.queues else []
        if self._plan.index:
            names.append("index")
        for name in names:
            if (self._files.root / name).is_dir():
                shutil.rmtree(self._files.root / name)

    def _step_over(self, hole: Hole) -> None:
        # `_check_log` refuses every hole but records whose bodies are damaged.
        assert hole.request is not None, "a hole that is no record"
        if self._plan.queues and self._live_records.has(hole.request):
            self._dispatch.step_over(hole)

    def _put(self, block: RecordBlock) -> None:
        rows = dispatch_rows.read_rows(block)
        assert rows is not None, "`_check_log` has found every record valid"
        if self._plan.queues:
            self._live_records.choose(block, rows)
        else:
            rows.is_queued[:] = False
        self._dispatch.dispatch_rows(block, rows)
        if self._index is not None and self._index.is_due:
            self._index.flush()

    def _make_durable(self) -> None:
        syncs = [queue.sync_work() for queue in self._queues]
        if self._index is not None:
            self._index.flush()
            syncs += self._index.sync_work()
        for sync in syncs:
            if sync is not None:
                sync()

    def _mark(self, at: int, size: int, store_ms: int) -> CheckpointMark:
        known = self._known
        if self._index is not None:
            of_index = self._index.mark
        elif known is not None:
            of_index = (known.index_name, known.index_count, known.index_end_ms)
        else:
            of_index = (_UNKNOWN_INDEX, 0, 0)
        return CheckpointMark(at + size, at, store_ms, *of_index, self._queues.used)
