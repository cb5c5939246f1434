"""Dispatch: reads new records of the log once and writes their entries to queues and index.

In Apache's code it is called reput.

See docs/storage/dispatch.md.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Collection
from contextlib import suppress
from functools import partial
from itertools import takewhile
from typing import Final

from roquet.common.java import int_or
from roquet.common.steps import Steps, in_parts
from roquet.errors import NO_ROOM, CorruptRecord, UnreadableFile
from roquet.protocol.records import message as m
from roquet.protocol.records.block import RecordBlock
from roquet.storage.dispatch.columns import QueuePart, Rows, read_rows
from roquet.storage.index.index import Index
from roquet.storage.log.commit_log import CommitLog
from roquet.storage.log.dispatch_request import DispatchRequest, read_dispatch_request
from roquet.storage.log.holes import Hole, HoleScanner, pieces, records
from roquet.storage.queues.consume_queue import ENTRY, ENTRY_SIZE, ConsumeQueue
from roquet.storage.queues.queues import Queues

log = logging.getLogger(__name__)

_ROWS_FROM: Final = 8
"""Smaller blocks are dispatched record by record: a numpy call costs as much as ten lines of Python
(decision 0007)."""

_LOGGED_ONE_BY_ONE: Final = 10
_LOGGED_EACH: Final = 10_000
"""Damage may affect millions of records: of each event the first ten are logged, then each so
many."""

DelayMs = Callable[[int], int]


class Dispatch:
    """Dispatches the records of one log to their consume queues and the index.

    `holes` and `hole_bytes` count the holes that were stepped over since the store was opened.

    Invariant: every whole record before `position` has its queue entry, and its keys are collected
    for the index. Callers that need all keys in the index flush it.

    :param delay_ms: the delay (ms) of a delay level, for the delivery times in the schedule topic's
        queues.
    :param lose: called with a queue whose files are damaged; returns whether the queue will be
        rebuilt. A queue that is rebuilt gets its entries from the log later, and does not hold up
        dispatch.
    """

    def __init__(
        self,
        commit_log: CommitLog,
        queues: Queues,
        index: Index | None,
        delay_ms: DelayMs,
        lose: Callable[[ConsumeQueue], bool] = lambda queue: False,
    ) -> None:
        self._log = commit_log
        self._queues = queues
        self._index = index
        self._delay_ms = delay_ms
        self.position = 0
        """The log is dispatched up to this physical offset."""
        self.store_ms = 0
        """The latest store time of the records dispatched here, ms."""
        self.holes = 0
        self.hole_bytes = 0
        self.is_held_up = False
        """Whether queue entries could not be written. Until they are, no record may be appended: it
        would get the queue offset of one that waits for its entry."""
        self._held_up_by: Exception | None = None
        """The error of the last attempt to write the entries."""
        self.gaps: set[ConsumeQueue] = set()
        """Queues that got blanks for offsets of which no record was found."""
        self.damaged: Collection[int] = ()
        """Physical offsets of records whose bodies recovery found damaged; they get blank
        entries."""
        self.log_is_complete = False
        """Whether no more bytes will follow the log's end, as during recovery: an incomplete last
        record is damage then. On a slave the master may send the rest of it."""
        self.verifies = False
        """Whether to verify the next records, since recovery has not verified them."""
        self.taken: Collection[tuple[ConsumeQueue, int, int]] = ()
        """Queue offsets of damaged records and their physical offsets. No other message may get
        these queue offsets."""
        self.stopped: CorruptRecord | None = None
        """The damaged record at which dispatch stopped, as nothing valid after it is known; else
        None."""
        self._stopped_with_end = -1
        """The log's end when dispatch stopped: without new bytes another search would find
        nothing."""
        self._hole_ends = HoleScanner(commit_log)
        self.lose = lose
        self._events: Counter[str] = Counter()
        """How often each event occurred, by its log text."""

    @property
    def lag(self) -> int:
        """The lag of dispatch: bytes of the log that are not dispatched yet."""
        return max(0, self._log.end - self.position)

    @property
    def lag_reason(self) -> str:
        """Why dispatch lags and what to do; empty if it can reach the log's last whole record."""
        if self.stopped is not None:
            return (
                f"dispatch has stopped {self.lag} bytes before the log's end, the record at "
                f"physical offset {self.stopped.at} is damaged ({self.stopped.reason}) and nothing "
                "valid follows: wipe this broker's store and restart it, it copies the master's log"
            )
        if self.is_held_up:
            by = self._held_up_by
            what = f"{by}; make room on the drive, or repair the file"
            if not isinstance(by, OSError):
                what = f"{by!r}; restart the broker, which reads the log again"
            return f"dispatch lags by {self.lag} bytes, queue entries cannot be written: {what}"
        return ""

    @property
    def lacks_room(self) -> bool:
        """Whether queue entries wait for room on the drive."""
        by = self._held_up_by
        return self.is_held_up and isinstance(by, OSError) and by.errno in NO_ROOM

    def pass_over(self, end: int) -> Steps[bool]:
        """Continue at `end` without the records before it, which are going to be deleted.

        They are not delivered, and while this process runs no other message gets their queue
        offsets.

        :returns: False if some of them were dispatched meanwhile; then the records must stay.
        """
        begin = self.position
        lasts: dict[ConsumeQueue, tuple[int, int]] = {}
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
            "records are deleted before they were delivered, there is no room for their queue "
            "entries: start=%d end=%d", self.position, end,
        )  # fmt: skip
        self.taken = [*self.taken, *((queue, *last) for queue, last in lasts.items())]
        self.position = max(self.position, end)
        return True

    def skip_blank_to(self, at: int) -> bool:
        """Step over the blank that closed a file, if nothing else is before `at`.

        :returns: whether every record before `at` is dispatched.
        """
        file_end = self._log.next_file(self.position)
        if self.position < at == file_end and self._log.is_closed_at(self.position):
            self.position = file_end
        return self.position == at

    def catch_up(self) -> list[ConsumeQueue]:
        """Dispatch the log from `position` to its end; returns the queues that grew.

        Damaged records are stepped over as soon as a valid one follows.

        :raises OSError: queue entries cannot be written, for want of room as a rule. `position` is
            then after the last record that was dispatched.
        """
        grown: list[ConsumeQueue] = []
        self.position = max(self.position, self._log.start)
        if self.stopped is not None and self._stopped_with_end == self._log.end:
            return grown
        try:
            self._hole_ends.is_whole = self.log_is_complete
            walk = pieces(
                self._log, self.position, self._hole_ends, verify=self.verifies, known=self.damaged
            )
            for piece in walk:
                if isinstance(piece, Hole):
                    grown += self.step_over(piece)
                else:
                    grown += self.dispatch_block(piece)
                    if self._index is not None and self._index.is_due:
                        # without room it keeps the keys, and the store's next flush logs the error
                        with suppress(OSError):
                            self._index.flush()
            for queue, offset, at in self.taken:
                self._put_blank(queue, offset, at)
            self.stopped = None
            self.damaged = ()
            self.taken = ()
            self.verifies = False
            self.log_is_complete = False
        except CorruptRecord as error:
            self._stop(error)
        except Exception as error:
            # also if it is a bug: the next record must not get the offset of one without an entry
            self.is_held_up = True
            self._held_up_by = error
            raise
        self.is_held_up = False
        return grown

    def _stop(self, error: CorruptRecord) -> None:
        """Stop at a damaged record; logged once per record, since dispatch is retried for ever."""
        if self.stopped is None or self.stopped.at != error.at:
            log.error(
                "dispatch stopped at a damaged record, nothing valid follows yet: "
                "physical_offset=%d log_end=%d reason=%r; if this persists, compare the log with "
                "another broker's (roquet store check)",
                error.at, self._log.end, error.reason,
            )  # fmt: skip
        self.stopped = error
        self._stopped_with_end = self._log.end if self._hole_ends.is_done else -1

    def step_over(self, hole: Hole) -> list[ConsumeQueue]:
        """Continue after a hole; returns the queues that grew.

        If queue and offset of its record are known, the queue gets a blank there: no other message
        may get that offset, since copies of this log have it, too, and consumers may be past it.
        """
        queue = None
        request = hole.request
        if request is not None and request.is_queued:
            queue = self._queue(hole.start, request.topic, request.queue_id)
            if queue is not None and hole.end > queue.log_end:
                self._put_blank(queue, request.queue_offset, hole.start)
            else:
                queue = None
        self.holes += 1
        self.hole_bytes += hole.size
        self.position = max(self.position, hole.end)
        self._log_event(
            "damaged record stepped over: physical_offset=%d next=%d bytes=%d reason=%r; consumers "
            "do not get it, restore it from another broker's log or a backup (roquet store check)",
            hole.start, hole.end, hole.size, hole.reason,
        )  # fmt: skip
        return [] if queue is None else [queue]

    def _put_blank(self, queue: ConsumeQueue, offset: int, physical: int) -> None:
        """Write a blank for the damaged record at `physical` unless the queue has an entry."""
        if offset >= queue.max_offset and physical >= queue.log_end and queue.can_go_on_at(offset):
            try:
                queue.make_room(1, offset)
                queue.skip_to(offset)
                queue.put_blank(physical)
            except UnreadableFile:
                if not self.lose(queue):
                    raise

    def _log_event(self, text: str, *values: object) -> None:
        """Log the first ten events of a kind, then each ten-thousandth."""
        self._events[text] += 1
        count = self._events[text]
        if count <= _LOGGED_ONE_BY_ONE:
            log.error(text, *values)
        elif count == _LOGGED_ONE_BY_ONE + 1 or count % _LOGGED_EACH == 0:
            log.error(text + " (event %d of its kind, most are not logged)", *values, count)

    def dispatch_block(self, block: RecordBlock) -> list[ConsumeQueue]:
        """Dispatch a block, as rows if that is cheaper; returns the queues that grew."""
        return self.prepared(block)()

    def prepared(self, block: RecordBlock) -> Callable[[], list[ConsumeQueue]]:
        """Prepare the dispatch of a block before it is appended.

        The returned function cannot fail, if there is room in the queues; call it after the append.
        """
        is_new = self._index is None or block.at > self._index.end_at
        rows = read_rows(block) if is_new and len(block) >= _ROWS_FROM else None
        if rows is not None:
            return partial(self.dispatch_rows, block, rows)
        requests = [read_dispatch_request(at, data) for at, data in block.records()]
        return lambda: [
            queue for request in requests if (queue := self._put_request(request)) is not None
        ]

    def dispatch_rows(self, block: RecordBlock, rows: Rows) -> list[ConsumeQueue]:
        """Dispatch a block's records by queue; returns the queues that grew."""
        for level, numbers in rows.delayed:
            rows.tag_codes[numbers] = rows.store_ms[numbers] + self._level_ms(level)
        grown = [
            queue for part in rows.by_queue(block) if (queue := self._put_part(part)) is not None
        ]
        if self._index is not None:
            for topic, keys, numbers in rows.keys:
                self._index.add_many(topic, keys, block.physical[numbers], rows.store_ms[numbers])
        self.store_ms = max(self.store_ms, int(rows.store_ms.max()))
        self.position = block.at + int(block.ends[-1])
        return grown

    def _put_part(self, part: QueuePart) -> ConsumeQueue | None:
        """Write a queue's entries of a block; returns the queue if it grew."""
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

    def _put_request(self, request: DispatchRequest) -> ConsumeQueue | None:
        """Dispatch the record at `position` and move on; returns its queue if that grew."""
        at = request.physical
        queue = None
        if request.is_queued:
            queue = self._queue(at, request.topic, request.queue_id)
            entry = at, request.size, self._tag_code(request), request.store_ms
            if queue is not None and not self._put_entry(queue, request.queue_offset, *entry):
                queue = None
        if self._index is not None and at >= self._index.end_at:
            self._index.add(request.topic, request.keys, at, request.store_ms)
        self.store_ms = max(self.store_ms, request.store_ms)
        self.position = at + request.size
        return queue

    def _queue(self, at: int, topic: str, queue_id: int) -> ConsumeQueue | None:
        """The queue that the record at `at` names; None if that is invalid or being rebuilt."""
        queue = self._queues.of_record(topic, queue_id)
        if queue is not None and queue.is_lost:
            return None
        if queue is None:
            self._log_event(
                "record is in no queue, its topic or queue id is invalid: physical_offset=%d "
                "topic=%r queue=%d",
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
        """Write an entry unless the queue has it already; returns whether it was written."""
        if physical + size <= queue.log_end:
            return False
        if not queue.can_go_on_at(offset) and self._begins_anew(queue, offset):
            queue.delete_oldest_first()
        if not queue.can_go_on_at(offset):
            self._log_event(
                "record is in no queue, its queue offset is too far from the queue's end: "
                "physical_offset=%d queue_offset=%d topic=%s queue=%d max_offset=%d",
                physical, offset, queue.topic, queue.queue_id, queue.max_offset,
            )  # fmt: skip
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
        """Whether a queue that has entries begins again with this offset.

        It does at offset 0: a master assigns it again only if the topic was deleted and created
        again, which the log does not tell its slaves. It also does if a crash took the entries in
        between and retention has deleted the records of the entries that are left: nothing in this
        queue can be read any more.
        """
        return offset == 0 or (queue.max_offset < offset and queue.log_end <= self._log.start)

    def _tag_code(self, request: DispatchRequest) -> int:
        """The tag code of a record's entry; in the schedule topic the delivery time in ms."""
        level = request.delay_level
        if level is not None:
            return request.store_ms + self._level_ms(level)
        return m.tag_code(request.properties.get(m.TAGS))

    def _level_ms(self, level: str) -> int:
        return self._delay_ms(int_or(level, 0))
