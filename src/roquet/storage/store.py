"""Opens log, queues, index and checkpoint as one; all that other packages see of storage."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path
from typing import Final, Protocol, TypeAlias

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
"""Of each the first entry that is left is searched for, by some reads."""
MENDING: Final = "the making of lost consume queues"
KEY_HITS_MAX = 64
KEY_BYTES_MAX = 8 * 1024 * 1024
"""No client takes a frame beyond 16 MiB, and while a large one is made all others wait."""


@dataclass(frozen=True, slots=True)
class StoreConfig:
    """Where the files are and how large; sizes in bytes, Apache's defaults."""

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
    """Show nobody what a power failure could still take back, so that its queue offset never means two messages."""
    store_host: bytes = bytes(8)
    """Address and port that new records name as theirs."""
    read_only_log_folders: Sequence[Path] = ()
    """More folders with files of the log, to which no new one goes."""
    pooled: bool = False
    """Let records wait in memory until `commit` brings them into the log's file."""
    busy_ms: int = 0
    """When a turn's appends have taken longer than this, the next ones are refused; 0: never."""
    notes_file_size: int | None = None
    """Of the files with notes on consume queue entries; None: there are none."""
    requires_durable_log: bool = False
    """Do not open a store whose log has lost the files at its end: new records would get the places and queue offsets
    of those that were in them. A log that is copied from a master gets the same ones there."""
    fullest: float = 0.85
    """A drive used beyond this share gets no new file of the log while another folder can have it."""


class FilterBits(Protocol):
    """What works out the filter bits of records, `size` bytes each."""

    size: int

    def has_any(self, topic: str) -> bool:
        """Whether records of a topic have such bits."""

    def of(self, topic: str, record: bytes) -> bytes: ...


@dataclass(frozen=True, slots=True)
class Expired:
    """What deletes files that the store has forgotten, each of which may be called off the loop.

    The log's go oldest first, so that a crash leaves no gap; so do those of one folder in the other lists.
    """

    log: list[Deletion]
    queues: list[Deletion]
    index: list[Deletion]


@dataclass(frozen=True, slots=True)
class KeyHits:
    """Records that may have a key, oldest first, and how far the index reaches."""

    records: list[bytes]
    last_ms: int
    last_at: int


def _trimmed(queue: ConsumeQueue, log_start: int) -> list[Deletion] | None:
    """What `ConsumeQueue.trim` gives; None for a queue that cannot be read, which has been told of."""
    try:
        return [] if queue.is_lost else queue.trim(log_start)
    except UnreadableFile:
        return None


def _without(mark: CheckpointMark, queues: int, entries: int) -> CheckpointMark:
    return replace(
        mark,
        queue_count=max(0, mark.queue_count - queues),
        entry_count=max(-1, mark.entry_count - entries),
    )


