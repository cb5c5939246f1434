"""Reput: walks new log bytes once, feeds consume queues and index, says which queues grew.

See docs/storage/dispatch.md.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Collection
from contextlib import suppress
from functools import partial
from itertools import takewhile
from typing import Final, Protocol

from roquet.common.steps import Steps, in_parts
from roquet.common.units import PhysicalOffset
from roquet.errors import NO_ROOM, CorruptRecord, UnreadableFile
from roquet.protocol.java_numbers import int_or
from roquet.protocol.records import message as m
from roquet.protocol.records.block import RecordBlock
from roquet.storage.dispatch.columns import QueuePart, Rows, rows_of
from roquet.storage.index.index import Index
from roquet.storage.log.commit_log import CommitLog
from roquet.storage.log.dispatch_request import DispatchRequest, read_dispatch_request
from roquet.storage.log.holes import Hole, HoleScanner, pieces, records
from roquet.storage.queues.consume_queue import ENTRY, ENTRY_SIZE, ConsumeQueue

log = logging.getLogger(__name__)

_ROWS_FROM: Final = 8
"""Records in a block from which on rows are cheaper than one by one."""

_TOLD_ONE_BY_ONE: Final = 10
_TOLD_EACH: Final = 10_000

DelayMs = Callable[[int], int]


class QueuesOfRecords(Protocol):
    """Where records belong."""

    def of_record(self, topic: str, queue_id: int) -> ConsumeQueue | None:
        """The queue that a record names; None: there cannot be such a queue."""


class Dispatch:
    """Keeps: every whole record before `position` is in its consume queue and noted in the index, which is flushed
    by whoever needs it to have them all; `holes` and `hole_bytes` count the damaged places that were stepped over since
    the store was opened.

    :param delay_ms: delay level -> ms, for the delivery times in the schedule topic's queues.
    """

    def __init__(
        self,
        commit_log: CommitLog,
        queues: QueuesOfRecords,
        index: Index | None,
        delay_ms: DelayMs,
        hole_ends: HoleScanner | None = None,
    ) -> None:
        self._log = commit_log
        self._queues = queues
        self._index = index
        self._delay_ms = delay_ms
        self.position = PhysicalOffset(0)
        self.store_ms = 0
        """When the newest record that was dispatched here was stored, ms."""
        self.holes = 0
        self.hole_bytes = 0
        self.is_held_up = False
        """Whether queue entries could not be written: until these are written no record may be appended, for it
        would take the queue offset of one that waits for its entry."""
        self._held_up_by: Exception | None = None
        """What kept the last ones from being written."""
        self.gaps: set[ConsumeQueue] = set()
        """Queues in which offsets were left out that no record had."""
        self.damaged: Collection[int] = ()
        """Where records stand whose bodies recovery found damaged; their queues get blanks for them."""
        self.recovers = False
        """Whether the log is whole as it is: no record waits for bytes that a master sends later."""
        self.verifies = False
        """Whether the records that come next were not verified by anybody in this process."""
        self.taken: Collection[tuple[ConsumeQueue, int, PhysicalOffset]] = ()
        """Queue offsets of damaged records, and their places: they are given to no other message."""
        self.stopped: CorruptRecord | None = None
        """Where dispatch cannot go on and why, None while it can: nothing valid is known behind a damaged place."""
        self._stopped_with_end = -1
        self._hole_ends = hole_ends if hole_ends is not None else HoleScanner(commit_log)
        self.lose: Callable[[ConsumeQueue], bool] = lambda queue: False
        """Told which queue's files cannot be written; says whether it is made anew, of all that is dispatched then: it
        gets its entries later, and holds up no other."""
        self._told: Counter[str] = Counter()

    @property
    def behind(self) -> int:
        """Bytes of the log that are not dispatched yet."""
        return max(0, self._log.end - self.position)

    @property
    def why_behind(self) -> str:
        """Why dispatch cannot reach the log's end, and what to do; else empty, also while half a record is the last."""
        if self.stopped is not None:
            return (
                f"dispatch has stopped {self.behind} bytes before the log's end, the record at physical offset "
                f"{self.stopped.at} is damaged ({self.stopped.reason}) and nothing valid follows: wipe this broker's "
                "store, it is copied anew"
            )
        if self.is_held_up:
            by = self._held_up_by
            what, advice = f"{by}", "make room on the drive, or see to the file"
            if not isinstance(by, OSError):
                what, advice = f"{by!r}", "start the broker anew: that reads the log again"
            return f"dispatch is {self.behind} bytes behind, queue entries cannot be written: {what}; {advice}"
        return ""

    @property
    def lacks_room(self) -> bool:
        """Whether queue entries wait for room on the drive."""
        by = self._held_up_by
        return self.is_held_up and isinstance(by, OSError) and by.errno in NO_ROOM

    def pass_over(self, end: PhysicalOffset) -> Steps[bool]:
        """Go on at `end`: the records before it are going to be deleted. Nobody gets them, nor, in this life of the
        broker, their queue offsets. False: they stay, for some of them found room meanwhile.
        """
        begin = self.position
        lasts: dict[ConsumeQueue, tuple[int, PhysicalOffset]] = {}
        for part in in_parts(takewhile(lambda record: record[0] < end, records(self._log, begin))):
            for at, data in part:
                request = read_dispatch_request(at, data)
                queue = (
                    self._queue(at, request.topic, request.queue_id) if request.is_queued else None
                )
                if queue is not None:
                    lasts[queue] = request.queue_offset, at
            yield
        if self.position != begin:
            return False
        self._log_event(
            "records go before they were given to anybody, there is no room for their queue entries: from=%d to=%d",
            self.position, end,
        )  # fmt: skip
        self.taken = [*self.taken, *((queue, *last) for queue, last in lasts.items())]
        self.position = max(self.position, end)
        return True

    def skip_blank_to(self, at: int) -> bool:
        """Move on over the blank that closed a file, if nothing else is in front of `at`; tells whether every record
        before `at` is dispatched."""
        file_end = self._log.next_file(self.position)
        if self.position < at == file_end and self._log.is_closed_at(self.position):
            self.position = file_end
        return self.position == at

    def catch_up(self) -> list[ConsumeQueue]:
        """Dispatch what the log holds beyond `position`; the queues that grew. Damaged records are stepped over as
        soon as a valid one follows.

        :raises OSError: queue entries cannot be written, as a rule for want of room; what is dispatched counts.
        """
        grown: list[ConsumeQueue] = []
        self.position = max(self.position, self._log.start)
        if self.stopped is not None and self._stopped_with_end == self._log.end:
            return grown
        try:
            self._hole_ends.is_whole = self.recovers
            walk = pieces(
                self._log, self.position, self._hole_ends, verify=self.verifies, known=self.damaged
            )
            for piece in walk:
                if isinstance(piece, Hole):
                    grown += self.step_over(piece)
                else:
                    grown += self.dispatch_block(piece)
                    if self._index is not None and self._index.is_due:
                        self._flush_index(self._index)
            for queue, offset, at in self.taken:
                self._keep(queue, offset, at)
            self.stopped, self.damaged, self.verifies, self.taken, self.recovers = (
                None,
                (),
                False,
                (),
                False,
            )
        except CorruptRecord as error:
            self._stop(error)
        except (
            Exception
        ) as error:  # whatever it was: a record without its entry would lose its offset to the next
            self.is_held_up, self._held_up_by = True, error
            raise
        self.is_held_up = False
        return grown

    def _flush_index(self, index: Index) -> None:
        """The index may wait for room on the drive: it keeps what was noted, and queues do not wait for it. Whoever
        flushes it next tells of that.
        """
        with suppress(OSError):
            index.flush()

    def _stop(self, error: CorruptRecord) -> None:
        """Told once for each place: dispatch is tried again for as long as the broker runs."""
        if self.stopped is None or self.stopped.at != error.at:
            log.error(
                "dispatch stopped: damaged record and nothing valid behind it yet physical_offset=%d log_end=%d "
                "reason=%r; if this stays, compare the log with another broker's (roquet store check)",
                error.at, self._log.end, error.reason,
            )  # fmt: skip
        self.stopped = error
        self._stopped_with_end = self._log.end if self._hole_ends.is_done else -1

    def step_over(self, hole: Hole) -> list[ConsumeQueue]:
        """Go on behind a hole; the queues that grew. Where its record's queue and offset are known, no other message
        gets that offset: it is in the copies of this log, too, and consumers may be past it."""
        queue = self._queue_of_damaged(hole)
        if queue is not None and hole.request is not None:
            self._keep(queue, hole.request.queue_offset, hole.start)
        self.holes += 1
        self.hole_bytes += hole.size
        self.position = max(self.position, hole.end)
        self._log_event(
            "damaged record stepped over physical_offset=%d next=%d bytes=%d reason=%r; consumers do not get it: "
            "restore it from another broker's log or a backup (roquet store check)",
            hole.start, hole.end, hole.size, hole.reason,
        )  # fmt: skip
        return [] if queue is None else [queue]

    def _keep(self, queue: ConsumeQueue, offset: int, at: PhysicalOffset) -> None:
        """Let a queue have a blank for the damaged record at `at`, unless it has something at that offset."""
        if offset >= queue.max_offset and at >= queue.log_end and queue.can_go_on_at(offset):
            try:
                queue.make_room(1, offset)
                queue.skip_to(offset)
                queue.put_blank(at)
            except UnreadableFile:
                if not self.lose(queue):
                    raise

    def _queue_of_damaged(self, hole: Hole) -> ConsumeQueue | None:
        """The queue that gets a blank for a damaged record; None where that is not known, or it has its entry."""
        request = hole.request
        if request is None or not request.is_queued:
            return None
        queue = self._queue(hole.start, request.topic, request.queue_id)
        if queue is None or hole.end <= queue.log_end:
            return None
        return queue

    def _log_event(self, text: str, *values: object) -> None:
        """Log an event: the first ones of its kind, then each ten-thousandth."""
        self._told[text] += 1
        count = self._told[text]
        if count <= _TOLD_ONE_BY_ONE:
            log.error(text, *values)
        elif count == _TOLD_ONE_BY_ONE + 1 or count % _TOLD_EACH == 0:
            log.error(text + " (event %d of its kind, most are not logged)", *values, count)

    def dispatch_block(self, block: RecordBlock) -> list[ConsumeQueue]:
        """Dispatch the records of a block, as rows where that is possible and pays; the queues that grew."""
        rows = self._rows(block)
        if rows is None:
            records = block.records()
            return [
                queue
                for at, data in records
                if (queue := self._put_arrival(read_dispatch_request(at, data))) is not None
            ]
        return self.dispatch_rows(block, rows)

    def prepared(self, block: RecordBlock) -> Callable[[], list[ConsumeQueue]]:
        """What does the same for a block that is not in the log yet: all of it that can fail has been done by then.

        There must be room in its queues.
        """
        rows = self._rows(block)
        if rows is not None:
            return partial(self.dispatch_rows, block, rows)
        requests = [read_dispatch_request(at, data) for at, data in block.records()]
        return lambda: [
            queue for request in requests if (queue := self._put_arrival(request)) is not None
        ]

    def _rows(self, block: RecordBlock) -> Rows | None:
        is_new = self._index is None or block.at > self._index.end_at
        return rows_of(block) if is_new and len(block) >= _ROWS_FROM else None

    def dispatch_rows(self, block: RecordBlock, rows: Rows) -> list[ConsumeQueue]:
        """Dispatch a block's records; the queues that grew."""
        for level, numbers in rows.delayed:
            rows.tag_codes[numbers] = rows.store_ms[numbers] + self._level_ms(level)
        grown = [
            queue for part in rows.by_queue(block) if (queue := self._put_part(part)) is not None
        ]
        if self._index is not None:
            for topic, keys, numbers in rows.keys:
                self._index.add_many(topic, keys, block.physical[numbers], rows.store_ms[numbers])
        self.store_ms = max(self.store_ms, int(rows.store_ms.max()))
        self.position = PhysicalOffset(block.at + int(block.ends[-1]))
        return grown

    def _put_part(self, part: QueuePart) -> ConsumeQueue | None:
        """Write a queue's entries; the queue, None when it had them all."""
        queue = self._queue(part.at, part.topic, part.queue_id)
        if queue is None:
            return None
        if part.is_unbroken and part.offset == queue.max_offset and part.at >= queue.log_end:
            try:
                queue.make_room(len(part.entries) // ENTRY_SIZE)
                queue.put_many(part.entries, part.log_end, part.store_ms)
            except UnreadableFile:
                if not self.lose(queue):
                    raise
            return queue
        columns = part.offsets.tolist(), ENTRY.iter_unpack(part.entries), part.store_ms.tolist()
        written = [
            self._put_entry(queue, offset, at, size, tag_code, store_ms)
            for offset, (at, size, tag_code), store_ms in zip(*columns, strict=True)
        ]
        return queue if any(written) else None

    def _put_arrival(self, request: DispatchRequest) -> ConsumeQueue | None:
        queue = self.put(request)
        self.store_ms = max(self.store_ms, request.store_ms)
        self.position = PhysicalOffset(request.physical + request.size)
        return queue

    def put(self, request: DispatchRequest) -> ConsumeQueue | None:
        """Dispatch one record; the queue that grew, None when it takes no slot or was there already."""
        at, queue = request.physical, None
        if request.is_queued:
            queue, code = self._queue(at, request.topic, request.queue_id), self._tag_code(request)
            entry = at, request.size, code, request.store_ms
            if queue is not None and not self._put_entry(queue, request.queue_offset, *entry):
                queue = None
        if self._index is not None and at >= self._index.end_at:
            self._index.add(request.topic, request.keys, at, request.store_ms)
        return queue

    def _queue(self, at: int, topic: str, queue_id: int) -> ConsumeQueue | None:
        """The queue that the record at `at` names; None where there cannot be one, or where it is made anew."""
        queue = self._queues.of_record(topic, queue_id)
        if queue is not None and queue.is_lost:
            return None
        if queue is None:
            self._log_event(
                "the record at physical offset %d is in no queue: it names topic %r, queue %d",
                at,
                topic,
                queue_id,
            )
        return queue

    def _put_entry(
        self,
        queue: ConsumeQueue,
        offset: int,
        physical: int,
        size: int,
        tag_code: int,
        store_ms: int,
    ) -> bool:
        """Write an entry, unless the queue has it already."""
        if physical + size <= queue.log_end:
            return False
        if not queue.can_go_on_at(offset) and self._begins_anew(queue, offset):
            queue.delete()
        if not queue.can_go_on_at(offset):
            text = "the record at physical offset %d is in no queue: it says offset %d, queue %s:%d goes on at %d"
            self._log_event(text, physical, offset, queue.topic, queue.queue_id, queue.max_offset)
            return False
        if offset > queue.max_offset > 0:
            self.gaps.add(queue)
        try:
            queue.make_room(1, offset)
            queue.skip_to(offset)
            queue.put(offset, physical, size, tag_code, store_ms)
        except UnreadableFile:
            if not self.lose(queue):
                raise
        return True

    def _begins_anew(self, queue: ConsumeQueue, offset: int) -> bool:
        """Whether a queue that has entries begins with this offset all the same.

        At offset 0 it does: a master gives it again only where the topic was deleted and made again, of which the log
        says nothing to its slaves. Else after a crash that took the entries between, where retention had deleted the
        records of those that are left: nothing in this queue can be read any more.
        """
        return offset == 0 or (queue.max_offset < offset and queue.log_end <= self._log.start)

    def _tag_code(self, request: DispatchRequest) -> int:
        level = request.delay_level
        if level is not None:
            return request.store_ms + self._level_ms(level)
        return m.tag_code(request.properties.get(m.TAGS))

    def _level_ms(self, level: str) -> int:
        return self._delay_ms(int_or(level, 0))
