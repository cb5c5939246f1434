"""The append path: packs new records into the log and dispatches them to queues and index."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from itertools import accumulate
from struct import error as struct_error
from struct import iter_unpack
from typing import Final

import numpy as np

from roquet.common.java import LONG_MAX, LONG_MIN
from roquet.errors import DispatchHeldUp, DriveSlow, StoreBusy, UnreadableFile
from roquet.protocol.records.block import RecordBlock, moved_sizes, rewritten
from roquet.protocol.records.columns import Ints
from roquet.protocol.records.message import is_queued
from roquet.protocol.records.uniform import UniformBatch, record_rows
from roquet.storage.batch_records import BatchRecords
from roquet.storage.dispatch.dispatch import Dispatch
from roquet.storage.index.index import Index
from roquet.storage.log.commit_log import CommitLog
from roquet.storage.new_record import NO_PLACE, NewRecord
from roquet.storage.queues.consume_queue import ENTRY_SIZE, ConsumeQueue, entry_rows

_CLOCK_STEP_MAX_MS: Final = 366 * 86_400_000
"""A store time further ahead of the wall clock than this is not believed: its record is damaged. A
clock that was wrong for a while stays within it."""
_REPEATED_MS: Final = 1000
"""If the clock goes back by at most this, the last store time is used again, so that store times do
not decrease and searches by time stay exact. After a larger step back, store times go back with the
clock, as in Apache: if they kept the old time, delayed messages would be late by the size of the
step."""

_FEW_QUEUES: Final = 4
_CHECK_EACH_MS: Final = 1000
"""How often queue files are checked for truncation. A check takes 0.3 to 0.8 us: 4 to 7 % of a send
where each message goes to another queue, as in the load `sync128` with its 1,024 queues. So queue
files are checked each millisecond only while at most `_FEW_QUEUES` queues are written. With many
queues a shorter period would not help: a busy queue is written again before its next check."""


class Writer:
    """Appends new records to the log, their consume queues and the index.

    Every append first does what can fail: it makes room in the queues and in the log, packs the
    records, checks the tag codes of their entries, and dispatches what is not dispatched yet. Only
    then it moves the log's end. After that the dispatch position, the queues' ends and the
    collected keys follow, none of which can fail. So a record that is refused leaves no hole in the
    log, no entry and no key.

    Invariant: a record is written to the log, then to its queue, then its keys are collected for
    the index. Store times decrease only when the clock is set back by more than a second.

    :param store_host: address and port that new records name as theirs.
    :param now_ms: wall clock.
    :param busy_ms: when the appends between two `end_turn` have taken longer, the next one is
        refused; 0: never.
    :param watched: as `Store` has it.
    """

    def __init__(
        self,
        log: CommitLog,
        dispatch: Dispatch,
        index: Index | None,
        store_host: bytes,
        now_ms: Callable[[], int],
        busy_ms: int = 0,
        watched: Collection[ConsumeQueue] = (),
    ) -> None:
        self._log = log
        self._dispatch = dispatch
        self._index = index
        self._store_host = store_host
        self._now_ms = now_ms
        self._busy_ms = busy_ms
        self._checked_ms = 0
        """When the log's file was last checked (wall clock, ms)."""
        self._checked: set[ConsumeQueue] = set()
        """Queues whose files were checked and need no check before the next entries."""
        self._queues_checked_ms = 0
        """When `_checked` was last emptied (wall clock, ms)."""
        self._turn_ms = 0
        """When storing this turn's first record began (wall clock, ms), 0 before that."""
        self._began_ms = 0
        """When storing the present record began (wall clock, ms)."""
        self.store_ms = 0
        """The latest store time of any record, ms."""
        self.last_ms = 0
        """The store time of the last record, ms."""
        self._watched = watched
        self._grown: dict[ConsumeQueue, None] = {}
        """The watched queues that grew since the last `take_grown`."""
        self.stored = 0
        """Messages that were appended since the store was opened."""

    def follow(self, store_ms: int) -> None:
        """Continue after the store time of records that were not appended here.

        A store time that is too far ahead is ignored, since its record is damaged.
        """
        if self.store_ms < store_ms <= self._now_ms() + _CLOCK_STEP_MAX_MS:
            self.store_ms = self.last_ms = store_ms

    def append(
        self,
        record: NewRecord,
        keys: Sequence[bytes] = (),
        tag_code: int = 0,
        delay_ms: int | None = None,
    ) -> int:
        """Write one record to the log, its queue and the index. If it raises, nothing was written.

        The caller has checked the limits.

        :param keys: those in the record's properties; given, as the caller has parsed them.
        :param tag_code: of the tags in the record's properties.
        :param delay_ms: for a message of the schedule topic: the delay after which it is due. Its
            entry has the delivery time in place of the tag code.
        :returns: its physical offset.
        :raises ValueError: the record is larger than a file, or a value does not fit its field.
        :raises OSError: there is no room for it.
        :raises StoreBusy: the drive was too slow for earlier records of this turn, or earlier
            records still wait for their queue entries.
        """
        store_ms = self._next_store_ms()
        if delay_ms is not None:
            tag_code = store_ms + delay_ms
        queue = record.queue
        pack = record.layout()
        size = pack.size
        buffer, index, at = self._log.place(size)
        if at != self._dispatch.position:
            self._begin(at)
        queue_offset = queue.max_offset
        if queue_offset >= queue.room_to:
            self._make_room(queue, 1)
        has_entry = is_queued(record.sys_flag)
        try:
            if not LONG_MIN <= tag_code <= LONG_MAX:
                raise ValueError(f"tag code {tag_code}")
            record.pack_into(buffer, index, pack, queue_offset if has_entry else 0, at, store_ms)
        except (struct_error, ValueError) as error:
            buffer[index : index + size] = bytes(size)
            raise ValueError(NO_PLACE.format(error)) from error
        self._log.take(at + size)
        if has_entry:
            queue.put(queue_offset, at, size, tag_code, store_ms)
        self._account((queue,) if has_entry else (), 1, size)
        if keys and self._index is not None:
            self._index.add(queue.topic, keys, at, store_ms)
        return at

    def append_batch(self, queue: ConsumeQueue, records: BatchRecords) -> tuple[int, Ints]:
        """Write records with consecutive queue offsets to one file, all of them or none.

        See docs/storage/append.md#a-batch-is-stored-as-a-whole-or-not-at-all.

        :param records: packed for this queue, and not placed yet.
        :returns: the first record's queue offset, and the physical offset of each record.
        :raises ValueError: together they are larger than a file.
        :raises OSError, StoreBusy: as `append`.
        """
        store_ms, count = self._next_store_ms(), len(records)
        at = self._log.make_room(len(records.data))
        self._begin(at)
        (first,) = self._take_offsets((queue,), count)
        physical = records.place(first, at, store_ms)
        entries = entry_rows(physical, records.sizes, records.tag_codes).tobytes()
        self._log.write(memoryview(records.data))
        queue.put_many(entries, self._log.end, store_ms)
        self._account((queue,), count, len(records.data))
        if self._index is not None:
            for part in records.keys_by_part():
                for keys, starts in part:
                    self._index.add_many(queue.topic, keys, starts, store_ms, at)
                self._index.end_part()
        return first, physical

    def append_alike(
        self, messages: UniformBatch, queues: Sequence[ConsumeQueue], delay_ms: int | None = None
    ) -> tuple[list[int], Ints]:
        """Write messages of one topic that differ in few values, all of them or none.

        :param queues: the messages are split evenly among them, in order. A queue may be listed
            twice. All of them share one `Appended` count.
        :param delay_ms: as `append`.
        :returns: for each queue the first queue offset, and the physical offset of each message.
        :raises ValueError: as `append`; together they must fit into a file.
        :raises OSError, StoreBusy: as `append`.
        """
        store_ms = self._next_store_ms()
        count = len(messages)
        each = count // len(queues)
        template = NewRecord(
            queues[0],
            messages.body,
            messages.properties,
            messages.flag,
            messages.sys_flag,
            0,
            messages.born_host,
            self._store_host,
            messages.reconsume_times,
        )
        pack = template.layout()
        size = pack.size
        at = self._log.make_room(size * count)
        self._begin(at)
        firsts = self._take_offsets(queues, each)
        physical = np.arange(at, at + size * count, size)
        try:
            first_record = bytearray(size)
            template.pack_into(first_record, 0, pack, 0, 0, store_ms)
            numbers = (
                _spread([queue.queue_id for queue in queues], each, 0),
                _spread(firsts, each, 1),
            )
            records = record_rows(messages, first_record, *numbers, physical)
            codes = messages.tag_codes if delay_ms is None else store_ms + delay_ms
            entries = entry_rows(physical, size, codes).tobytes()
        except (struct_error, ValueError, OverflowError) as error:
            raise ValueError(NO_PLACE.format(error)) from error
        assert count == each * len(queues), f"{count} messages for {len(queues)} queues"
        self._log.write(records.data.cast("B"))
        size_each = each * size
        ends = range(at + size_each, self._log.end + 1, size_each)
        for (new,), end, queue in zip(
            iter_unpack(f"{each * ENTRY_SIZE}s", entries), ends, queues, strict=True
        ):
            queue.put_many(new, end, store_ms)
        self._account(queues, count, count * size)
        if self._index is not None:
            for keys in messages.keys:
                self._index.add_many(queues[0].topic, keys, physical, store_ms)
        return firsts, physical

    def append_records(self, records: Sequence[NewRecord]) -> list[int]:
        """Write the first records, at least one, that fit into one file; they may be of any queues.

        They are dispatched as a slave dispatches them: entries, keys and the delivery time of a
        delayed message are computed from the bytes of each record.

        :returns: the physical offset of each record that was written.
        :raises ValueError: as `append`, for any of them.
        :raises OSError, StoreBusy: as `append`.
        """
        store_ms = self._next_store_ms()
        packs = [record.layout() for record in records]
        ends = self._ends_of_fitting([pack.size for pack in packs])
        records = records[: len(ends)]
        at = self._log.make_room(ends[-1])
        self._begin(at)
        queues = [record.queue if is_queued(record.sys_flag) else None for record in records]
        offsets = self._take_offsets(queues)
        starts = [0, *ends[:-1]]
        columns = zip(records, packs, offsets, starts, strict=False)
        data = bytearray(ends[-1])
        try:
            for record, pack, offset, start in columns:
                record.pack_into(data, start, pack, offset, at + start, store_ms)
        except (struct_error, ValueError) as error:
            raise ValueError(NO_PLACE.format(error)) from error
        self._write_block(RecordBlock(at, bytes(data), starts, len(data)), queues)
        return [(at + start) for start in starts]

    def append_moved(self, block: RecordBlock, queues: Sequence[ConsumeQueue]) -> int:
        """Write copies of records of the log as records of other queues; as `append_records`.

        :param queues: the new queue of each record.
        :returns: how many of them, from the first on, were written.
        """
        store_ms = self._next_store_ms()
        topics = [queue.topic_bytes for queue in queues]
        ends = self._ends_of_fitting(moved_sizes(block, topics).tolist())
        count = len(ends)
        queues = queues[:count]
        at = self._log.make_room(ends[-1])
        self._begin(at)
        offsets = np.array(self._take_offsets(queues), np.int64)
        queue_ids = np.fromiter((queue.queue_id for queue in queues), np.int64, count)
        moved = rewritten(block.first(count), topics[:count], queue_ids, offsets, at, store_ms)
        self._write_block(moved, queues)
        return count

    def _ends_of_fitting(self, sizes: Sequence[int]) -> list[int]:
        """Ends of the records that fit together into the file in use, or else into the next file.

        :returns: the end of each, in bytes from the start of the first.
        """
        self._log.make_room(sizes[0])
        room = self._log.room
        return [end for end in accumulate(sizes) if end <= room]

    def _write_block(self, block: RecordBlock, queues: Sequence[ConsumeQueue | None]) -> None:
        """Write records for which there is room in the log and in their queues.

        :param queues: of each record; None if it is in no queue.
        """
        dispatch = self._dispatch.prepared(block)
        self._log.write(block.data)
        dispatch()
        assert self._dispatch.position == self._log.end, (
            "a record was written that is not dispatched"
        )
        for queue, size in zip(queues, block.sizes.tolist(), strict=True):
            self._account((queue,) if queue is not None else (), 1, size)

    def _account(self, queues: Sequence[ConsumeQueue], count: int, size: int) -> None:
        """Note that records were written to the log and their queues; this cannot fail.

        :param queues: all of one topic; empty if the records are in no queue.
        :param count: how many records they got together.
        :param size: bytes of these records.
        """
        self._dispatch.position = self._log.end
        self._turn_ms = self._turn_ms or self._began_ms
        self.stored += count
        if queues:
            appended = queues[0].appended
            appended.messages += count
            appended.size += size
            if self._watched:
                self.note_grown(queues)

    def note_grown(self, queues: Iterable[ConsumeQueue]) -> None:
        """Keep those of some queues that are watched for `take_grown`; all of them grew."""
        watched = self._watched
        grown = self._grown
        for queue in queues:
            if queue in watched:
                grown[queue] = None

    def take_grown(self) -> Collection[ConsumeQueue]:
        """The watched queues that grew since the last call, in the order in which they grew."""
        grown, self._grown = self._grown, {}
        return grown

    def end_turn(self) -> None:
        """End the turn whose appends count towards `busy_ms`."""
        self._turn_ms = 0

    def _check_files(self, now_ms: int) -> None:
        """Check that the log's file was not truncated.

        A store to a mapped page after a file's end would kill the process. Queue files are checked
        by `make_room`. Resetting `room_to` makes the next append to a queue call it. That is done
        for all queues in `_checked`, but where many are written only once per `_CHECK_EACH_MS`.

        :raises UnreadableFile: the file was truncated.
        """
        self._log.require_whole()
        if (
            len(self._checked) <= _FEW_QUEUES
            or not 0 <= now_ms - self._queues_checked_ms < _CHECK_EACH_MS
        ):
            self._queues_checked_ms = now_ms
            for queue in self._checked:
                queue.room_to = 0
            self._checked.clear()
        self._checked_ms = now_ms

    def _make_room(self, queue: ConsumeQueue, count: int) -> None:
        """Make room for `count` entries of a queue, in files that are whole.

        :raises OSError: there is no room, or a file is truncated; nothing was written.
        """
        queue.room_to = 0  # if `make_room` fails, the next append must check the file again
        try:
            queue.room_to = queue.make_room(count)
        except UnreadableFile:
            self._dispatch.lose(queue)
            raise
        self._checked.add(queue)

    def _take_offsets(self, queues: Sequence[ConsumeQueue | None], each: int = 1) -> list[int]:
        """Make room for `each` entries per listed queue; a queue may be listed twice.

        :param queues: None for a record that is in no queue.
        :returns: the queue offset of the first of them, 0 for a record that is in no queue.
        """
        ends: dict[ConsumeQueue, int] = {}
        offsets: list[int] = []
        for queue in queues:
            offset = 0
            if queue is not None:
                offset = ends.get(queue) or queue.max_offset
                ends[queue] = offset + each
            offsets.append(offset)
        for queue, end in ends.items():
            if end > queue.room_to:
                self._make_room(queue, end - queue.max_offset)
        return offsets

    def _next_store_ms(self) -> int:
        """The store time of the next record: now, or the last one if the clock went back a little.

        :raises DriveSlow: this turn's records have taken too long already.
        :raises DispatchHeldUp: earlier records still wait for their queue entries; the next record
            would get the offset of one of them.
        """
        if self._dispatch.is_held_up:
            raise DispatchHeldUp(
                "no message is accepted until the queue entries of earlier ones are written: "
                f"{self._dispatch.lag_reason}"
            )
        now_ms = self._began_ms = self._now_ms()
        if self._turn_ms and now_ms - self._turn_ms > self._busy_ms > 0:
            took_ms = now_ms - self._turn_ms
            raise DriveSlow(
                f"storing the messages before this one took {took_ms} ms; it was not stored"
            )
        if not 0 < self.last_ms - now_ms <= _REPEATED_MS:
            self.last_ms = now_ms
        self.store_ms = max(self.store_ms, self.last_ms)
        if now_ms != self._checked_ms:
            self._check_files(now_ms)
        return self.last_ms

    def _begin(self, at: int) -> None:
        """Dispatch all records before `at`, where new records will be written.

        The dispatch position then moves to the end of the new records, so that earlier ones would
        never be dispatched.

        :raises StoreBusy: they cannot be dispatched now.
        """
        dispatch = self._dispatch
        if at == dispatch.position or dispatch.skip_blank_to(at):
            return
        self.note_grown(dispatch.catch_up())
        if not dispatch.skip_blank_to(at):
            raise StoreBusy(
                "the message was not stored: the commit log is dispatched up to "
                f"{dispatch.position} only, not to {at}; this broker's log says why"
            )


def _spread(values: Sequence[int], each: int, step: int) -> Ints:
    """A column with `each` rows per value, which grow by `step` from one row to the next."""
    found = np.array(values, np.int64)
    if each == 1:
        return found
    return (
        found[:, np.newaxis] + np.arange(0, each * step, step) if step else np.repeat(found, each)
    ).reshape(-1)
