"""New records: encoded into the log, and at once into their queues and the index."""

from __future__ import annotations

import mmap
from collections.abc import Callable, Sequence
from itertools import accumulate
from struct import Struct, iter_unpack
from struct import error as struct_error
from typing import Final
from zlib import crc32

import numpy as np

from roquet.common.units import LONG_MAX, LONG_MIN, PhysicalOffset
from roquet.errors import Refused, UnreadableFile
from roquet.protocol.records import message as m
from roquet.protocol.records.block import RecordBlock
from roquet.protocol.records.columns import Ints
from roquet.protocol.records.record import MAGIC, NO_PLACE, UNTELLABLE, UNWRITTEN, layout
from roquet.protocol.records.rewrite import moved_sizes, rewritten
from roquet.protocol.records.uniform import UniformBatch, record_rows
from roquet.protocol.remoting.codes import ResponseCode
from roquet.storage.batch_records import BatchRecords
from roquet.storage.dispatch.dispatch import Dispatch
from roquet.storage.index.index import Index
from roquet.storage.log.commit_log import CommitLog
from roquet.storage.new_record import NewRecord
from roquet.storage.queues.consume_queue import ENTRY_SIZE, ConsumeQueue, entry_rows

_CLOCK_STEP_MAX_MS: Final = 366 * 86_400_000
"""A clock may have been wrong for a while; a record from further ahead is damaged."""
_REPEATED_MS: Final = 1000
"""While a clock is behind the last store time by no more, that is repeated, so that the ordinary correction of a clock
leaves searches by time exact. Behind a larger step back store times follow the clock, as Apache's do: else what is
delayed would be due too late by as much."""

_FEW: Final = 4
_LOOKED_EACH_MS: Final = 1000
"""A look at a queue's file takes 0.3 to 0.8 us: 4 to 7 % of a send where each message goes to another queue, as in the
load `sync128` with its 1,024 queues. So each millisecond looks again only while no more than a few are written. Where
many are, a shorter period would not help: a busy queue is written again before its next look."""


