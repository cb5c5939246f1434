"""Opens log, queues, index and checkpoint as one; all that other packages see of storage."""

from __future__ import annotations

import logging
import mmap
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from struct import Struct
from zlib import crc32

import numpy as np

from roquet.errors import CorruptRecord
from roquet.protocol import message as m
from roquet.protocol.filters import TagFilter
from roquet.protocol.record import MAGIC, decode, layout
from roquet.protocol.record_rows import AlikeMessages, Ints, record_rows
from roquet.storage.checkpoint import Checkpoint
from roquet.storage.commit_log import CommitLog
from roquet.storage.consume_queue import ENTRY_SIZE, ConsumeQueue, encode_entries
from roquet.storage.disk import Disk, Lock, RealDisk
from roquet.storage.dispatch import Dispatch, read_arrival
from roquet.storage.fetch import Fetched, FetchLimits, fetch
from roquet.storage.index import Index
from roquet.storage.recovery import scan_start, valid_end
from roquet.units import PhysicalOffset

log = logging.getLogger(__name__)

KEY_HITS_MAX = 64


@dataclass(frozen=True, slots=True)
class StoreConfig:
    """Where the files are and how large; sizes in bytes, Apache's defaults."""

    root: Path
    commit_log_folder: Path
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


@dataclass(slots=True)
class BatchItem:
    """One message of a batch, as it is stored."""

    flag: int
    body: bytes
    properties: bytes
    keys: Sequence[bytes]
    tag_code: int


@dataclass(frozen=True, slots=True)
class KeyHits:
    """Records that may have a key, oldest first, and how far the index reaches."""

    records: list[bytes]
    last_ms: int
    last_at: int


