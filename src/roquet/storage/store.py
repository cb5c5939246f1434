"""The store: commit log, consume queues, index and checkpoint behind one object.

Other packages use storage through `Store`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path
from typing import Final, Protocol, TypeAlias

from roquet.common.listeners import Listeners
from roquet.common.steps import Steps, finished, in_parts
from roquet.common.units import PhysicalOffset
from roquet.errors import NO_ROOM, CorruptRecord, StoreError, UnreadableFile
from roquet.protocol.filters.tags import Filter
from roquet.protocol.records.record import decode
from roquet.storage.checkpoint import Checkpoint, CheckpointMark
from roquet.storage.checkpoint_work import gather
from roquet.storage.dispatch.dispatch import Dispatch
from roquet.storage.fetch import Fetched, FetchLimits, fetch
from roquet.storage.files.deletion import Deletion
from roquet.storage.files.disk import Disk, Lock, RealDisk
from roquet.storage.files.folders import LogFolders
from roquet.storage.files.sync_failure import SyncCheckedDisk, SyncHealth
from roquet.storage.index.index import Index
from roquet.storage.index.layout import key_hash
from roquet.storage.log import saved_tail
from roquet.storage.log.commit_log import CommitLog
from roquet.storage.log.dispatch_request import read_dispatch_request
from roquet.storage.log.write_buffer import WriteBuffer
from roquet.storage.lost_queues import LostQueues, Mending, lost_beginnings
from roquet.storage.queues.consume_queue import ConsumeQueue
from roquet.storage.queues.queues import Queues
from roquet.storage.recovery import DISPATCH, INDEX, recover
from roquet.storage.retention import Usage
from roquet.storage.writer import Writer

log = logging.getLogger(__name__)

Works: TypeAlias = tuple[Callable[[], None], Callable[[], None]]

_QUEUES_AT_ONCE: Final = 256
_TRIMMED_AT_ONCE: Final = 8
"""Queues trimmed in one step. Fewer than `_QUEUES_AT_ONCE`, since finding a queue's first entry
that is left takes several reads."""
MENDING: Final = "rebuild of consume queues"
"""Name in log lines of the rebuild of lost consume queues."""
KEY_HITS_MAX = 64
"""Records that a query by key returns: Apache's `maxMsgsNumBatch`."""
KEY_BYTES_MAX = 8 * 1024 * 1024
"""Bytes of records that a query by key returns. No client accepts a frame of more than 16 MiB, and
while a large response is built all other clients wait."""


@dataclass(frozen=True, slots=True)
class StoreConfig:
    """Folders, file sizes and rules of a store; sizes in bytes, Apache's defaults."""

    root: Path
    commit_log_folders: Sequence[Path]
    commit_log_file_size: int = 1024 * 1024 * 1024
    consume_queue_file_size: int = 300_000 * 20
    index_enabled: bool = True
    index_slots: int = 5_000_000
    index_entries: int = 20_000_000
    verify_on_recovery: bool = True
    delay_levels_ms: tuple[int, ...] = ()
    limits: FetchLimits = field(default_factory=lambda: FetchLimits(8 << 30))
    reads_only_durable: bool = False
    """Whether consumers and slaves see a record only once it is durable. Otherwise a power failure
    could take it back after it was seen, and its queue offset would mean two messages."""
    store_host: bytes = bytes(8)
    """Address and port that new records name as theirs."""
    read_only_log_folders: Sequence[Path] = ()
    """Folders with more files of the log, which are read but get no new file."""
    pooled: bool = False
    """Whether records wait in memory until `commit` writes them to the log's file."""
    busy_ms: int = 0
    """When a turn's appends have taken longer than this, the next ones are refused; 0: never."""
    notes_file_size: int | None = None
    """Size of a file with extension units; None: queue entries have no units."""
    requires_durable_log: bool = False
    """Whether `open` refuses a store whose log has lost the files at its end. On a master new
    records would get the physical and queue offsets of the lost ones. A slave copies the lost ones
    again."""
    fullest: float = 0.85
    """A folder whose drive is used beyond this share gets no new file of the log while another
    folder can have it."""


