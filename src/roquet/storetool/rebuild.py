"""Makes consume queues and index anew from the log, as a broker's dispatch would have made them.

Whatever is deleted and written in between, `abort` stands there from the first deletion to the last write, and the
checkpoint vouches for nothing: a broker that starts after a crash in the middle reads the whole log.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np

from roquet.common.units import PhysicalOffset
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
from roquet.storetool.files import StoreFiles, series, subfolders
from roquet.storetool.read.columns import Rows
from roquet.storetool.read.index_files import Shape
from roquet.storetool.read.log_scan import LogScan
from roquet.storetool.state import kept_topics

_NO_DELAY_MS: Final = 1000
_UNKNOWN_INDEX: Final = -1
"""With that name in its mark, recovery cuts the index by the checkpoint's time."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What to make anew, and the sizes that the new files get, in bytes; `delay_levels_ms` as the broker has them.

    `notes_file_size` is that of the files with notes on queue entries, None where the queues have none.
    """

    queues: bool
    index: bool
    queue_file_size: int
    shape: Shape
    delay_levels_ms: tuple[int, ...]
    notes_file_size: int | None = None

    def delay_ms(self, level: int) -> int:
        """As a broker counts (docs/storage/consume-queue.md#the-schedule-topic-has-delivery-times)."""
        if level < 1 or not self.delay_levels_ms:
            return _NO_DELAY_MS
        return self.delay_levels_ms[min(level, len(self.delay_levels_ms)) - 1]


@dataclass(frozen=True, slots=True)
class Rebuilt:
    """How many records were dispatched, and how many were left out because their bodies are damaged."""

    records: int
    damaged: int


def notes_file_size(root: Path) -> int | None:
    """Of the files with notes on queue entries, None where there are none."""
    folder = root / "consumequeue_ext"
    sizes = [
        file.size
        for topic in subfolders(folder)
        for queue_id in subfolders(folder / topic)
        for file in series([folder / topic / queue_id]).files
    ]
    return max(sizes, default=None)


@dataclass(slots=True)
class _Lives:
    """Which records get entries.

    A queue whose topic was deleted and made again begins anew at queue offset 0 or so; its older records stay without:
    those before its place in `starts`. `ends` are the queue offsets behind the records so far.
    """

    kept_topics: frozenset[str] | None
    starts: dict[tuple[str, int], int]
    ends: dict[tuple[str, int], int]

    def take(self, rows: Rows) -> None:
        """:raises StoreError: a queue has a gap, which no rebuilt one may have."""
        for queue, group in rows.by_queue():
            breaks = np.flatnonzero(np.diff(rows.queue_offset[group]) != 1) + 1
            for run in np.split(group, breaks):
                self._take_run(
                    queue, int(rows.queue_offset[run[0]]), len(run), int(rows.at[run[0]])
                )

    def _take_run(self, queue: tuple[str, int], offset: int, count: int, at: int) -> None:
        """Records with consecutive queue offsets, the first of which stands at `at`."""
        expected = self.ends.get(queue, offset)
        if offset > expected:
            raise StoreError(
                f"{queue[0]} {queue[1]} goes from queue offset {expected - 1} to {offset} at physical offset {at}: "
                "no queue can be made of that; `roquet store check` says what is damaged"
            )
        if offset < expected:
            self.starts[queue] = at
        self.ends[queue] = offset + count

    def has(self, request: DispatchRequest) -> bool:
        """What `choose` says of many records, of one."""
        is_kept = self.kept_topics is None or request.topic in self.kept_topics
        return is_kept and request.physical >= self.starts.get((request.topic, request.queue_id), 0)

    def choose(self, block: RecordBlock, rows: dispatch_rows.Rows) -> None:
        """Let only the records take a slot that get an entry."""
        for number, topic in enumerate(rows.topics):
            if self.kept_topics is not None and topic not in self.kept_topics:
                rows.takes_a_slot &= rows.topic_ids != number
        for (topic, queue_id), start in self.starts.items():
            if start > block.at and topic in rows.topics:
                is_of_queue = (rows.topic_ids == rows.topics.index(topic)) & (
                    block.queue_ids == queue_id
                )
                rows.takes_a_slot &= ~is_of_queue | (block.physical >= start)


def rebuild(
    files: StoreFiles, plan: Plan, progress: Callable[[int], None] = lambda size: None
) -> Rebuilt:
    """Make queues, index or both anew. A record whose body is damaged gets what dispatch gives it: a blank.

    :param progress: told the bytes of the log that were read; it is read twice.
    :raises StoreError: a broker uses the store, or its log is damaged otherwise. Then nothing was changed.
    """
    disk = RealDisk()
    lock = disk.lock(files.root / "lock")
    try:
        lives = _Lives(kept_topics(files.root), {}, {})
        checked = _check_log(files, lives, progress)
        known = Checkpoint(disk, files.root / "checkpoint")
        known.load()
        with _recovered_if_interrupted(disk, files.root) as checkpoint:
            count = _Rebuild(disk, files, plan, lives, checked, known.mark).run(
                checkpoint, progress
            )
            return Rebuilt(count, len(checked.bad_bodies))
    finally:
        lock.release()


def _check_log(files: StoreFiles, lives: _Lives, progress: Callable[[int], None]) -> LogScan:
    """The log walked to its end."""
    if files.log.strays or files.log.gaps:
        place = (
            files.log.strays[0].path
            if files.log.strays
            else files.log.place(files.log.gaps[0][0])[0]
        )
        raise StoreError(
            f"{place} is missing or does not belong there; `roquet store check` says more"
        )
    scan, last = LogScan(files.log, 0, progress), 0
    for rows in scan:
        if scan.damages:
            break
        lives.take(rows)
        last = int(rows.at[-1])
    if scan.damages:
        damage = scan.damages[0]
        raise StoreError(
            f"the log is damaged from physical offset {damage.start} to {damage.end - 1} ({damage.reason}): "
            "nothing was changed; restore these bytes from a slave or a backup"
        )
    if (
        last in scan.bad_bodies
    ):  # nothing valid follows: whether the log ends in front of it is for recovery to say
        raise StoreError(
            f"the log's last record, at physical offset {last}, has a damaged body: nothing was changed; restore these "
            "bytes from a slave or a backup, or, after a crash, start the broker first: it recovers the log"
        )
    return scan


@contextmanager
def _recovered_if_interrupted(disk: RealDisk, root: Path) -> Iterator[Checkpoint]:
    """See to it that a broker recovers the store if what is done here does not come to its end."""
    abort = root / "abort"
    was_clean = disk.read(abort) is None
    disk.replace(abort, b"")
    Checkpoint(disk, root / "checkpoint").save()
    checkpoint = Checkpoint(disk, root / "checkpoint")
    yield checkpoint
    if was_clean:  # else the next start recovers anyway, and from the whole log
        checkpoint.save()
        disk.delete(abort)


class _Rebuild:
    """:param known: the mark of before; of it, what it says of an index that is left alone stays true."""

    def __init__(
        self,
        disk: RealDisk,
        files: StoreFiles,
        plan: Plan,
        lives: _Lives,
        checked: LogScan,
        known: CheckpointMark | None,
    ) -> None:
        self._files = files
        self._plan = plan
        self._lives = lives
        self._end = PhysicalOffset(checked.end)
        self._bad_bodies = checked.bad_bodies
        self._known = known
        self._log = CommitLog(disk, LogFolders(disk, files.log.folders), files.log.file_size)
        made = SyncCheckedDisk(disk, SyncHealth())
        self._queues = Queues(made, files.root, plan.queue_file_size, plan.notes_file_size)
        shape = plan.shape
        self._index = (
            Index(made, files.root / "index", shape.slots, shape.entries) if plan.index else None
        )
        self._dispatch = Dispatch(self._log, self._queues, self._index, plan.delay_ms)

    def run(self, checkpoint: Checkpoint, progress: Callable[[int], None]) -> int:
        self._forget_old()
        self._log.load()
        self._log.end = (
            self._end
        )  # the files stay as they are: what stands behind is for recovery to cut
        self._queues.load()
        count = 0
        last: RecordBlock | None = None
        try:
            start, ends = PhysicalOffset(self._files.log.start), HoleScanner(self._log)
            for piece in pieces(self._log, start, ends, known=self._bad_bodies):
                if isinstance(piece, Hole):
                    self._step_over(piece)
                    progress(piece.size)
                else:
                    self._put(piece)
                    progress(int(piece.sizes.sum()))
                    count, last = count + len(piece), piece
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

    def _forget_old(self) -> None:
        root, plan = self._files.root, self._plan
        names = ("consumequeue", "consumequeue_ext") if plan.queues else ()
        for name in (*names, *(("index",) if plan.index else ())):
            if (root / name).is_dir():
                shutil.rmtree(root / name)

    def _step_over(self, hole: Hole) -> None:
        assert hole.request is not None, "the log was checked before"
        if self._plan.queues and self._lives.has(hole.request):
            self._dispatch.step_over(hole)

    def _put(self, block: RecordBlock) -> None:
        rows = dispatch_rows.rows_of(block)
        assert rows is not None, "the log was checked before"
        if self._plan.queues:
            self._lives.choose(block, rows)
        else:
            rows.takes_a_slot[:] = False
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
        name, count, end_ms = (
            self._index.mark if self._index is not None else (_UNKNOWN_INDEX, 0, 0)
        )
        if self._known is not None and self._index is None:
            name, count, end_ms = (
                self._known.index_name,
                self._known.index_count,
                self._known.index_end_ms,
            )
        return CheckpointMark(at + size, at, store_ms, name, count, end_ms, self._queues.used)