class Store:
    """One store directory.

    Keeps: a record is in the log, then in its queue, then in the index, never the other way round; all are readable
    as soon as `append` returns; `log.flushed_to` says what a crash of the machine leaves.

    :param now_ms: wall clock; store times never go back, even if it does.
    """

    def __init__(self, config: StoreConfig, now_ms: Callable[[], int], disk: Disk | None = None) -> None:
        self.config = config
        self.disk = disk if disk is not None else RealDisk()
        self._now_ms = now_ms
        self._queues: dict[str, dict[int, ConsumeQueue]] = {}
        self._lock: Lock | None = None
        self._abort = config.root / "abort"
        self.log = CommitLog(self.disk, config.commit_log_folder, config.commit_log_file_size)
        self.index = self._make_index()
        self.checkpoint = Checkpoint(self.disk, config.root / "checkpoint")
        self.dispatch = Dispatch(self.log, self.queue, self.index, self._delay_ms)
        self.store_host = bytes(8)
        """Address and port that new records name as theirs."""
        self.store_ms = 0
        """Store time of the newest record, ms."""
        self._held_up: set[str] = set()
        """What the drive had no room for; until it has, the checkpoint stays where it is."""
        self.grown: list[ConsumeQueue] = []
        """Queues with held pulls that grew since somebody last emptied this list."""

    def _make_index(self) -> Index | None:
        config = self.config
        if not config.index_enabled:
            return None
        return Index(self.disk, config.root / "index", config.index_slots, config.index_entries)

    # opening and closing

    def open(self) -> None:
        """Load and recover; afterwards the log ends behind its last valid record, is durable, and all dispatched.

        :raises StoreError: another broker uses the directory, or a file does not belong there.
        """
        self._lock = self.disk.lock(self.config.root / "lock")
        crashed = self.disk.read(self._abort) is not None
        self.log.load()
        self._load_queues()
        self.checkpoint.load()
        self._recover(crashed)
        self.log.sync(self.log.end)
        self.log.synced(self.log.end)
        self.disk.replace(self._abort, b"")

    def _load_queues(self) -> None:
        folder = self.config.root / "consumequeue"
        for topic in self.disk.folders(folder):
            for queue_id in self.disk.folders(folder / topic):
                if queue_id.isdigit():
                    self.queue(topic, int(queue_id)).load()

    def _recover(self, crashed: bool) -> None:
        dispatched = max((queue.log_end for queue in self.queues()), default=0)
        start = scan_start(self.log, self.checkpoint, dispatched, crashed=crashed)
        end = valid_end(self.log, start, verify=self.config.verify_on_recovery)
        refill = self.index.load(self.checkpoint.index_ms if crashed else None) if self.index is not None else None
        self.log.truncate(end, erase=crashed)
        self.log.synced_until(start)
        for queue in self.queues():
            self._cut(queue, start if crashed else end, crashed=crashed)
        resume = max((queue.log_end for queue in self.queues()), default=0)
        if crashed:
            resume = min(resume, start, end if refill is None else refill)
        self.dispatch.position = PhysicalOffset(max(resume, self.log.start))
        self.dispatch.catch_up()
        self.store_ms = max(self.checkpoint.log_ms, self.dispatch.store_ms)
        for queue in self.queues():
            queue.correct_min_offset(self.log.start)
        log.info(
            "store %s: log %d to %d%s", self.config.root, self.log.start, end, ", after a crash" if crashed else ""
        )

    def _cut(self, queue: ConsumeQueue, end: PhysicalOffset, *, crashed: bool) -> None:
        """Drop the entries of records from `end` on.

        After a crash also those at the queue's end that do not name the record they point to: an entry may be older
        than what stands in the log now, when its page was on disk and the page that replaced it was not.
        """
        if crashed or queue.log_end > end:
            queue.truncate(end)
        while crashed and queue.max_offset > queue.min_offset and not self._is_true(queue, queue.max_offset - 1):
            queue.drop_last()

    def _is_true(self, queue: ConsumeQueue, offset: int) -> bool:
        """Whether an entry points to a record of this queue and offset."""
        entry = queue.entry(offset)
        assert entry is not None
        record = self.message_at(entry[0])
        if record is None or len(record) != entry[1]:
            return entry[0] < self.log.start
        arrival = read_arrival(entry[0], memoryview(record))
        return (arrival.topic, arrival.queue_id, arrival.queue_offset) == (queue.topic, queue.queue_id, offset)

    def close(self) -> None:
        """Make everything durable and leave the mark of a clean stop."""
        if self._lock is None:
            return
        self.dispatch.catch_up()
        self.checkpoint_work()()
        is_clean = not self.dispatch.behind
        self.abandon()
        if is_clean:
            self.disk.delete(self._abort)

    def abandon(self) -> None:
        """Close the files as they are; the next opening recovers as after a crash."""
        for queue in self.queues():
            queue.close()
        if self.index is not None:
            self.index.close()
        self.log.close()
        if self._lock is not None:
            self._lock.release()
            self._lock = None

    def checkpoint_work(self) -> Callable[[], None]:
        """What makes log, queues and index durable as they are now and notes it; may be run off the loop."""
        self.flush_index()
        end, store_ms = self.log.end, 0 if self._held_up else self.store_ms
        queues, index, checkpoint = list(self.queues()), self.index, self.checkpoint

        def work() -> None:
            self.log.sync(end)
            for queue in queues:
                queue.sync()
            if index is not None:
                index.sync()
            checkpoint.note(store_ms)
            checkpoint.save()

        return work

    # queues

    def queue(self, topic: str, queue_id: int) -> ConsumeQueue:
        """The queue, made (without a file) where there was none."""
        by_id = self._queues.get(topic)
        if by_id is None:
            by_id = self._queues[topic] = {}
        queue = by_id.get(queue_id)
        if queue is None:
            folder = self.config.root / "consumequeue" / topic / str(queue_id)
            size = self.config.consume_queue_file_size
            queue = by_id[queue_id] = ConsumeQueue(self.disk, folder, size, topic, queue_id)
        return queue

    def known_queue(self, topic: str, queue_id: int) -> ConsumeQueue | None:
        """The queue, None where nothing was ever written to it."""
        by_id = self._queues.get(topic)
        return by_id.get(queue_id) if by_id is not None else None

    def queues(self) -> Iterator[ConsumeQueue]:
        for by_id in self._queues.values():
            yield from by_id.values()

    def min_offset(self, topic: str, queue_id: int) -> int:
        """0 for an unknown queue."""
        queue = self.known_queue(topic, queue_id)
        return queue.min_offset if queue is not None else 0

    def max_offset(self, topic: str, queue_id: int) -> int:
        """0 for an unknown queue."""
        queue = self.known_queue(topic, queue_id)
        return queue.max_offset if queue is not None else 0

    def drop_topic(self, topic: str) -> None:
        """Delete a topic's queues; its records stay in the log until they expire."""
        for queue in self._queues.pop(topic, {}).values():
            queue.drop_all()
            self.disk.delete_folder(self.config.root / "consumequeue" / topic / str(queue.queue_id))
        self.disk.delete_folder(self.config.root / "consumequeue" / topic)

    # writing

    def append(
        self,
        queue: ConsumeQueue,
        body: bytes,
        properties: bytes,
        keys: Sequence[bytes],
        tag_code: int,
        flag: int,
        sys_flag: int,
        born_ms: int,
        born_host: bytes,
        reconsume_times: int = 0,
    ) -> PhysicalOffset:
        """Write one record to the log, its queue and the index; its physical offset.

        `sys_flag` has the host bits that fit `born_host` and `store_host`. The caller checked all limits.

        :raises ValueError: the record is larger than a file. OSError: there is no room for it; nothing was written.
        """
        pack = layout(sys_flag, len(body), len(queue.topic_bytes), len(properties))
        queue.make_room(1)
        buffer, index, at = self.log.place(pack.size)
        self._write(
            pack, buffer, index, at, queue, body, properties, keys, tag_code, flag, sys_flag, born_ms, born_host,
            reconsume_times,
        )  # fmt: skip
        return at

    def append_batch(
        self,
        queue: ConsumeQueue,
        items: Sequence[BatchItem],
        sys_flag: int,
        born_ms: int,
        born_host: bytes,
        reconsume_times: int = 0,
    ) -> list[PhysicalOffset]:
        """Write records with consecutive queue offsets, all of them into one file or none (store-and-ha.md 2.3).

        :raises ValueError: together they are larger than a file. OSError: there is no room; nothing was written.
        """
        topic_size = len(queue.topic_bytes)
        packs = [layout(sys_flag, len(item.body), topic_size, len(item.properties)) for item in items]
        queue.make_room(len(items))
        buffer, index, at = self.log.place(sum(pack.size for pack in packs))
        places: list[PhysicalOffset] = []
        for pack, item in zip(packs, items, strict=True):
            self._write(
                pack, buffer, index, at, queue, item.body, item.properties, item.keys, item.tag_code, item.flag,
                sys_flag, born_ms, born_host, reconsume_times,
            )  # fmt: skip
            places.append(at)
            index += pack.size
            at = PhysicalOffset(at + pack.size)
        return places

    def append_alike(self, messages: AlikeMessages, queues: Sequence[ConsumeQueue]) -> tuple[list[int], Ints]:
        """What `append` and `append_batch` do, for messages of one topic that are alike.

        :param queues: each gets as many of the messages, one queue after the other; one may be there twice.
        :return: for each queue the first queue offset, and the physical offset of each message.
        :raises ValueError: together they are larger than a file. OSError: there is no room; nothing was written.
        """
        count, each, topic = len(messages), len(messages) // len(queues), queues[0].topic_bytes
        pack = layout(messages.sys_flag, len(messages.body), len(topic), len(messages.properties))
        size = pack.size
        firsts = _reserve(queues, each)
        at = self.log.make_room(size * count)
        physical = np.arange(at, at + size * count, size)
        first_record = pack.pack(
            *(size, MAGIC, 0, 0, messages.flag, 0, 0, messages.sys_flag, 0, messages.born_host),
            *(self._next_store_ms(), self.store_host, messages.reconsume_times, 0, len(messages.body), messages.body),
            *(len(topic), topic, len(messages.properties), messages.properties),
        )
        numbers = _spread([queue.queue_id for queue in queues], each, 0), _spread(firsts, each, 1)
        records = record_rows(messages, first_record, len(topic), *numbers, physical)
        self.log.write(records.data.cast("B"))
        self.dispatch.position = self.log.end
        entries = encode_entries(physical, size, messages.tag_codes)
        for begin, queue in zip(range(0, count, each), queues, strict=True):
            end = begin + each
            queue.put_many(entries[begin * ENTRY_SIZE : end * ENTRY_SIZE], at + end * size)
            if queue.waiting:
                self.grown.append(queue)
        if self.index is not None:
            for keys in messages.keys:
                self.index.add_many(queues[0].topic, keys, physical, self.store_ms)
        return firsts, physical

    def _next_store_ms(self) -> int:
        """Now, but never before the record that was stored last."""
        now_ms = self._now_ms()
        if now_ms > self.store_ms:
            self.store_ms = now_ms
        return self.store_ms

    def _write(
        self,
        pack: Struct,
        buffer: mmap.mmap | bytearray,
        index: int,
        at: PhysicalOffset,
        queue: ConsumeQueue,
        body: bytes,
        properties: bytes,
        keys: Sequence[bytes],
        tag_code: int,
        flag: int,
        sys_flag: int,
        born_ms: int,
        born_host: bytes,
        reconsume_times: int,
    ) -> None:
        """Fill a place in the log, and dispatch it."""
        size, topic = pack.size, queue.topic_bytes
        takes_a_slot = not sys_flag & m.TRANSACTION_PREPARED
        queue_offset = queue.max_offset if takes_a_slot else 0
        store_ms = self._next_store_ms()
        pack.pack_into(
            buffer,
            index,
            size,
            MAGIC,
            crc32(body) & 0x7FFFFFFF,
            queue.queue_id,
            flag,
            queue_offset,
            at,
            sys_flag,
            born_ms,
            born_host,
            store_ms,
            self.store_host,
            reconsume_times,
            0,
            len(body),
            body,
            len(topic),
            topic,
            len(properties),
            properties,
        )
        self.dispatch.position = PhysicalOffset(at + size)
        if takes_a_slot:
            queue.put(queue_offset, at, size, tag_code)
            if queue.waiting:
                self.grown.append(queue)
        if keys and self.index is not None:
            self.index.add(queue.topic, keys, at, store_ms)

    def replicated(self) -> None:
        """Dispatch what replication wrote to the log, and what could not be dispatched before."""
        with self._room_wanted("dispatch of replicated records"):
            self.grown += [queue for queue in self.dispatch.catch_up() if queue.waiting]
        self.store_ms = max(self.store_ms, self.dispatch.store_ms)

    def end_turn(self) -> None:
        """What is done once for all appends of a loop turn."""
        if self.index is not None and self.index.is_due:
            self.flush_index()

    def flush_index(self) -> None:
        """Write the keys that were noted since."""
        if self.index is not None:
            with self._room_wanted("the index"):
                self.index.flush()

    @contextmanager
    def _room_wanted(self, what: str) -> Iterator[None]:
        """What the drive has no room for now is tried again later; said once, not each time."""
        try:
            yield
        except OSError as error:
            if what not in self._held_up:
                log.error("%s is held up: %s", what, error)
            self._held_up.add(what)
        else:
            self._held_up.discard(what)

    def _delay_ms(self, level: int) -> int:
        """ms of a delay level; an unknown one counts as a second (store-and-ha.md 3.2)."""
        levels = self.config.delay_levels_ms
        if not levels or level < 1:
            return 1000
        return levels[min(level, len(levels)) - 1]

    # reading

    def fetch(self, topic: str, queue_id: int, offset: int, count_max: int, wanted: TagFilter) -> Fetched:
        """Records of a queue from `offset` on."""
        readable_to = self.log.flushed_to if self.config.reads_only_durable else self.log.end
        queue = self.known_queue(topic, queue_id)
        return fetch(self.log, queue, offset, count_max, wanted, self.config.limits, readable_to)

    def message_at(self, at: int) -> bytes | None:
        """The record at physical offset `at`, None where none stands."""
        data = self.log.read(PhysicalOffset(at), self.log.file_size) if at >= self.log.start else memoryview(b"")
        try:
            record = decode(data)
        except CorruptRecord:
            return None
        size = int.from_bytes(data[:4], "big")
        return bytes(data[:size]) if record.physical_offset == at else None

    def store_time(self, topic: str, queue_id: int, offset: int) -> int:
        """When the message at `offset` was stored, ms; -1 where there is none."""
        queue = self.known_queue(topic, queue_id)
        return self._store_time(queue, offset) if queue is not None else -1

    def _store_time(self, queue: ConsumeQueue, offset: int) -> int:
        entry = queue.entry(offset)
        record = self.log.record_bytes(entry[0], entry[1]) if entry is not None else None
        return decode(record).store_ms if record is not None else -1

    def offset_at_time(self, topic: str, queue_id: int, timestamp_ms: int) -> int:
        """The queue offset whose message was stored nearest to `timestamp_ms`; 0 for an unknown queue."""
        queue = self.known_queue(topic, queue_id)
        if queue is None:
            return 0
        return queue.offset_at_time(timestamp_ms, lambda offset: self._store_time(queue, offset))

    def is_in_memory(self, topic: str, queue_id: int, offset: int) -> bool:
        """Whether a message counts as being in memory; so does one that does not exist (protocol.md 2.2, code 14)."""
        queue = self.known_queue(topic, queue_id)
        entry = queue.entry(offset) if queue is not None else None
        return entry is None or self.log.end - entry[0] <= self.config.limits.memory_bytes

    def find_by_key(self, topic: str, key: str, count_max: int, begin_ms: int, end_ms: int) -> KeyHits:
        """The newest records stored in the time range whose key has the same hash as `key`, oldest first."""
        if self.index is None:
            return KeyHits([], 0, 0)
        self.flush_index()
        found = self.index.find(topic, key, begin_ms, end_ms, min(count_max, KEY_HITS_MAX))
        records = [record for at in sorted(found) if (record := self.message_at(at)) is not None]
        return KeyHits(records, self.index.end_ms, max(self.index.end_at, 0))


def _reserve(queues: Sequence[ConsumeQueue], each: int) -> list[int]:
    """See to it that the queues have room for so many entries each; the first queue offset of each."""
    firsts: list[int] = []
    taken: dict[ConsumeQueue, int] = {}
    for queue in queues:
        before = taken.get(queue, 0)
        taken[queue] = before + each
        if queue.max_offset + before + each > queue.room_to:
            queue.make_room(before + each)
        firsts.append(queue.max_offset + before)
    return firsts


def _spread(values: Sequence[int], each: int, step: int) -> Ints:
    """For so many messages per value: the value, and `step` more from each to the next."""
    found = np.array(values, np.int64)
    if each == 1:
        return found
    return (found[:, np.newaxis] + np.arange(0, each * step, step) if step else np.repeat(found, each)).reshape(-1)
