"""The store: commit log, consume queues, index and checkpoint behind one object.

Other packages use storage through `Store`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection
from contextlib import suppress
from pathlib import Path

from roquet.common.listeners import Listeners
from roquet.common.steps import Steps, finished
from roquet.errors import NO_ROOM, CorruptRecord, UnreadableFile
from roquet.protocol.filters.tags import Filter
from roquet.protocol.records.record import decode
from roquet.storage.checkpoint import Checkpoint
from roquet.storage.checkpoint_work import Works, gather, works
from roquet.storage.config import StoreConfig
from roquet.storage.dispatch.dispatch import Dispatch
from roquet.storage.fetch import Fetched, fetch
from roquet.storage.files.disk import Disk, Lock, RealDisk
from roquet.storage.files.folders import LogFolders
from roquet.storage.files.sync_failure import SyncCheckedDisk, SyncHealth
from roquet.storage.index.index import Index
from roquet.storage.key_search import KeyHits, search_by_key
from roquet.storage.log import saved_tail
from roquet.storage.log.commit_log import CommitLog
from roquet.storage.log.dispatch_request import read_dispatch_request
from roquet.storage.log.write_buffer import WriteBuffer
from roquet.storage.lost_queues import LostQueues, QueueRebuild
from roquet.storage.old_files import OldFiles
from roquet.storage.queues.consume_queue import ConsumeQueue
from roquet.storage.queues.ext import FilterBits, LogFilterBits
from roquet.storage.queues.queues import Queues
from roquet.storage.recovery import recover, require_durable_log
from roquet.storage.retried_tasks import DISPATCH, INDEX, REBUILD, RetriedTasks
from roquet.storage.writer import Writer

log = logging.getLogger(__name__)


class Store:
    """The files of one broker: commit log, consume queues, index and checkpoint.

    Invariant: a record is written to the log, then to its queue, then to the index, never in
    another order. After an append the entry is found at once, the keys after the index's next
    turn, and the record can be read before `visible_end`. `log.flushed_to` is the physical offset
    before which the log survives a crash of the machine. Once a sync of one of the files has
    failed, the store accepts no message, and neither `log.flushed_to` nor the checkpoint moves.

    :param now_ms: wall clock, read for the store time of each new record.
    :param filter_bits: computes the filter bits in extension units; None: they get no bits.
    :param watched: the queues that `Writer.take_grown` is asked about; the caller changes it at any
        time.
    """

    def __init__(
        self,
        config: StoreConfig,
        now_ms: Callable[[], int],
        disk: Disk | None = None,
        filter_bits: FilterBits | None = None,
        watched: Collection[ConsumeQueue] = (),
    ) -> None:
        self.config = config
        self._sync_health = SyncHealth()
        self._raw_disk = disk if disk is not None else RealDisk()
        self.disk = SyncCheckedDisk(self._raw_disk, self._sync_health)
        self._lock: Lock | None = None
        self._abort = config.root / "abort"
        self.was_crashed = False
        """Whether the last broker ended without closing the store; known once the store is open."""
        folders = LogFolders(
            self.disk, config.commit_log_folders, config.read_only_log_folders, config.fullest
        )
        self.log = CommitLog(
            self.disk,
            folders,
            config.commit_log_file_size,
            WriteBuffer(config.commit_log_file_size) if config.pooled else None,
            self._sync_health,
        )
        self.queues = Queues(
            self.disk,
            config.root,
            config.consume_queue_file_size,
            config.ext_file_size,
            LogFilterBits(self.log, filter_bits) if filter_bits is not None else None,
        )
        self.index = (
            Index(self.disk, config.root / "index", config.index_slots, config.index_entries)
            if config.index_enabled
            else None
        )
        self.checkpoint = Checkpoint(self.disk, config.root / "checkpoint")
        lost = LostQueues(self.disk, config.root)
        self.rebuild = QueueRebuild(self.log, self.queues, lost, self._delay_ms)
        self.dispatch = Dispatch(
            self.log, self.queues, self.index, self._delay_ms, lose=self.rebuild.lose
        )
        self.writer = Writer(
            self.log, self.dispatch, self.index, config.store_host, now_ms, config.busy_ms, watched
        )
        self._tasks = RetriedTasks()
        """While one of them is held up, the checkpoint does not move."""
        self.old_files = OldFiles(
            self.disk,
            config.root,
            self.log,
            self.queues,
            self.index,
            self.checkpoint,
            self.dispatch,
        )
        self.failed = Listeners[[OSError]]()
        """Called once, on the loop, with the failure of the first sync that failed."""
        self._failure_taken = False

    # opening and closing

    def open(self) -> None:
        """Load the files and recover.

        Afterwards the log ends with its last valid record and is durable. All of it is dispatched
        unless the drive has no room.

        :raises StoreError: another broker uses the directory, or a file does not belong there, or
            files are missing.
        """
        self._lock = self.disk.lock(self.config.root / "lock")
        self.was_crashed = self.disk.read(self._abort) is not None
        self.log.load()
        self.checkpoint.load()
        if self.config.requires_durable_log:
            require_durable_log(self.log, self.checkpoint.mark, self.config.root)
        if self.was_crashed:
            self._forget_cached()
        lost = self.rebuild.load()
        if self.index is not None:
            self.index.load()
        recover(
            self.log,
            self.queues,
            self.index,
            self.checkpoint,
            self.dispatch,
            crashed=self.was_crashed,
            was_ours=self._lock.was_ours,
            completes=bool(lost),
            verify=self.config.verify_on_recovery,
            save_tail=self.save_tail,
            attempt=self._tasks.attempt,
        )
        self.writer.follow(max(self.checkpoint.log_ms, self.dispatch.store_ms))
        # consumers and slaves will see the recovered records, so a later crash must not take them
        self.log.sync_work(self.log.end)()
        self.log.synced(self.log.end)
        self.log.mapped_from = self.log.end
        # Nothing valid follows the log's end now: this broker erases what it truncates, Apache's
        # leaves it in the files. Without the signature in the lock file the next recovery compares
        # the records' store times.
        with suppress(OSError):
            self._lock.sign()
        with self._tasks.attempt(REBUILD):
            self.rebuild.restored(lost)
        if not self.was_crashed:  # else the file exists, and a full drive could not replace it
            self.disk.replace(self._abort, b"")

    def save_tail(self, physical: int) -> Path | None:
        """Save the bytes of the log's files from `physical` on, before they are truncated.

        If the drive fails for this copy, that counts as a failed sync: the store accepts no message
        any more. A full drive is no such failure.

        :returns: the folder; None if there are no bytes, or they could not be saved.
        """
        tail = saved_tail.tail_from(self.log, physical)
        if tail is None:
            return None
        sync_health = SyncHealth()
        saved = saved_tail.save(
            SyncCheckedDisk(self._raw_disk, sync_health), self.config.root, self.log, tail
        )
        if sync_health.failure is not None and sync_health.failure.errno not in NO_ROOM:
            self._sync_health.fail(sync_health.failure)
        return saved

    def _forget_cached(self) -> None:
        """Let the kernel drop its cached pages of the files, so that they are read from the drive.

        The last broker may have ended because a sync failed. Then cached pages may differ from what
        is on the drive. Bytes that the checkpoint says are durable are not affected.
        """
        mark = self.checkpoint.mark
        self.log.forget_cached(mark.position if mark is not None else 0)
        self.queues.forget_cached()
        if self.index is not None:
            self.index.forget_cached()

    @property
    def remark(self) -> str:
        """The problems of log and dispatch, for replication status; empty if there are none."""
        dispatch = self.dispatch
        holes = (
            f"{dispatch.holes} damaged ranges of the log stepped over ({dispatch.hole_bytes} bytes)"
            if dispatch.holes
            else ""
        )
        return "; ".join(filter(None, (dispatch.lag_reason, holes, self.rebuild.remark)))

    @property
    def failure(self) -> OSError | None:
        """The first sync that failed, after which no file is synced any more (decision 0025).

        It is set before `take_failure` acts on it, by the thread whose sync failed.
        """
        return self._sync_health.failure

    def take_failure(self) -> bool:
        """If a sync has failed, accept no message from now on; to be called on the loop.

        :returns: whether a sync has failed.
        """
        failure = self._sync_health.failure
        if failure is None:
            return False
        if not self._failure_taken:
            self._failure_taken = True
            self.log.refuse_appends()
            self.failed(failure)
        return True

    def close(self) -> None:
        """Make everything durable and delete the `abort` file, the sign of an unclean stop.

        :raises OSError: a file could not be written; the caller then calls `abandon`.
        """
        if self._lock is None:
            return
        self.replicated()
        if self.dispatch.is_held_up:
            log.warning(
                "store closed while dispatch lags, queue entries are missing: lag_bytes=%d; make "
                "room on the drive or repair the file that cannot be written, the next start "
                "writes the entries",
                self.dispatch.lag,
            )  # fmt: skip
        self.make_checkpoint()
        is_clean = not self.dispatch.lag
        self.abandon()
        if is_clean:
            self.disk.delete(self._abort)

    def abandon(self) -> None:
        """Close the files without a sync; the next `open` recovers as after a crash."""
        self.queues.close()
        if self.index is not None:
            self.index.close()
        self.log.close()
        if self._lock is not None:
            self._lock.release()
            self._lock = None

    def make_checkpoint(self, to_delete: Collection[ConsumeQueue] = ()) -> None:
        """Run `checkpoint_steps` and what they prepared, on the loop."""
        for work in finished(self.checkpoint_steps(to_delete)):
            work()

    def checkpoint_steps(self, to_delete: Collection[ConsumeQueue] = ()) -> Steps[Works]:
        """Prepare a checkpoint of the store as it is now, in steps.

        The caller begins a checkpoint only after the one before has been saved.

        :param to_delete: queues that are going to be deleted. The checkpoint does not count them,
            so that no later recovery takes them for lost and rebuilds them.
        :returns: a function that syncs log, queues and index, and one that saves the checkpoint
            after that; both may run off the loop.
        """
        yield from self.flush_index()
        last_ms = self.writer.last_ms
        position = None if self._tasks.is_any_held_up else self.dispatch.position
        gathered = yield from gather(
            self.log, self.queues, self.index, position, self.rebuild.gone.append
        )
        return works(gathered, self.checkpoint, self._sync_health, last_ms, to_delete)

    @property
    def newest_ms(self) -> int:
        """The latest store time of any record, ms.

        Store times are from the clock of the broker that stored the record; after a clock was set
        back later records have earlier store times.
        """
        return max(self.writer.store_ms, self.dispatch.store_ms)

    @property
    def visible_end(self) -> int:
        """Consumers and slaves may see the records before this physical offset."""
        only_durable = self.config.reads_only_durable or self._sync_health.failure is not None
        return self.log.flushed_to if only_durable else self.log.readable_to

    @property
    def is_visible_at_once(self) -> bool:
        """Whether a record may be seen as soon as it is appended."""
        return not (self.config.reads_only_durable or self.config.pooled)

    # queues

    def queue(self, topic: str, queue_id: int) -> ConsumeQueue:
        """The queue; a new one has no files yet."""
        return self.queues.queue(topic, queue_id)

    def min_offset(self, topic: str, queue_id: int) -> int:
        """The queue's first offset; 0 for an unknown queue."""
        queue = self.queues.known(topic, queue_id)
        return queue.min_offset if queue is not None else 0

    def max_offset(self, topic: str, queue_id: int) -> int:
        """The queue offset of the queue's next message; 0 for an unknown queue."""
        queue = self.queues.known(topic, queue_id)
        return queue.max_offset if queue is not None else 0

    def within_queue(self, topic: str, queue_id: int, offset: int) -> int:
        """Where a group that asks for `offset` continues: there, or at the end of the queue.

        Messages beyond the end were lost with the log's tail, or only a former master had them.
        Other messages will get these offsets, so the group must not skip them. While dispatch is
        held up the end is not known, and `offset` is returned as it is.
        """
        queue = self.queues.known(topic, queue_id)
        return (
            offset if queue is None or self.dispatch.is_held_up else min(offset, queue.max_offset)
        )

    def truncate(self, end: int) -> None:
        """Truncate log, queues and index to the records before `end`, where a record ends.

        A former master calls it whose log differs from its new master's from `end` on
        (docs/storage/replication.md#rejoin).
        """
        self.log.truncate(end)
        for queue in self.queues:
            queue.truncate(end)
        if self.index is not None:
            self.index.flush()
            self.index.truncate(
                end,
                lambda at: (
                    read_dispatch_request(at, memoryview(self.log.record_at(at) or b"")).store_ms
                ),
            )
        self.dispatch.position = min(self.dispatch.position, end)
        if self.checkpoint.mark is not None and self.checkpoint.mark.position > end:
            self.checkpoint.mark = None
        self.make_checkpoint()

    def replicated(self) -> None:
        """Dispatch what replication wrote to the log, and what could not be dispatched before."""
        with self._tasks.attempt(DISPATCH):
            self.writer.note_grown(self.dispatch.catch_up())
        self.writer.follow(self.dispatch.store_ms)

    def rebuild_queues(self) -> bool:
        """Rebuild lost queues from one more piece of the log.

        :returns: whether there is more to do now.
        """
        rebuilt: list[ConsumeQueue] | None = None
        with self._tasks.attempt(REBUILD):
            rebuilt = self.rebuild.step(self.dispatch.position)
        self.writer.note_grown(rebuilt or ())
        return rebuilt is not None

    def end_turn(self) -> None:
        """Finish the appends of a turn of the event loop."""
        self.writer.end_turn()
        if self.index is not None and self.index.is_due:
            with self._tasks.attempt(INDEX):
                self.index.flush_some()

    def flush_index(self) -> Steps[None]:
        """Write the collected keys to the index files, in steps: a message may have thousands."""
        if self.index is not None:
            with self._tasks.attempt(INDEX):
                yield from self.index.flush_steps()

    def _delay_ms(self, level: int) -> int:
        """Delay of a level in ms. A level above the last counts as the last, one below 1 as 1 s.

        See docs/storage/consume-queue.md#the-schedule-topic-has-delivery-times.
        """
        levels = self.config.delay_levels_ms
        if not levels or level < 1:
            return 1000
        return levels[min(level, len(levels)) - 1]

    # reading

    def fetch(
        self, topic: str, queue_id: int, offset: int, count_max: int, wanted: Filter
    ) -> Fetched:
        """Read records of a queue from `offset` on.

        :raises UnreadableFile: the records, or their entries, cannot be read.
        """
        queue = self.queues.known(topic, queue_id)
        try:
            return fetch(
                self.log, queue, offset, count_max, wanted, self.config.limits, self.visible_end
            )
        except UnreadableFile as error:
            if queue is not None:
                self.rebuild.lose(queue)
            text = (
                f"queue {queue_id} of {topic} cannot be read at offset {offset}: {error.strerror}"
            )
            raise UnreadableFile(error.errno, text, error.filename) from error

    def store_time(self, topic: str, queue_id: int, offset: int) -> int:
        """Store time of the message at `offset`, ms; -1 if there is no message."""
        queue = self.queues.known(topic, queue_id)
        return self._store_time(queue, offset) if queue is not None else -1

    def _store_time(self, queue: ConsumeQueue, offset: int) -> int:
        entry = queue.entry(offset)
        record = self.log.record_bytes(entry[0], entry[1]) if entry is not None else None
        if record is None:
            return -1
        try:
            return decode(record).store_ms
        except CorruptRecord:
            return -1

    def offset_at_time(self, topic: str, queue_id: int, timestamp_ms: int) -> int:
        """The offset of the message stored nearest to `timestamp_ms`; 0 for an unknown queue."""
        queue = self.queues.known(topic, queue_id)
        if queue is None:
            return 0
        return queue.offset_at_time(timestamp_ms, lambda offset: self._store_time(queue, offset))

    def is_in_memory(self, topic: str, queue_id: int, offset: int) -> bool:
        """Whether a message counts as being in memory. True also if it does not exist.

        See docs/protocol/consuming.md#a-young-queue-answers-0.
        """
        queue = self.queues.known(topic, queue_id)
        entry = queue.entry(offset) if queue is not None else None
        return entry is None or self.log.end - entry[0] <= self.config.limits.memory_bytes

    def search_by_key(
        self, topic: str, key: str, count_max: int, begin_ms: int, end_ms: int
    ) -> Steps[KeyHits]:
        """`key_search.search_by_key`; finds nothing in a store without an index."""
        if self.index is None:
            return KeyHits([], 0, 0)
        yield from self.flush_index()
        return (
            yield from search_by_key(self.log, self.index, topic, key, count_max, begin_ms, end_ms)
        )