class Writer:
    """Keeps: a record is in the log, then in its queue, then noted in the index; store times go back only with a clock
    that is set back by more than a second.

    Every append does what can fail first: it makes room in the queues and in the log, packs the records with their
    queue entries' tag codes checked, and dispatches what is not yet. Only then does it move the log's end, and after
    that the dispatch position, the queues' ends and the index notes follow, none of which can fail. So a record that
    is refused, for whatever reason, leaves no hole in the log, no entry and no note.

    :param store_host: address and port that new records name as theirs.
    :param now_ms: wall clock.
    :param busy_ms: when the appends between two `end_turn` have taken longer, the next one is refused; 0: never.
    """

    def __init__(
        self,
        log: CommitLog,
        dispatch: Dispatch,
        index: Index | None,
        store_host: bytes,
        now_ms: Callable[[], int],
        busy_ms: int = 0,
    ) -> None:
        self._log = log
        self._dispatch = dispatch
        self._index = index
        self._store_host = store_host
        self._now_ms = now_ms
        self._busy_ms = busy_ms
        self._look_ms = 0
        """When the log's file was looked at last, by the wall clock."""
        self._looked: set[ConsumeQueue] = set()
        """Queues that may have room without a look at their files."""
        self._queues_look_ms = 0
        """Since when that is so, by the wall clock."""
        self._turn_ms = 0
        """When storing this turn's first record began, 0 before that."""
        self._began_ms = 0
        """When storing the present record began."""
        self.store_ms = 0
        """The latest store time of any record, ms."""
        self.last_ms = 0
        """The store time of the last one."""
        self.grown: list[ConsumeQueue] = []
        """Queues with held pulls that grew since somebody last emptied this list."""
        self.stored = 0
        """Messages that were appended since the store was opened."""

    def follow(self, store_ms: int) -> None:
        """Records of another writer were stored until then. A damaged time is not followed."""
        if self.store_ms < store_ms <= self._now_ms() + _CLOCK_STEP_MAX_MS:
            self.store_ms = self.last_ms = store_ms

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
        delay_ms: int | None = None,
    ) -> PhysicalOffset:
        """Write one record to the log, its queue and the index; its physical offset.

        `sys_flag` has the host bits that fit `born_host` and the store's host. The caller checked the limits.

        :param delay_ms: of a message for the schedule topic, whose entry says when it is due instead of its tag.
        :raises ValueError: the record is larger than a file, or a value does not fit its field; nothing was written.
        :raises OSError: there is no room for it; nothing was written.
        :raises Refused: the drive was too slow for the records before it; nothing was written.
        """
        store_ms = self._next_store_ms()
        if delay_ms is not None:
            tag_code = store_ms + delay_ms
        pack = layout(sys_flag, len(body), len(queue.topic_bytes), len(properties))
        buffer, index, at = self._log.place(pack.size)
        takes_a_slot = not sys_flag & m.TRANSACTION_PREPARED
        self._begin(at)
        if queue.max_offset >= queue.room_to:
            self._make_room(queue, 1)
        self._pack(
            pack, buffer, index, at, queue, queue.max_offset if takes_a_slot else 0, body, properties, tag_code, flag,
            sys_flag, born_ms, born_host, store_ms, reconsume_times,
        )  # fmt: skip
        self._log.take(PhysicalOffset(at + pack.size))
        self._dispatch_new(
            queue, at, pack.size, keys, tag_code, store_ms, takes_a_slot=takes_a_slot
        )
        return at

    def append_batch(self, queue: ConsumeQueue, records: BatchRecords) -> tuple[int, Ints]:
        """Write records with consecutive queue offsets, all of them into one file or none.

        See docs/storage/append.md#a-batch-is-stored-as-a-whole-or-not-at-all.

        :param records: packed for this queue, and not placed yet.
        :return: the first one's queue offset, and the physical offset of each.
        :raises ValueError: together they are larger than a file. OSError, Refused: as `append`.
        """
        store_ms, count = self._next_store_ms(), len(records)
        at = self._log.make_room(len(records.data))
        self._begin(at)
        (first,) = self._reserve((queue,), count)
        physical = records.place(first, at, store_ms)
        entries = entry_rows(physical, records.sizes, records.tag_codes).tobytes()
        self._log.write(memoryview(records.data))
        self._dispatch.position = self._log.end
        self._turn_ms = self._turn_ms or self._began_ms
        self.stored += count
        queue.put_many(entries, self._log.end, store_ms)
        queue.appended.add(count, len(records.data))
        if queue.waiting:
            self.grown.append(queue)
        if self._index is not None:
            for part in records.keys_by_part():
                for keys, starts in part:
                    self._index.add_many(queue.topic, keys, starts, store_ms, at)
                self._index.end_part()
        return first, physical

    def append_alike(
        self, messages: UniformBatch, queues: Sequence[ConsumeQueue], delay_ms: int | None = None
    ) -> tuple[list[int], Ints]:
        """What `append` and `append_batch` do, for messages of one topic that are alike.

        :param queues: each gets as many of the messages, one queue after the other; one may be there twice. They
            share what counts appended messages.
        :param delay_ms: as `append`.
        :return: for each queue the first queue offset, and the physical offset of each message.
        :raises ValueError: as `append`, where all together count as one. OSError, Refused: as `append`.
        """
        store_ms = self._next_store_ms()
        count, each, topic = len(messages), len(messages) // len(queues), queues[0].topic_bytes
        pack = layout(messages.sys_flag, len(messages.body), len(topic), len(messages.properties))
        size = pack.size
        at = self._log.make_room(size * count)
        self._begin(at)
        firsts = self._reserve(queues, each)
        physical = np.arange(at, at + size * count, size)
        try:
            if messages.properties.endswith(UNWRITTEN):
                raise ValueError(UNTELLABLE)
            first_record = pack.pack(
                *(size, MAGIC, 0, 0, messages.flag, 0, 0, messages.sys_flag, 0, messages.born_host),
                *(
                    store_ms,
                    self._store_host,
                    messages.reconsume_times,
                    0,
                    len(messages.body),
                    messages.body,
                ),
                *(len(topic), topic, len(messages.properties), messages.properties),
            )
            numbers = (
                _spread([queue.queue_id for queue in queues], each, 0),
                _spread(firsts, each, 1),
            )
            records = record_rows(messages, first_record, len(topic), *numbers, physical)
            codes = messages.tag_codes if delay_ms is None else store_ms + delay_ms
            entries = entry_rows(physical, size, codes).tobytes()
        except (struct_error, ValueError, OverflowError) as error:
            raise ValueError(NO_PLACE.format(error)) from error
        assert count == each * len(queues), f"{count} messages for {len(queues)} queues"
        self._log.write(records.data.cast("B"))
        self._dispatch.position = self._log.end
        self._turn_ms = self._turn_ms or self._began_ms
        self.stored += count
        size_each = each * size
        ends = range(at + size_each, self._log.end + 1, size_each)
        for (new,), end, queue in zip(
            iter_unpack(f"{each * ENTRY_SIZE}s", entries), ends, queues, strict=True
        ):
            queue.put_many(new, end, store_ms)
            if queue.waiting:
                self.grown.append(queue)
        queues[0].appended.add(count, count * size)
        if self._index is not None:
            for keys in messages.keys:
                self._index.add_many(queues[0].topic, keys, physical, store_ms)
        return firsts, physical

    def append_records(self, records: Sequence[NewRecord]) -> list[PhysicalOffset]:
        """Write records of any queues: the first ones that fit into one file together, one at least; where they stand.

        They are dispatched as a slave dispatches them: entries and keys follow from the bytes of each, and so does
        the time when a delayed message is due.

        :raises ValueError: as `append`, of any of them. OSError, Refused: as `append`.
        """
        store_ms = self._next_store_ms()
        packs = [record.layout for record in records]
        ends = self._ends_of_fitting([pack.size for pack in packs])
        records = records[: len(ends)]
        at = self._log.make_room(ends[-1])
        self._begin(at)
        offsets = self._take_slots(
            [record.queue if record.takes_a_slot else None for record in records]
        )
        starts = [0, *ends[:-1]]
        columns = zip(records, packs, offsets, starts, strict=False)
        try:
            data = b"".join(
                record.pack(pack, offset, at + start, store_ms)
                for record, pack, offset, start in columns
            )
        except (struct_error, ValueError) as error:
            raise ValueError(NO_PLACE.format(error)) from error
        self._write_block(RecordBlock(at, data, starts, len(data)))
        self._count([record.queue if record.takes_a_slot else None for record in records], ends)
        return [PhysicalOffset(at + start) for start in starts]

    def append_moved(self, block: RecordBlock, queues: Sequence[ConsumeQueue]) -> int:
        """Write records that stand elsewhere in the log once more, as ones of these queues; as `append_records`.

        :return: how many of them, from the first on, were written.
        """
        store_ms = self._next_store_ms()
        topics = [queue.topic_bytes for queue in queues]
        ends = self._ends_of_fitting(moved_sizes(block, topics).tolist())
        count = len(ends)
        queues = queues[:count]
        at = self._log.make_room(ends[-1])
        self._begin(at)
        offsets = np.array(self._take_slots(queues), np.int64)
        queue_ids = np.fromiter((queue.queue_id for queue in queues), np.int64, count)
        self._write_block(
            rewritten(block.first(count), topics[:count], queue_ids, offsets, at, store_ms)
        )
        self._count(queues, ends)
        return count

    def _ends_of_fitting(self, sizes: Sequence[int]) -> list[int]:
        """Where each record ends, of those that fit end to end into the log's file in use, or into the next."""
        self._log.make_room(sizes[0])
        room = self._log.room
        return [end for end in accumulate(sizes) if end <= room]

    def _write_block(self, block: RecordBlock) -> None:
        """Write records for which there is room in the log and in their queues."""
        self._begin(block.at)
        dispatch = self._dispatch.prepared(block)
        self._log.write(block.data)
        self._turn_ms = self._turn_ms or self._began_ms
        self.grown += [queue for queue in dispatch() if queue.waiting]
        assert self._dispatch.position == self._log.end, (
            "a record was written that is not dispatched"
        )

    def _count(self, queues: Sequence[ConsumeQueue | None], ends: Sequence[int]) -> None:
        """A record of each queue was written, and where it ends; None: of no queue."""
        self.stored += len(ends)
        for queue, start, end in zip(queues, (0, *ends[:-1]), ends, strict=True):
            if queue is not None:
                queue.appended.add(1, end - start)

    def end_turn(self) -> None:
        """What follows is not held up by what was appended before."""
        self._turn_ms = 0

    def _look(self, now_ms: int) -> None:
        """Look whether somebody has cut the log's file: to write where one has ended would end the process. The queues'
        files are looked at by `make_room`; each anew from now on, or where many are written, those not of late.

        :raises UnreadableFile: somebody has.
        """
        self._log.require_whole()
        if len(self._looked) <= _FEW or not 0 <= now_ms - self._queues_look_ms < _LOOKED_EACH_MS:
            self._queues_look_ms = now_ms
            for queue in self._looked:
                queue.room_to = 0
            self._looked.clear()
        self._look_ms = now_ms

    def _make_room(self, queue: ConsumeQueue, count: int) -> None:
        """See to it that a queue has room for so many entries in a file that is whole.

        :raises OSError: it has not; nothing was written.
        """
        queue.room_to = 0  # whatever fails, nobody writes there before somebody has looked again
        try:
            queue.room_to = queue.make_room(count)
        except UnreadableFile:
            self._dispatch.lose(queue)
            raise
        self._looked.add(queue)

    def _reserve(self, queues: Sequence[ConsumeQueue], each: int) -> list[int]:
        """See to it that the queues have room for so many entries each; the first queue offset of each."""
        firsts = [queue.max_offset for queue in queues]
        if len(set(queues)) < len(queues):
            taken = dict.fromkeys(queues, 0)
            for number, queue in enumerate(queues):
                firsts[number] += taken[queue]
                taken[queue] += each
        for queue, first in zip(queues, firsts, strict=True):
            if first + each > queue.room_to:
                self._make_room(queue, first + each - queue.max_offset)
        return firsts

    def _take_slots(self, queues: Sequence[ConsumeQueue | None]) -> list[int]:
        """See to it that the queues have room for a record each; the queue offset of each, 0 where it is in none."""
        nexts: dict[ConsumeQueue, int] = {}
        offsets: list[int] = []
        for queue in queues:
            offset = 0
            if queue is not None:
                offset = nexts.get(queue, -1)
                if offset < 0:
                    offset = queue.max_offset
                nexts[queue] = offset + 1
            offsets.append(offset)
        for queue, end in nexts.items():
            if end > queue.room_to:
                self._make_room(queue, end - queue.max_offset)
        return offsets

    def _next_store_ms(self) -> int:
        """Now; or when the last record was stored, while the clock is a little behind that.

        :raises Refused: this turn's records have taken too long already (`osPageCacheBusyTimeOutMills`), or earlier
            ones still wait for their queue entries, and their offsets would be given away a second time.
        """
        if self._dispatch.is_held_up:
            remark = (
                "no message is taken before the queue entries of earlier ones are written: "
                f"{self._dispatch.why_behind}"
            )
            raise Refused(ResponseCode.SERVICE_NOT_AVAILABLE, remark)
        now_ms = self._began_ms = self._now_ms()
        if self._turn_ms and now_ms - self._turn_ms > self._busy_ms > 0:
            remark = f"storing the messages before this one took {now_ms - self._turn_ms} ms; it was not stored"
            raise Refused(ResponseCode.SYSTEM_ERROR, f"[PC_SYNCHRONIZED]broker busy: {remark}")
        if not 0 < self.last_ms - now_ms <= _REPEATED_MS:
            self.last_ms = now_ms
        self.store_ms = max(self.store_ms, self.last_ms)
        if now_ms != self._look_ms:
            self._look(now_ms)
        return self.last_ms

    def _begin(self, at: int) -> None:
        """See to it that all records before `at`, where new ones are going to stand, are dispatched: those that are not
        would never be, for the dispatch position moves behind the new ones.

        :raises Refused: they cannot be now.
        """
        dispatch = self._dispatch
        if at == dispatch.position or dispatch.skip_blank_to(at):
            return
        self.grown += [queue for queue in dispatch.catch_up() if queue.waiting]
        if not dispatch.skip_blank_to(at):
            remark = f"the log is dispatched up to {dispatch.position} only, not to {at}: this broker's log says why"
            raise Refused(ResponseCode.SYSTEM_ERROR, f"the message was not stored: {remark}")

    def _pack(
        self,
        pack: Struct,
        buffer: mmap.mmap | bytearray,
        index: int,
        at: PhysicalOffset,
        queue: ConsumeQueue,
        queue_offset: int,
        body: bytes,
        properties: bytes,
        tag_code: int,
        flag: int,
        sys_flag: int,
        born_ms: int,
        born_host: bytes,
        store_ms: int,
        reconsume_times: int,
    ) -> None:
        """Fill a place in the log.

        :raises ValueError: a value does not fit; the place is zeros again.
        """
        topic = queue.topic_bytes
        try:
            if properties.endswith(UNWRITTEN):
                raise ValueError(UNTELLABLE)
            if not LONG_MIN <= tag_code <= LONG_MAX:
                raise ValueError(f"tag code {tag_code}")
            pack.pack_into(
                buffer,
                index,
                pack.size,
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
                self._store_host,
                reconsume_times,
                0,
                len(body),
                body,
                len(topic),
                topic,
                len(properties),
                properties,
            )
        except (struct_error, ValueError) as error:
            buffer[index : index + pack.size] = bytes(pack.size)
            raise ValueError(NO_PLACE.format(error)) from error

    def _dispatch_new(
        self,
        queue: ConsumeQueue,
        at: PhysicalOffset,
        size: int,
        keys: Sequence[bytes],
        tag_code: int,
        store_ms: int,
        *,
        takes_a_slot: bool,
    ) -> None:
        """A record is in the log: dispatch it, which cannot fail."""
        self._dispatch.position = PhysicalOffset(at + size)
        self._turn_ms = self._turn_ms or self._began_ms
        self.stored += 1
        if takes_a_slot:
            queue.put(queue.max_offset, at, size, tag_code, store_ms)
            queue.appended.add(1, size)
            if queue.waiting:
                self.grown.append(queue)
        if keys and self._index is not None:
            self._index.add(queue.topic, keys, at, store_ms)


def _spread(values: Sequence[int], each: int, step: int) -> Ints:
    """For so many messages per value: the value, and `step` more from each to the next."""
    found = np.array(values, np.int64)
    if each == 1:
        return found
    return (
        found[:, np.newaxis] + np.arange(0, each * step, step) if step else np.repeat(found, each)
    ).reshape(-1)