class FilterBits(Protocol):
    """Computes the filter bits of records, `size` bytes each."""

    size: int

    def has_any(self, topic: str) -> bool:
        """Whether records of a topic get filter bits."""

    def of(self, topic: str, record: bytes) -> bytes: ...


@dataclass(frozen=True, slots=True)
class Expired:
    """Deletions of the files that the store has forgotten; each may be called off the loop.

    The log's files are to be deleted oldest first, so that a crash leaves no gap between files. The
    same holds for the files of one folder in `queues` and `index`.
    """

    log: list[Deletion]
    queues: list[Deletion]
    index: list[Deletion]


@dataclass(frozen=True, slots=True)
class KeyHits:
    """Records that may have a key, oldest first, and the end of the index.

    `last_ms` and `last_at` are store time and physical offset of the newest indexed record.
    """

    records: list[bytes]
    last_ms: int
    last_at: int


def _trimmed(queue: ConsumeQueue, log_start: int) -> list[Deletion] | None:
    """Trim a queue; None for a queue that cannot be read, which has been logged already."""
    try:
        return [] if queue.is_lost else queue.trim(log_start)
    except UnreadableFile:
        return None


def _without(mark: CheckpointMark, queues: int, entries: int) -> CheckpointMark:
    """The mark with fewer queues and entries."""
    return replace(
        mark,
        queue_count=max(0, mark.queue_count - queues),
        entry_count=max(-1, mark.entry_count - entries),
    )