class Store:
    """One store directory.

    Keeps: a record is in the log, then in its queue, then in the index, never the other way round; all are readable
    as soon as `append` returns; `log.flushed_to` says what a crash of the machine leaves.
    Once a sync of one of its files has failed, it takes nothing, and neither `log.flushed_to` nor the checkpoint moves.

    :param now_ms: wall clock, asked for the store time of each new record.
    :param filter_bits: what notes on queue entries say of filters, where there are such notes; None: nothing.
    """

    def __init__(
        self,
        config: StoreConfig,
        now_ms: Callable[[], int],
        disk: Disk | None = None,
        filter_bits: FilterBits | None = None,
    ) -> None:
        self.config = config
        self._sync_health = SyncHealth()
        self._raw_disk = disk if disk is not None else RealDisk()
        self.disk = SyncCheckedDisk(self._raw_disk, self._sync_health)
        self._lock: Lock | None = None
        self._abort = config.root / "abort"
        self.was_crashed = False
        """Whether whoever had the store before did not close it; known once it is open."""
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
        """Topics of which it was told that their filters failed."""
        self.queues = self._make_queues()
        self.index = self._make_index()
        self.checkpoint = Checkpoint(self.disk, config.root / "checkpoint")
        self.dispatch = Dispatch(self.log, self.queues, self.index, self._delay_ms)
        self._writer = Writer(
            self.log, self.dispatch, self.index, config.store_host, now_ms, config.busy_ms
        )
        self._lost = LostQueues(self.disk, config.root)
        self.mending = Mending(self.log, self.queues, self.dispatch, self._lost, self._delay_ms)
        self.dispatch.lose = self.mending.lose
        self.append = self._writer.append
        self.append_batch = self._writer.append_batch
        self.append_alike = self._writer.append_alike
        self.append_records = self._writer.append_records
        self.append_moved = self._writer.append_moved
        self._held_up: set[str] = set()
        """What the drive had no room for; until it has, the checkpoint stays where it is."""
        self.why_full = ""
        self.has_untrimmed = False
        """Whether a queue could not be read when the log lost files: it begins with entries that point nowhere, until
        `drop_oldest` is called again."""
        """Why no message is taken now, empty while they are; who appends looks here first."""
        self.on_failure: Callable[[OSError], None] = lambda failure: None
        """Told, once, which sync has failed; on the loop."""
        self._is_closed = False

    def _make_queues(self) -> Queues:
        config, bits = self.config, self._filter_bits
        sizes = config.consume_queue_file_size, config.notes_file_size
        if bits is None:
            return Queues(self.disk, config.root, *sizes)
        return Queues(self.disk, config.root, *sizes, self._bits_of, bits.size)

    def _bits_of(self, topic: str, at: int, size: int) -> bytes:
        """The filter bits of a record; none while it waits in memory for its place in the log's file."""
        assert self._filter_bits is not None, "queues without bits do not ask for any"
        if not self._filter_bits.has_any(topic):
            return b""
        try:
            record = self.log.record_bytes(at, size)
        except UnreadableFile:
            return b""
        try:
            return self._filter_bits.of(topic, record) if record is not None else b""
        except Exception:  # the record is in the log: its entry must be written, and readers can do without the bits
            if topic not in self._without_bits:
                self._without_bits.add(topic)
                log.exception(
                    "filters fail on new messages, which get no filter bits: topic=%s", topic
                )
            return b""

    def _make_index(self) -> Index | None:
        config = self.config
        if not config.index_enabled:
            return None
        return Index(self.disk, config.root / "index", config.index_slots, config.index_entries)

    # opening and closing

    def open(self) -> None:
        """Load and recover; afterwards the log ends behind its last valid record, is durable, and all dispatched.

        :raises StoreError: another broker uses the directory, or a file does not belong there, or files are missing.
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
        self._writer.follow(max(self.checkpoint.log_ms, self.dispatch.store_ms))
        self.log.sync_work(self.log.end)()
        self.log.synced(self.log.end)
        self.log.mapped_from = self.log.end
        self._sign(self._lock)
        with self._room_wanted(MENDING):
            self.mending.made(lost)
        if not self.was_crashed:  # else it is there, and a full drive may have no room for it
            self.disk.replace(self._abort, b"")

    def _require_durable_log(self) -> None:
        """
        :raises StoreError: the files of the log end before a place up to which it was durable.
        """
        mark, end = self.checkpoint.mark, self.log.end  # where the last file ends, before recovery
        if mark is None or mark.position <= end:
            return
        folders = " or ".join(str(folder) for folder in self.log.folders)
        raise StoreError(
            f"files of the commit log are missing from {folders}: the last one ends at {end}, and all up to "
            f"{mark.position} was durable. Mount the volume or restore the files; or let a slave become the master; or "
            f"delete {self.config.root / 'checkpoint'} to begin without what they held: new messages then get "
            "its queue offsets"
        )

    def _load_queues(self) -> list[ConsumeQueue]:
        """Open the queues; those that are to be made from the whole log, which have no entries then."""
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
        """Empty a queue whose first files have vanished. False: it has files that cannot be deleted, or noted as lost;
        it goes on with what it has.
        """
        try:
            self._lost.add({queue.name: 0})
            queue.delete()
        except OSError as error:
            if queue.max_offset == 0:
                return True
            log.error(
                "consume queue goes on without its first messages, it cannot be made anew: topic=%s queue=%d error=%s; "
                "see to that, and start the broker again", queue.topic, queue.queue_id, error,
            )  # fmt: skip
            with suppress(OSError):
                self._lost.remove([queue.name])
            return False
        return True

    def _sign(self, lock: Lock) -> None:
        """Note that nothing stands behind the log's end: only brokers that leave what they cut off write it there."""
        with suppress(OSError):  # the next recovery goes by the records' times
            lock.sign()

    def save_tail(self, at: PhysicalOffset) -> Path | None:
        """Save what the log's files hold from `at` on, before it is cut off; the folder, None where nothing is there
        or it could not be saved.

        A drive that fails for this copy is not trusted with the log, either; one that is only full is.
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
        """Whoever had the store may have ended for a sync that failed: what the system has of files in its memory may
        not be on the drive. What the checkpoint vouches for is.
        """
        mark = self.checkpoint.mark
        self.log.forget_cached(mark.position if mark is not None else 0)
        self.queues.forget_cached()
        if self.index is not None:
            self.index.forget_cached()

    @property
    def trouble(self) -> str:
        """What is wrong with log and dispatch, for those who look at replication; empty while nothing is."""
        dispatch = self.dispatch
        holes = (
            f"{dispatch.holes} damaged places stepped over ({dispatch.hole_bytes} bytes)"
            if dispatch.holes
            else ""
        )
        return "; ".join(filter(None, (dispatch.why_behind, holes, self.mending.trouble)))

    @property
    def failure(self) -> OSError | None:
        """The sync that failed and ended all trust in the files (decision 0025); it is known before `take_failure`."""
        return self._sync_health.failure

    def take_failure(self) -> bool:
        """Take no message from now on, if a sync has failed; tells whether one has. To be called on the loop."""
        failure = self._sync_health.failure
        if failure is None:
            return False
        if not self._is_closed:
            self._is_closed = True
            self.log.take_no_more()
            self.why_full = f"a sync of this broker's store has failed: {failure}"
            self.on_failure(failure)
        return True

    def close(self) -> None:
        """Make everything durable and leave the mark of a clean stop.

        :raises OSError: something could not be written; to be followed by `abandon`.
        """
        if self._lock is None:
            return
        self.replicated()
        if self.dispatch.is_held_up:
            log.warning(
                "store closed, queue entries are missing: bytes=%d; make room on the drive, or see to the file: the "
                "next start writes them", self.dispatch.behind,
            )  # fmt: skip
        self.checkpoint_work()()
        is_clean = not self.dispatch.behind
        self.abandon()
        if is_clean:
            self.disk.delete(self._abort)

    def abandon(self) -> None:
        """Close the files as they are; the next opening recovers as after a crash."""
        self.queues.close()
        if self.index is not None:
            self.index.close()
        self.log.close()
        if self._lock is not None:
            self._lock.release()
            self._lock = None

    def checkpoint_work(self) -> Callable[[], None]:
        """What makes log, queues and index durable as they are now and notes it."""
        sync, save = self.checkpoint_works()

        def work() -> None:
            sync()
            save()

        return work

    def checkpoint_works(self, leaving: Collection[ConsumeQueue] = ()) -> Works:
        """`checkpoint_steps`, all at once."""
        return finished(self.checkpoint_steps(leaving))

    def checkpoint_steps(self, leaving: Collection[ConsumeQueue] = ()) -> Steps[Works]:
        """What makes log, queues and index durable as they are now, and what notes it after that; both may be run off
        the loop. One checkpoint is begun after the one before is saved.

        :param leaving: queues that are going to be deleted. After that no recovery takes them for lost, nor brings back
            what they hold now.
        """
        yield from self.flush_index_steps()
        last_ms, position = self._writer.last_ms, None if self._held_up else self.dispatch.position
        syncs, mark = yield from gather(
            self.log, self.queues, self.index, position, self.mending.gone.append
        )
        store_ms = last_ms if mark is not None else 0
        fewer = (
            sum(queue.max_offset > 0 for queue in leaving),
            sum(queue.max_offset for queue in leaving),
        )

        def sync_all() -> None:
            gone: UnreadableFile | None = None
            for sync in syncs:
                try:
                    sync()
                except UnreadableFile as error:
                    gone = error
            self._sync_health.check()
            if gone is not None:
                raise gone

        def save() -> None:
            noted = mark or self.checkpoint.mark
            self.checkpoint.note(store_ms, noted and _without(noted, *fewer))
            self.checkpoint.save()

        return sync_all, save

    @property
    def newest_ms(self) -> int:
        """The latest store time of any record, by the clock of whoever stored it; one that was set back gives later
        records earlier ones."""
        return max(self._writer.store_ms, self.dispatch.store_ms)

    @property
    def shown_to(self) -> PhysicalOffset:
        """Records before it may be seen by consumers and slaves."""
        only_durable = self.config.reads_only_durable or self._sync_health.failure is not None
        return self.log.flushed_to if only_durable else self.log.readable_to

    @property
    def shows_at_once(self) -> bool:
        """Whether a record may be seen as soon as it is appended."""
        return not (self.config.reads_only_durable or self.config.pooled)

    @property
    def stored(self) -> int:
        """Messages that were appended since `open`; those of a master are not among them."""
        return self._writer.stored

    # queues

    def queue(self, topic: str, queue_id: int) -> ConsumeQueue:
        """The queue, made (without a file) where there was none."""
        return self.queues.queue(topic, queue_id)

    def min_offset(self, topic: str, queue_id: int) -> int:
        """0 for an unknown queue."""
        queue = self.queues.known(topic, queue_id)
        return queue.min_offset if queue is not None else 0

    def max_offset(self, topic: str, queue_id: int) -> int:
        """0 for an unknown queue."""
        queue = self.queues.known(topic, queue_id)
        return queue.max_offset if queue is not None else 0

    def within_queue(self, topic: str, queue_id: int, offset: int) -> int:
        """Where a group goes on that says `offset`: at the end of the queue at most, where that is known; it is not
        while entries wait for room.

        What it saw beyond it was lost with this log's tail, or only a former master had it: what comes to stand there
        are other messages.
        """
        queue = self.queues.known(topic, queue_id)
        return (
            offset if queue is None or self.dispatch.is_held_up else min(offset, queue.max_offset)
        )

    def cut(self, end: PhysicalOffset) -> None:
        """Let log, queues and index end with the last record before `end`, where one ends; what came later is erased.

        For a log that is another than its master's from there on (docs/storage/replication.md#rejoin).
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
        """How full the drives are; may be called off the loop."""
        ratio, root = self.disk.used_ratio, self.config.root
        log = min(ratio(folder) for folder in self.log.folders)
        return Usage(log, ratio(root / "consumequeue"), ratio(root / "index"))

    def last_writes(self) -> list[tuple[PhysicalOffset, int]]:
        """Where each file of the log but the last ends, and when it was written last, by the wall clock of then; oldest
        first. May be called off the loop.
        """
        starts = self.log.file_starts
        return [
            (PhysicalOffset(end), self.log.modified_ms(start)) for start, end in pairwise(starts)
        ]

    def drop_oldest(self, count: int) -> Expired:
        """`drop_oldest_steps`, all at once."""
        return finished(self.drop_oldest_steps(count))

    def drop_oldest_steps(self, count: int) -> Steps[Expired]:
        """Forget the log's first `count` files, and what of queues and index points nowhere then. The log goes last: at
        no time has a queue entries whose records are gone.

        The last file stays, and so does what the last checkpoint does not cover: a crash may take the queue entries of
        records behind its mark, and a queue whose entries are all of deleted records could not say where it goes on.
        Without a mark the queues themselves say which entries are durable. Where a full drive has no room for the
        entries of the first file's records, that file goes all the same, by itself: nothing else would make room.
        Whoever holds bytes of a file keeps them.
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
        """Where the log begins without those of its first `count` files that may go."""
        log, mark = self.log, self.checkpoint.mark
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
        """The entries of all records before it are durable, as far as this process knows."""
        durable_to: int = self.dispatch.position
        for part in in_parts(self.queues.present(), _TRIMMED_AT_ONCE):
            durable_to = min([durable_to, *(queue.durable_before for queue in part)])
            yield
        return durable_to

    def expired_queues(self, kept: Collection[str]) -> Steps[list[ConsumeQueue]]:
        """Queues whose messages are all gone from the log, but for the topics `kept`."""
        found: list[ConsumeQueue] = []
        for part in in_parts(self.queues.present(), _QUEUES_AT_ONCE):
            found += [queue for queue in part if self.is_expired(queue) and queue.topic not in kept]
            yield
        return found

    def is_expired(self, queue: ConsumeQueue) -> bool:
        """Whether it had messages, and all are gone from the log."""
        return queue.max_offset > 0 and queue.log_end <= self.log.start

    def take_grown(self) -> list[ConsumeQueue]:
        """Queues with held pulls that grew since this was asked last."""
        grown, self._writer.grown = self._writer.grown, []
        return grown

    # writing: see also the methods `append` and `append_...`, which are the writer's

    def replicated(self) -> None:
        """Dispatch what replication wrote to the log, and what could not be dispatched before."""
        with self._room_wanted(DISPATCH):
            self._writer.grown += [queue for queue in self.dispatch.catch_up() if queue.waiting]
        self._writer.follow(self.dispatch.store_ms)

    def mend(self) -> bool:
        """Go on making lost queues anew, by one piece of the log; tells whether there is more to do now."""
        made: list[ConsumeQueue] | None = None
        with self._room_wanted(MENDING):
            made = self.mending.step()
        self._writer.grown += [queue for queue in made or () if queue.waiting]
        return made is not None

    def end_turn(self) -> None:
        """What is done once for all appends of a loop turn."""
        self._writer.end_turn()
        if self.index is not None and self.index.is_due:
            with self._room_wanted(INDEX):
                self.index.flush_some()

    def flush_index(self) -> None:
        """Write the keys that were noted since."""
        finished(self.flush_index_steps())

    def flush_index_steps(self) -> Steps[None]:
        """The same; a message may have thousands of keys."""
        if self.index is not None:
            with self._room_wanted(INDEX):
                yield from self.index.flush_steps()

    @contextmanager
    def _room_wanted(self, what: str) -> Iterator[None]:
        """What the drive has no room for now is tried again later; said once, not each time."""
        try:
            yield
        except OSError as error:
            if what not in self._held_up:
                log.error("%s is held up, it is tried again: %s", what, error)
            self._held_up.add(what)
        else:
            self._held_up.discard(what)

    def _delay_ms(self, level: int) -> int:
        """ms of a delay level; an unknown one counts as a second.

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
        """Records of a queue from `offset` on.

        :raises UnreadableFile: they, or their entries, cannot be read.
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
        """The record at physical offset `at`, None where none stands."""
        return self.log.record_at(at)

    def store_time(self, topic: str, queue_id: int, offset: int) -> int:
        """When the message at `offset` was stored, ms; -1 where there is none."""
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
        """The queue offset whose message was stored nearest to `timestamp_ms`; 0 for an unknown queue."""
        queue = self.queues.known(topic, queue_id)
        if queue is None:
            return 0
        return queue.offset_at_time(timestamp_ms, lambda offset: self._store_time(queue, offset))

    def is_in_memory(self, topic: str, queue_id: int, offset: int) -> bool:
        """Whether a message counts as being in memory; so does one that does not exist.

        See docs/protocol/consuming.md#a-young-queue-answers-0.
        """
        queue = self.queues.known(topic, queue_id)
        entry = queue.entry(offset) if queue is not None else None
        return entry is None or self.log.end - entry[0] <= self.config.limits.memory_bytes

    def search_by_key(
        self, topic: str, key: str, count_max: int, begin_ms: int, end_ms: int
    ) -> Steps[KeyHits]:
        """The newest records stored in the time range whose key has the same hash as `key`, oldest first: no more than
        `KEY_BYTES_MAX` of them, or one.
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
        """The record at physical offset `at`, if it has a key with that hash: a damaged index may name any place."""
        record = self.log.record_at(at)
        if record is None:
            return None
        request, wanted = read_dispatch_request(at, memoryview(record)), key_hash(topic, key)
        has_key = any(
            key_hash(topic, each.decode("utf-8", "replace")) == wanted for each in request.keys
        )
        return record if request.topic == topic and has_key else None
