"""Half messages in the store: put there, written again, committed or ended.

See docs/storage/transactions.md and docs/protocol/transactions.md#half-message.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Final

from roquet.broker.config.delay_levels import DelayLevels, put_aside, waiting_queue
from roquet.broker.config.limits import Limits, refuse_beyond
from roquet.broker.delay.stamp_clock import StampClock
from roquet.broker.delivery.end_of_turn import EndOfTurn
from roquet.broker.metadata.metadata import Metadata
from roquet.broker.offsets.consumer_offsets import ConsumerOffsets
from roquet.broker.transactions.open_table import (
    END_TAG,
    GROUP,
    HalfRecord,
    OpenTransactions,
    ended_halves,
    half_with,
)
from roquet.common.units import PhysicalOffset, QueueOffset
from roquet.errors import CorruptRecord, Refused, UnreadableFile
from roquet.protocol.bodies.tables import TopicConfig
from roquet.protocol.headers.transactions import COMMIT
from roquet.protocol.java_numbers import int_or, long_or
from roquet.protocol.records import message as m
from roquet.protocol.records.record import Record, decode
from roquet.protocol.remoting.codes import ResponseCode
from roquet.storage.new_record import NewRecord
from roquet.storage.queues.consume_queue import ConsumeQueue
from roquet.storage.store import Store

log = logging.getLogger(__name__)

_READ_AT_ONCE: Final = 1000
_END_PROPERTIES: Final = m.join_properties({m.WAIT: "true", m.TAGS: END_TAG}).encode()
_MORE_PROPERTIES_SIZE: Final = 100
"""So many bytes may be added to the properties of a half message when it is written again."""


def is_half_message(pairs: Mapping[str, str], reconsume_times: int) -> bool:
    """Whether a message waits for its transaction's end.

    Old clients hand back a committed message that failed with its properties as they were
    (docs/protocol/transactions.md#half-message).
    """
    is_handed_back = reconsume_times > 0 and pairs.get(m.DELAY, "0").strip() not in ("", "0")
    return pairs.get(m.TRAN_MSG, "").lower() == "true" and not is_handed_back


class HalfMessages:
    """The transactions of one master.

    Keeps: `open` is what a broker that starts anew finds in the store, from the progress on that was noted.

    :param turn: told of every append.
    """

    def __init__(
        self,
        store: Store,
        metadata: Metadata,
        progress: ConsumerOffsets,
        turn: EndOfTurn,
        clock: StampClock,
        levels: DelayLevels,
        limits: Limits | None = None,
    ) -> None:
        self._count_max = (limits or Limits()).transaction_nums_max
        self._store = store
        self._metadata = metadata
        self._progress = progress
        self._turn = turn
        self._clock = clock
        self._levels = levels
        self.open = OpenTransactions()
        self._unreadable = self._unreadable_at = 0
        self._reached: tuple[int, int, int] | None = None
        """What is noted as soon as the log is on disk so far: end of the log, progress in half messages, in ends."""

    # what the store has

    def load(self) -> None:
        """Find the transactions that are open: half messages without an end, from the noted progress on.

        What is damaged is left out. What is in a file that cannot be read now is left to a later start: the progress
        stays before it. Both are told of once. Where it is an end that cannot be read, its transaction counts as open,
        and its producer is asked.
        """
        begin, ends_begin = self._noted(m.HALF_TOPIC), self._noted(m.HALF_OP_TOPIC)
        found = OpenTransactions(begin, ends_begin)
        ended: set[int] = set()
        for _, record in self._records(m.HALF_OP_TOPIC, ends_begin):
            if record is None:
                found.end_not_read()
                continue
            halves = ended_halves(record)
            ended.update(halves)
            found.end_stored(halves)
        left: list[int] = []
        for offset, record in self._records(m.HALF_TOPIC, begin):
            if record is not None:
                half = self.half_of(record)
                (found.ended if half.offset in ended else found.opened)(half)
            elif offset not in ended:
                left.append(offset)
                found.not_read(offset)
        self.open = found
        if left:
            log.error(
                "half messages cannot be read, their transactions stay open: count=%d first=%d last=%d; bring the file "
                "back and start anew, and their producers are asked", len(left), left[0], left[-1],
            )  # fmt: skip
        if self._unreadable:
            text = "half messages or ends of transactions are damaged and are left out: count=%d last_at=%d"
            log.warning(text, self._unreadable, self._unreadable_at)
        if found:
            log.info(
                "%d transactions are open, from half message %d on", len(found), found.progress
            )

    def _noted(self, topic: str) -> int:
        """Anybody may have written the progress: it counts within what the queue has."""
        noted = self._progress.committed(GROUP, topic, 0) or 0
        return max(self._store.within_queue(topic, 0, noted), self._store.min_offset(topic, 0))

    def _records(self, topic: str, offset: int) -> Iterator[tuple[int, Record | None]]:
        """What the topic's queue points to, from `offset` on, each with its queue offset; None: a file with it cannot
        be read. What is damaged is left out, it was never given to anybody."""
        queue = self._store.queues.known(topic, 0)
        while queue is not None and offset < queue.max_offset:
            try:
                entries = list(queue.entries(offset, _READ_AT_ONCE))
            except UnreadableFile:
                end = min(queue.next_file(offset), queue.max_offset)
                yield from ((number, None) for number in range(offset, end))
                offset = end
                continue
            for number, (at, size, _) in enumerate(entries, offset):
                try:
                    record = _decoded(self._store.log.record_bytes(at, size))
                except UnreadableFile:
                    yield number, None
                    continue
                if record is not None and record.topic == topic:
                    yield number, record
                else:
                    self._unreadable += 1
                    self._unreadable_at = at
            offset = offset + len(entries) if entries else queue.next_file(offset)

    def half_of(self, record: Record) -> HalfRecord:
        """What a record in the queue of half messages says.

        A record that was written again names the first one of its transaction. It is believed if that is the same
        message, or gone, or cannot be read: other brokers let producers say what they like.
        """
        pairs, offset, now_ms = record.properties, record.queue_offset, self._clock.now_ms()
        transaction = long_or(pairs.get(m.FIRST_HALF_OFFSET), offset)
        first: Record | None = record
        if transaction != offset:
            with suppress(UnreadableFile):
                first = None
                first = self._half_at(transaction) if 0 <= transaction < offset else record
            if first is not None and _message(first) != _message(record):
                first = record
            if first is record:
                transaction = offset
        ahead_ms = now_ms - self._clock.steady_ms()
        began_ms = min(record.born_ms, record.store_ms) if first is None else first.store_ms
        times_ms = (min(ms, now_ms) - ahead_ms for ms in (began_ms, record.store_ms))
        return half_with(pairs, transaction, offset, *times_ms)

    def _half_at(self, offset: int) -> Record | None:
        entry = self._queue(m.HALF_TOPIC).entry(offset)
        if entry is None:
            return None
        self._make_readable(entry[0])
        return _decoded(self._store.log.record_bytes(*entry[:2]))

    def record_at(self, at: int) -> Record | None:
        """The record at a physical offset, whatever it is; None where none stands."""
        self._make_readable(at)
        return _decoded(self._store.message_at(at))

    def record_of(self, half: HalfRecord) -> Record | None:
        """The record of an open transaction; None when the log does not have it any more."""
        return self._half_at(half.offset)

    def _make_readable(self, at: int) -> None:
        """What waits in memory for its file is brought there: whoever ends a transaction has an answer already."""
        if self._store.log.readable_to <= at < self._store.log.end:
            self._store.log.commit()

    def note_progress(self) -> None:
        """Let the next start begin at the first half message that is still open, as far as the ends of those before it
        are on disk: a power failure must not take an end and leave the half message, of which nobody would ask.
        """
        log = self._store.log
        self.open.forget_before(self._store.min_offset(m.HALF_TOPIC, 0))
        if self._reached is None and (self.open.progress or len(self.open)):
            self._reached = log.end, self.open.progress, self.open.ends_progress
        if self._reached is not None and self._reached[0] <= log.flushed_to:
            _, halves, ends = self._reached
            self._progress.commit(GROUP, m.HALF_TOPIC, 0, halves)
            self._progress.commit(GROUP, m.HALF_OP_TOPIC, 0, ends)
            self._reached = None

    # what is written

    def put(
        self,
        topic: str,
        queue_id: int,
        body: bytes,
        pairs: Mapping[str, str],
        flag: int,
        sys_flag: int,
        born_ms: int,
        born_host: bytes,
        reconsume_times: int,
    ) -> PhysicalOffset:
        """Store a message for a topic so that nobody sees it before its transaction is committed.

        What only brokers write into half messages is dropped of `pairs`: nobody takes another transaction's place.

        :raises Refused: its properties are too long, or too many transactions are open. OSError: there is no room for
            it; nothing was written.
        """
        refuse_beyond(
            len(self.open) + 1, self._count_max, "open transactions", "transactionNumsMax"
        )
        pairs = {name: value for name, value in pairs.items() if name not in m.OF_HALF_MESSAGES}
        pairs |= {m.REAL_TOPIC: topic, m.REAL_QID: str(queue_id)}
        properties, size_max = (
            m.join_properties(pairs).encode(),
            m.PROPERTIES_SIZE_MAX - _MORE_PROPERTIES_SIZE,
        )
        if len(properties) > size_max:
            remark = (
                f"properties of {len(properties)} bytes, allowed are {size_max} in a transaction"
            )
            raise Refused(ResponseCode.MESSAGE_ILLEGAL, remark)
        queue, host = self._queue(m.HALF_TOPIC), self._store.config.store_host
        kept = (
            sys_flag & ~m.TRANSACTION_BITS
        )  # an ordinary one where it waits (docs/pitfalls.md#trap-s5)
        offset, stored_ms = queue.max_offset, self._clock.steady_ms()
        half = half_with(pairs, offset, offset, stored_ms, stored_ms)
        at = self._append(
            NewRecord(
                queue, body, properties, flag, kept, born_ms, born_host, host, reconsume_times
            )
        )
        self.open.opened(half)
        return at

    def renew(self, record: Record, half: HalfRecord, checks: int) -> Record:
        """Write a half message again, at the end of its queue; gives the record that counts from now on.

        The record before it has an end: else whoever starts with progress of before, a broker of Apache's among them,
        would ask about both.
        """
        pairs = {**record.properties, m.FIRST_HALF_OFFSET: str(half.transaction)}
        if checks:
            pairs[m.CHECK_TIMES] = str(checks)
        stored_ms, offset = self._clock.steady_ms(), self._queue(m.HALF_TOPIC).max_offset
        renewed = half_with(pairs, half.transaction, offset, half.began_ms, stored_ms)
        return self._put_again(record, pairs, half, renewed)

    def resume(self, record: Record, half: HalfRecord | None) -> None:
        """Make one that was given up an open transaction again, whose producers were not asked yet; or one that is
        `half` still.
        """
        pairs = {
            name: value for name, value in record.properties.items() if name != m.FIRST_HALF_OFFSET
        }
        pairs[m.CHECK_TIMES] = "0"
        stored_ms, offset = self._clock.steady_ms(), self._queue(m.HALF_TOPIC).max_offset
        self._put_again(record, pairs, half, half_with(pairs, offset, offset, stored_ms, stored_ms))

    def _put_again(
        self, record: Record, pairs: Mapping[str, str], before: HalfRecord | None, half: HalfRecord
    ) -> Record:
        """Store a half message once more, at the end of the queue, which `half` says of it already."""
        queue, text = self._queue(m.HALF_TOPIC), m.join_properties(pairs)
        at = self._append(self._again(record, queue, text), *self._ends(before))
        again = replace(
            record,
            queue_offset=QueueOffset(half.offset),
            physical_offset=at,
            store_host=self._store.config.store_host,
            store_ms=self._clock.now_ms(),
            properties_text=text,
        )
        if before is not None:
            self._has_ended(before)
        self.open.opened(half)
        return again

    def commit(self, record: Record, half: HalfRecord) -> None:
        """Store the message of a half message where it belongs, a delayed one where it waits from now on; that is the
        transaction's end.

        :raises Refused: the half message does not say where that is.
        """
        pairs = record.properties
        topic, queue_id = destination(record)
        level = self._levels.nearest(int_or(pairs.get(m.DELAY), 0))
        if level:
            pairs = put_aside(pairs, level, topic, queue_id)
            topic, queue_id = waiting_queue(level)
        committed = self._again(
            record, self._store.queue(topic, queue_id), m.join_properties(pairs)
        )
        committed.sys_flag |= COMMIT
        committed.prepared_offset = record.physical_offset
        self._append(committed, *self._ends(half))
        self._has_ended(half)

    def require_room(self) -> None:
        """
        :raises Refused: the drive is too full, so that no transaction can be ended; or half messages wait for their
            queue entries since the start, and would seem to have ended. To ask about one would count as a check whose
            answer is refused, and after some of these it would be given up.
        """
        if why := self._store.why_full or self._store.dispatch.why_behind:
            raise Refused(ResponseCode.SERVICE_NOT_AVAILABLE, f"no message is taken: {why}")

    def roll_back(self, half: HalfRecord) -> None:
        """Nobody gets the message; that is the transaction's end."""
        self._append(*self._ends(half))
        self._has_ended(half)

    def give_up(self, record: Record, half: HalfRecord) -> None:
        """Store a half message in the topic of those whose producers never gave an answer."""
        copy = self._again(record, self._queue(m.CHECK_MAX_TIME_TOPIC), record.properties_text)
        self._append(copy, *self._ends(half))
        self._has_ended(half)

    def _again(self, record: Record, queue: ConsumeQueue, properties: str) -> NewRecord:
        """The message of a half message, in another place."""
        return NewRecord(
            queue,
            record.body,
            properties.encode(),
            record.flag,
            record.sys_flag & ~m.TRANSACTION_BITS,
            record.born_ms,
            record.born_host,
            self._store.config.store_host,
            record.reconsume_times,
        )

    def _ends(self, half: HalfRecord | None) -> list[NewRecord]:
        """What notes that a half message's record counts no more; nothing where there is none."""
        if half is None:
            return []
        host, body = self._store.config.store_host, b"%d" % half.offset
        return [
            NewRecord(
                self._queue(m.HALF_OP_TOPIC),
                body,
                _END_PROPERTIES,
                0,
                0,
                self._clock.now_ms(),
                host,
                host,
            )
        ]

    def _has_ended(self, half: HalfRecord) -> None:
        self.open.end_stored((half.offset,))
        self.open.ended(half)

    def _append(self, *records: NewRecord) -> PhysicalOffset:
        """Write records together, but for those that do not fit into the same file; where the first one stands."""
        places = self._store.append_records(records)
        self._turn.due()
        if len(places) < len(records):
            self._append(*records[len(places) :])
        return places[0]

    def _queue(self, topic: str) -> ConsumeQueue:
        self._metadata.system_topic(TopicConfig(topic, 1, 1))
        return self._store.queue(topic, 0)


def _decoded(data: bytes | None) -> Record | None:
    """None where there is no record."""
    try:
        return decode(data) if data is not None else None
    except CorruptRecord:
        return None


def destination(record: Record) -> tuple[str, int]:
    """Topic and queue id that a half message is for.

    :raises Refused: it does not say, or names a topic that there cannot be.
    """
    topic, queue_id = record.properties.get(m.REAL_TOPIC, ""), record.properties.get(m.REAL_QID, "")
    number = int_or(queue_id, -1)
    if not m.is_legal_name(topic) or len(topic) > m.TOPIC_SIZE_MAX or number < 0:
        where = f"REAL_TOPIC {topic[:200]!r}, REAL_QID {queue_id[:20]!r}"
        raise Refused(
            ResponseCode.SYSTEM_ERROR,
            f"the message at {record.physical_offset} is for no queue: {where}",
        )
    return topic, number


def _message(record: Record) -> tuple[object, ...]:
    """What stays the same when a half message is written again."""
    pairs = record.properties
    named = (pairs.get(name) for name in (m.UNIQ_KEY, m.PRODUCER_GROUP, m.REAL_TOPIC, m.REAL_QID))
    return record.born_ms, record.born_host, record.body, record.flag, *named