class Store:
    """The files of one broker: commit log, consume queues, index and checkpoint.

    Invariant: a record is written to the log, then to its queue, then to the index, never in
    another order. All three can be read as soon as `append` returns. `log.flushed_to` is the
    physical offset before which the log survives a crash of the machine. Once a sync of one of the
    files has failed, the store accepts no message, and neither `log.flushed_to` nor the checkpoint
    moves.

    :param now_ms: wall clock, read for the store time of each new record.
    :param filter_bits: computes the filter bits in extension units; None: they get no bits.
    :param watched: the queues that `take_grown` is asked about; the caller changes it at any time.
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
        self._filter_bits = filter_bits
        self._without_bits: set[str] = set()
        """Topics for which a failure to compute filter bits was logged."""
        self.queues = self._make_queues()
        self.index = self._make_index()
        self.checkpoint = Checkpoint(self.disk, config.root / "checkpoint")
        self._lost = LostQueues(self.disk, config.root)
        self.mending = Mending(self.log, self.queues, self._lost, self._delay_ms)
        self.dispatch = Dispatch(
            self.log, self.queues, self.index, self._delay_ms, lose=self.mending.lose
        )
        self.writer = Writer(
            self.log, self.dispatch, self.index, config.store_host, now_ms, config.busy_ms, watched
        )
        self._held_up: set[str] = set()
        """Tasks that failed on the drive, by their names in log lines. While there are any, the
        checkpoint does not move."""
        self.has_untrimmed = False
        """Whether a queue could not be read when the log lost files. Its first entries point to
        deleted records until `drop_oldest` is called again."""
        self.failed = Listeners[[OSError]]()
        """Called once, on the loop, with the failure of the first sync that failed."""
        self._is_closed = False

    def _make_queues(self) -> Queues:
        config = self.config
        bits = self._filter_bits
        sizes = config.consume_queue_file_size, config.notes_file_size
        if bits is None:
            return Queues(self.disk, config.root, *sizes)
        return Queues(self.disk, config.root, *sizes, self._bits_of, bits.size)

    def _bits_of(self, topic: str, at: int, size: int) -> bytes:
        """The filter bits of a record; none while the record waits in the memory buffer."""
        assert self._filter_bits is not None, "queues without bits do not ask for any"
        if not self._filter_bits.has_any(topic):
            return b""
        try:
            record = self.log.record_bytes(at, size)
        except UnreadableFile:
            return b""
        try:
            return self._filter_bits.of(topic, record) if record is not None else b""
        except Exception:  # the record is in the log: it needs its entry, and can do without bits
            if topic not in self._without_bits:
                self._without_bits.add(topic)
                log.exception(
                    "filter bits cannot be computed, new messages get none: topic=%s", topic
                )
            return b""

    def _make_index(self) -> Index | None:
        config = self.config
        if not config.index_enabled:
            return None
        return Index(self.disk, config.root / "index", config.index_slots, config.index_entries)

    # opening and closing

    def open(self) -> None:
        """Load the files and recover.

        Afterwards the log ends with its last valid record, is durable, and all of it is dispatched.

        :raises StoreError: another broker uses the directory, or a file does not belong there, or
            files are missing.
        """
        self._lock = self.disk.lock(self.config.root / "lock")
        self.was_crashed = self.disk.read(self._abort) is not None
        self.log.load()
        self.checkpoint.load()
        if self.config.requires_durable_log:
            self._require_durable_log()
        if self.was_crashed:
            self._forget_cached()
        lost = self._load_queues()
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
            room_wanted=self._room_wanted,
        )
        self.writer.follow(max(self.checkpoint.log_ms, self.dispatch.store_ms))
        # consumers and slaves will see the recovered records, so a later crash must not take them
        self.log.sync_work(self.log.end)()
        self.log.synced(self.log.end)
        self.log.mapped_from = self.log.end
        self._sign(self._lock)
        with self._room_wanted(MENDING):
            self.mending.made(lost)
        if not self.was_crashed:  # else the file exists, and a full drive could not replace it
            self.disk.replace(self._abort, b"")

    def _require_durable_log(self) -> None:
        """Refuse a log that ends before the checkpoint mark.

        :raises StoreError: files of the log are missing.
        """
        mark = self.checkpoint.mark
        end = self.log.end  # before recovery: the end of the last file
        if mark is None or mark.position <= end:
            return
        folders = " or ".join(str(folder) for folder in self.log.folders)
        raise StoreError(
            f"files of the commit log are missing from {folders}: the last file ends at physical "
            f"offset {end}, the log was durable up to {mark.position}. Mount the volume or restore "
            "the files; or promote a slave; or, to start without the lost messages, delete "
            f"{self.config.root / 'checkpoint'}: new messages then get their queue offsets"
        )

    def _load_queues(self) -> list[ConsumeQueue]:
        """Open the queues.

        :returns: the queues to rebuild from the whole log; they have no entries.
        """
        self._lost.load()
        lost = self.queues.load()
        late = lost_beginnings(self.log, set(self.queues).difference(lost))
        lost += [
            self.queues.queue(*name)
            for name in sorted(self._lost.ends.keys() - {queue.name for queue in lost})
        ]
        self._lost.add({queue.name: 0 for queue in lost})
        for queue in lost:
            queue.drop_all()
        return lost + [queue for queue in late if queue not in lost and self._is_emptied(queue)]

    def _is_emptied(self, queue: ConsumeQueue) -> bool:
        """Empty a queue whose first files are missing, so that it can be rebuilt.

        False: a file cannot be deleted, or the queue cannot be recorded as lost. The queue then
        stays in use with the entries it has.
        """
        try:
            self._lost.add({queue.name: 0})
            queue.delete()
        except OSError as error:
            if queue.max_offset == 0:
                return True
            log.error(
                "consume queue lacks its first messages and cannot be rebuilt: topic=%s queue=%d "
                "error=%s; remove the cause of the error and restart the broker",
                queue.topic, queue.queue_id, error,
            )  # fmt: skip
            with suppress(OSError):
                self._lost.remove([queue.name])
            return False
        return True

    def _sign(self, lock: Lock) -> None:
        """Record in the lock file that no valid records follow the log's end.

        This broker erases what it truncates; Apache's broker leaves it in the files.
        """
        with suppress(OSError):  # without it the next recovery compares the records' store times
            lock.sign()

    def save_tail(self, at: PhysicalOffset) -> Path | None:
        """Save the bytes of the log's files from `at` on, before they are truncated.

        If the drive fails for this copy, that counts as a failed sync: the store accepts no message
        any more. A full drive is no such failure.

        :returns: the folder; None if there are no bytes, or they could not be saved.
        """
        tail = saved_tail.tail_from(self.log, at)
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
    def trouble(self) -> str:
        """The problems of log and dispatch, for replication status; empty if there are none."""
        dispatch = self.dispatch
        holes = (
            f"{dispatch.holes} damaged ranges of the log stepped over ({dispatch.hole_bytes} bytes)"
            if dispatch.holes
            else ""
        )
        return "; ".join(filter(None, (dispatch.lag_reason, holes, self.mending.trouble)))

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
        if not self._is_closed:
            self._is_closed = True
            self.log.take_no_more()
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
                self.dispatch.behind,
            )  # fmt: skip
        self.checkpoint_work()()
        is_clean = not self.dispatch.behind
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

    def checkpoint_work(self) -> Callable[[], None]:
        """A function that checkpoints the store as it is now; it may run off the loop."""
        sync, save = self.checkpoint_works()

        def work() -> None:
            sync()
            save()

        return work

    def checkpoint_works(self, leaving: Collection[ConsumeQueue] = ()) -> Works:
        """`checkpoint_steps`, run to its end."""
        return finished(self.checkpoint_steps(leaving))

    def checkpoint_steps(self, leaving: Collection[ConsumeQueue] = ()) -> Steps[Works]:
        """Prepare a checkpoint of the store as it is now, in steps.

        The caller begins a checkpoint only after the one before has been saved.

        :param leaving: queues that are going to be deleted. The checkpoint does not count them, so
            that no later recovery takes them for lost and rebuilds them.
        :returns: a function that syncs log, queues and index, and one that saves the checkpoint
            after that; both may run off the loop.
        """
        yield from self.flush_index_steps()
        last_ms = self.writer.last_ms
        position = None if self._held_up else self.dispatch.position
        syncs, mark = yield from gather(
            self.log, self.queues, self.index, position, self.mending.gone.append
        )
        store_ms = last_ms if mark is not None else 0
        fewer = (
            sum(queue.max_offset > 0 for queue in leaving),
            sum(queue.max_offset for queue in leaving),
        )

        def sync_all() -> None:
            unreadable: UnreadableFile | None = None
            for sync in syncs:
                try:
                    sync()
                except UnreadableFile as error:
                    unreadable = error  # a deleted file must not keep the others from a sync
            self._sync_health.check()
            if unreadable is not None:
                raise unreadable

        def save() -> None:
            noted = mark or self.checkpoint.mark
            self.checkpoint.note(store_ms, noted and _without(noted, *fewer))
            self.checkpoint.save()

        return sync_all, save

    @property
    def newest_ms(self) -> int:
        """The latest store time of any record, ms.

        Store times are from the clock of the broker that stored the record; after a clock was set
        back later records have earlier store times.
        """
        return max(self.writer.store_ms, self.dispatch.store_ms)

    @property
    def shown_to(self) -> PhysicalOffset:
        """Consumers and slaves may see the records before this physical offset."""
        only_durable = self.config.reads_only_durable or self._sync_health.failure is not None
        return self.log.flushed_to if only_durable else self.log.readable_to

    @property
    def shows_at_once(self) -> bool:
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
        """The offset at which a group resumes that claims `offset`: at most the end of the queue.

        Messages beyond the end were lost with the log's tail, or only a former master had them.
        Other messages will get these offsets, so the group must not skip them. While dispatch is
        held up the end is not known, and `offset` is returned as it is.
        """
        queue = self.queues.known(topic, queue_id)
        return (
            offset if queue is None or self.dispatch.is_held_up else min(offset, queue.max_offset)
        )

    def cut(self, end: PhysicalOffset) -> None:
        """Truncate log, queues and index to the records before `end`, where a record ends.

        A former master calls it whose log differs from its new master's from `end` on
        (docs/storage/replication.md#rejoin).
        """
        self.log.truncate(end)
        for queue in self.queues:
            queue.truncate(end)
        if self.index is not None:
            self.index.flush()
            self.index.cut_to_place(
                end,
                lambda at: (
                    read_dispatch_request(at, memoryview(self.message_at(at) or b"")).store_ms
                ),
            )
        self.dispatch.position = min(self.dispatch.position, end)
        if self.checkpoint.mark is not None and self.checkpoint.mark.position > end:
            self.checkpoint.mark = None
        self.checkpoint_work()()

    # retention

    def usage(self) -> Usage:
        """The used share of each drive; may be called off the loop."""
        ratio = self.disk.used_ratio
        root = self.config.root
        log = min(ratio(folder) for folder in self.log.folders)
        return Usage(log, ratio(root / "consumequeue"), ratio(root / "index"))

    def last_writes(self) -> list[tuple[PhysicalOffset, int]]:
        """End and time of the last write (wall clock, ms) of each file of the log but the last one.

        Oldest first. May be called off the loop.
        """
        starts = self.log.file_starts
        return [
            (PhysicalOffset(end), self.log.modified_ms(start)) for start, end in pairwise(starts)
        ]

    def drop_oldest(self, count: int) -> Expired:
        """`drop_oldest_steps`, run to its end."""
        return finished(self.drop_oldest_steps(count))

    def drop_oldest_steps(self, count: int) -> Steps[Expired]:
        """Forget the log's first `count` files, and files of queues and index that belong to them.

        The log forgets its files last, so that no queue has entries whose records are forgotten.

        The log's last file stays. Files that end after the last checkpoint's mark stay, too: a
        crash may take the queue entries of records after the mark, and a queue left with entries of
        deleted records only would not know its next offset. Without a mark the queues' own durable
        ends decide. If a full drive has no room for the queue entries of the first file's records,
        that one file is forgotten all the same, since nothing else would make room.

        Bytes that a caller has read from a file remain valid.
        """
        log = self.log
        new_start = yield from self._new_start(count)
        trimmed: list[list[Deletion] | None] = []
        for part in in_parts(self.queues.present(), _TRIMMED_AT_ONCE):
            trimmed += [_trimmed(queue, new_start) for queue in part]
            yield
        self.has_untrimmed = None in trimmed
        deletions = log.forget_before(new_start)
        queues = [deletion for of_queue in trimmed for deletion in of_queue or ()]
        return Expired(
            deletions, queues, self.index.forget_before(log.start) if self.index is not None else []
        )

    def _new_start(self, count: int) -> Steps[PhysicalOffset]:
        """Where the log begins without those of its first `count` files that may be deleted."""
        log = self.log
        mark = self.checkpoint.mark
        durable_to = min(
            log.flushed_to,
            mark.position if mark is not None else (yield from self._durable_in_queues()),
        )
        starts = log.file_starts[: count + 1]
        new_start = max((start for start in starts if start <= durable_to), default=log.start)
        waits = (
            self.dispatch.lacks_room
            and len(starts) > 1
            and self.dispatch.position < starts[1] <= log.flushed_to
        )
        if (
            new_start == log.start
            and waits
            and (yield from self.dispatch.pass_over(PhysicalOffset(starts[1])))
        ):
            new_start = starts[1]
        return PhysicalOffset(new_start)

    def _durable_in_queues(self) -> Steps[int]:
        """The physical offset before which all records' entries are known to be durable."""
        durable_to: int = self.dispatch.position
        for part in in_parts(self.queues.present(), _TRIMMED_AT_ONCE):
            durable_to = min([durable_to, *(queue.durable_before for queue in part)])
            yield
        return durable_to

    def expired_queues(self, kept: Collection[str]) -> Steps[list[ConsumeQueue]]:
        """Queues whose messages are all deleted from the log, but for the topics `kept`."""
        found: list[ConsumeQueue] = []
        for part in in_parts(self.queues.present(), _QUEUES_AT_ONCE):
            found += [queue for queue in part if self.is_expired(queue) and queue.topic not in kept]
            yield
        return found

    def is_expired(self, queue: ConsumeQueue) -> bool:
        """Whether the queue had messages, and all are deleted from the log."""
        return queue.max_offset > 0 and queue.log_end <= self.log.start

    # writing, beside what `writer` does

    def take_grown(self) -> Collection[ConsumeQueue]:
        """The watched queues that grew since the last call, in the order in which they grew."""
        return self.writer.take_grown()

    def replicated(self) -> None:
        """Dispatch what replication wrote to the log, and what could not be dispatched before."""
        with self._room_wanted(DISPATCH):
            self.writer.note_grown(self.dispatch.catch_up())
        self.writer.follow(self.dispatch.store_ms)

    def mend(self) -> bool:
        """Rebuild lost queues from one more piece of the log.

        :returns: whether there is more to do now.
        """
        made: list[ConsumeQueue] | None = None
        with self._room_wanted(MENDING):
            made = self.mending.step(self.dispatch.position)
        self.writer.note_grown(made or ())
        return made is not None

    def end_turn(self) -> None:
        """Finish the appends of a turn of the event loop."""
        self.writer.end_turn()
        if self.index is not None and self.index.is_due:
            with self._room_wanted(INDEX):
                self.index.flush_some()

    def flush_index(self) -> None:
        """Write the collected keys to the index files."""
        finished(self.flush_index_steps())

    def flush_index_steps(self) -> Steps[None]:
        """`flush_index` in steps, since one message may have thousands of keys."""
        if self.index is not None:
            with self._room_wanted(INDEX):
                yield from self.index.flush_steps()

    @contextmanager
    def _room_wanted(self, task: str) -> Iterator[None]:
        """Run a task that the caller repeats later if the drive fails, for want of room as a rule.

        Only the first failure in a row is logged.

        :param task: its name in the log line.
        """
        try:
            yield
        except OSError as error:
            if task not in self._held_up:
                log.error("store task is held up, will be retried: task=%r error=%s", task, error)
            self._held_up.add(task)
        else:
            self._held_up.discard(task)

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
                self.log, queue, offset, count_max, wanted, self.config.limits, self.shown_to
            )
        except UnreadableFile as error:
            if queue is not None:
                self.mending.lose(queue)
            text = (
                f"queue {queue_id} of {topic} cannot be read at offset {offset}: {error.strerror}"
            )
            raise UnreadableFile(error.errno, text, error.filename) from error

    def message_at(self, at: int) -> bytes | None:
        """The record at physical offset `at`; None if no record begins there."""
        return self.log.record_at(at)

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
        """Whether a message counts as being in memory; one that does not exist does, too.

        See docs/protocol/consuming.md#a-young-queue-answers-0.
        """
        queue = self.queues.known(topic, queue_id)
        entry = queue.entry(offset) if queue is not None else None
        return entry is None or self.log.end - entry[0] <= self.config.limits.memory_bytes

    def search_by_key(
        self, topic: str, key: str, count_max: int, begin_ms: int, end_ms: int
    ) -> Steps[KeyHits]:
        """Find the newest records in a range of store times that have a key with the hash of `key`.

        Oldest first; at most `KEY_BYTES_MAX` bytes of records, but at least one record.

        :param begin_ms: inclusive; `end_ms` as well, both to the second.
        """
        if self.index is None:
            return KeyHits([], 0, 0)
        yield from self.flush_index_steps()
        found = yield from self.index.find(
            topic, key, begin_ms, end_ms, min(count_max, KEY_HITS_MAX)
        )
        records: list[bytes] = []
        size = 0
        for at in sorted(set(found), reverse=True):
            yield
            record = self._with_key(at, topic, key)
            if record is None:
                continue
            size += len(record)
            if records and size > KEY_BYTES_MAX:
                break
            records.append(record)
        return KeyHits(records[::-1], self.index.end_ms, max(self.index.end_at, 0))

    def _with_key(self, at: int, topic: str, key: str) -> bytes | None:
        """The record at physical offset `at` if it has a key with the hash of `key`, else None.

        A damaged index may name any physical offset.
        """
        record = self.log.record_at(at)
        if record is None:
            return None
        request = read_dispatch_request(at, memoryview(record))
        wanted = key_hash(topic, key)
        has_key = any(
            key_hash(topic, each.decode("utf-8", "replace")) == wanted for each in request.keys
        )
        return record if request.topic == topic and has_key else None
