"""Half messages in the store: stores, renews, commits and rolls them back.

See docs/storage/transactions.md and docs/protocol/transactions.md#half-message.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Final

from roquet.broker.config.delay_levels import DelayLevels, put_aside, waiting_queue
from roquet.broker.config.limits import Limits, refuse_beyond, refuse_long_properties
from roquet.broker.delay.stamp_clock import StampClock
from roquet.broker.delivery.end_of_turn import EndOfTurn
from roquet.broker.delivery.write_gate import WriteGate
from roquet.broker.metadata.topics import TopicRegistry
from roquet.broker.offsets.consumer_offsets import ConsumerOffsets
from roquet.broker.transactions.open_table import (
    END_TAG,
    GROUP,
    HalfRecord,
    OpenTransactions,
    ended_halves,
    half_with,
)
from roquet.common.java import int_or, long_or
from roquet.errors import CorruptRecord, Refused, UnreadableFile
from roquet.protocol.bodies.tables import TopicConfig
from roquet.protocol.headers.transactions import COMMIT
from roquet.protocol.records import message as m
from roquet.protocol.records.record import Record, decode, host_bits
from roquet.protocol.remoting.codes import ResponseCode
from roquet.storage.new_record import NewRecord
from roquet.storage.queues.consume_queue import ConsumeQueue
from roquet.storage.store import Store

log = logging.getLogger(__name__)

_READ_AT_ONCE: Final = 1000
_END_PROPERTIES: Final = m.join_properties({m.WAIT: "true", m.TAGS: END_TAG}).encode()
_MORE_PROPERTIES_SIZE: Final = 100
"""Bytes by which the properties of a half message may grow when it is written again."""


def is_half_message(pairs: Mapping[str, str], reconsume_times: int) -> bool:
    """Whether a sent message is a half message.

    A committed message that an old client sends back after a failure is none, although it still has
    the property TRAN_MSG (docs/protocol/transactions.md#half-message).
    """
    is_handed_back = reconsume_times > 0 and pairs.get(m.DELAY, "0").strip() not in ("", "0")
    return pairs.get(m.TRAN_MSG, "").lower() == "true" and not is_handed_back


class HalfMessages:
    """The half messages of one master, and the table of its open transactions.

    Invariant: `open` equals what `load` would find in the store from the saved offsets on.

    :param offsets: the consumer offsets, which also save from where `load` reads.
    :param turn: its `due` is called after each append.
    :param limits: how many transactions may be open.
    """

    def __init__(
        self,
        store: Store,
        write_gate: WriteGate,
        topics: TopicRegistry,
        offsets: ConsumerOffsets,
        turn: EndOfTurn,
        clock: StampClock,
        levels: DelayLevels,
        limits: Limits | None = None,
    ) -> None:
        self._count_max = (limits or Limits()).transaction_nums_max
        self._store = store
        self._write_gate = write_gate
        self._topics = topics
        self._offsets = offsets
        self._turn = turn
        self._clock = clock
        self._levels = levels
        self.open = OpenTransactions()
        self._damaged = self._damaged_at = 0
        self._reached: tuple[int, int, int] | None = None
        """Offsets to save once the log is durable up to the first number.

        End of the log, queue offset in the half topic, queue offset in the topic of op messages.
        """

    # reading

    def load(self) -> None:
        """Rebuild the table of open transactions: half messages without an op message.

        Reads from the saved offsets on. Damaged records are skipped. A record in a file that cannot
        be read now is left to a later start: the saved offsets stay before it. If an op message
        cannot be read, its transaction counts as open, and its producer is asked.
        """
        begin = self._noted(m.HALF_TOPIC)
        ends_begin = self._noted(m.HALF_OP_TOPIC)
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
                "half messages cannot be read, their transactions stay open; restore the file and"
                " restart the broker, which then asks their producers: count=%d first=%d last=%d",
                len(left),
                left[0],
                left[-1],
            )
        if self._damaged:
            log.warning(
                "damaged half or op messages skipped: count=%d last_physical_offset=%d",
                self._damaged,
                self._damaged_at,
            )
        if found:
            log.info(
                "open transactions found: count=%d first_half_offset=%d",
                len(found),
                found.halves_offset,
            )

    def _noted(self, topic: str) -> int:
        """The saved offset in a topic, limited to the range of its queue: any client can set it."""
        noted = self._offsets.committed(GROUP, topic, 0) or 0
        return max(self._store.within_queue(topic, 0, noted), self._store.min_offset(topic, 0))

    def _records(self, topic: str, offset: int) -> Iterator[tuple[int, Record | None]]:
        """The records of the topic's queue from `offset` on, with their queue offsets.

        None stands for a record in a file that cannot be read. Damaged records are skipped: no
        client ever got them.
        """
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
                    self._damaged += 1
                    self._damaged_at = at
            offset = offset + len(entries) if entries else queue.next_file(offset)

    def half_of(self, record: Record) -> HalfRecord:
        """The transaction that a record in the queue of half messages belongs to.

        A record that was written again names the first record of its transaction. It is believed if
        that record is the same message, or is deleted, or cannot be read. Otherwise the record
        counts as a transaction of its own: other brokers let producers set this property.
        """
        pairs = record.properties
        offset = record.queue_offset
        now_ms = self._clock.now_ms()
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
        # Records have times of the wall clock, the table has times of the monotonic clock. A time
        # in the future was stored before the wall clock was set back; it counts as now.
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
        """The record at a physical offset, of any topic, or None."""
        self._make_readable(at)
        return _decoded(self._store.log.record_at(at))

    def record_of(self, half: HalfRecord) -> Record | None:
        """The record of an open transaction; None if it is not in the log any more."""
        return self._half_at(half.offset)

    def _make_readable(self, at: int) -> None:
        """Write records that wait in memory to the log's file, so that they can be read.

        Needed for a transaction that ends just after its half message was acknowledged.
        """
        if self._store.log.readable_to <= at < self._store.log.end:
            self._store.log.commit()

    def note_offsets(self) -> None:
        """Save from which half message the next start must read: the first that is still open.

        The offsets are saved only when the op messages before them are durable. Otherwise a power
        failure could lose an op message, and its producer would never be asked.
        """
        log = self._store.log
        self.open.forget_before(self._store.min_offset(m.HALF_TOPIC, 0))
        if self._reached is None and (self.open.halves_offset or len(self.open)):
            self._reached = log.end, self.open.halves_offset, self.open.ends_offset
        if self._reached is not None and self._reached[0] <= log.flushed_to:
            _, halves, ends = self._reached
            self._offsets.commit(GROUP, m.HALF_TOPIC, 0, halves)
            self._offsets.commit(GROUP, m.HALF_OP_TOPIC, 0, ends)
            self._reached = None

    # writing

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
    ) -> int:
        """Store a half message for a queue of a topic; consumers get it when it is committed.

        Properties that only brokers set in half messages are dropped from `pairs`, so that a
        producer cannot name another transaction.

        :returns: the physical offset of the record.
        :raises Refused: the properties are too long, or too many transactions are open.
        :raises OSError, StoreBusy: as `Writer.append`; nothing was written.
        """
        refuse_beyond(
            len(self.open) + 1, self._count_max, "open transactions", "transactionNumsMax"
        )
        pairs = {name: value for name, value in pairs.items() if name not in m.OF_HALF_MESSAGES}
        pairs |= {m.REAL_TOPIC: topic, m.REAL_QID: str(queue_id)}
        properties = m.join_properties(pairs).encode()
        size_max = m.PROPERTIES_SIZE_MAX - _MORE_PROPERTIES_SIZE
        refuse_long_properties(
            len(properties), "the properties of a half message", size_max=size_max
        )
        queue = self._queue(m.HALF_TOPIC)
        host = self._store.config.store_host
        # in the half topic it is an ordinary message (docs/pitfalls.md#trap-s5)
        kept = sys_flag & ~m.TRANSACTION_BITS
        offset = queue.max_offset
        stored_ms = self._clock.steady_ms()
        half = half_with(pairs, offset, offset, stored_ms, stored_ms)
        at = self._append(
            NewRecord(
                queue, body, properties, flag, kept, born_ms, born_host, host, reconsume_times
            )
        )
        self.open.opened(half)
        return at

    def renew(self, record: Record, half: HalfRecord, checks: int) -> Record:
        """Write a half message again, at the end of its queue, and end the record before it.

        Without an op message for the record before it, a broker that starts from older offsets
        (ours or Apache's) would ask about both records.

        :param checks: how often the producer has been asked.
        :returns: the new record of the transaction.
        """
        pairs = {**record.properties, m.FIRST_HALF_OFFSET: str(half.transaction)}
        if checks:
            pairs[m.CHECK_TIMES] = str(checks)
        stored_ms = self._clock.steady_ms()
        offset = self._queue(m.HALF_TOPIC).max_offset
        renewed = half_with(pairs, half.transaction, offset, half.began_ms, stored_ms)
        return self._put_again(record, pairs, half, renewed)

    def resume(self, record: Record, half: HalfRecord | None) -> None:
        """Restart the checks of a transaction, with none counted.

        :param record: the half message, open or given up.
        :param half: the transaction if it is still open, else None.
        """
        pairs = {
            name: value for name, value in record.properties.items() if name != m.FIRST_HALF_OFFSET
        }
        pairs[m.CHECK_TIMES] = "0"
        stored_ms = self._clock.steady_ms()
        offset = self._queue(m.HALF_TOPIC).max_offset
        self._put_again(record, pairs, half, half_with(pairs, offset, offset, stored_ms, stored_ms))

    def _put_again(
        self, record: Record, pairs: Mapping[str, str], before: HalfRecord | None, half: HalfRecord
    ) -> Record:
        """Store a half message again, at the end of its queue.

        :param before: the transaction as it was, None if it was not open.
        :param half: the transaction as it is afterwards.
        """
        queue = self._queue(m.HALF_TOPIC)
        text = m.join_properties(pairs)
        at = self._append(self._again(record, queue, text), *self._ends(before))
        again = replace(
            record,
            queue_offset=half.offset,
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
        """Store the message in its topic and end the transaction.

        A message with a delay level is stored in the schedule topic; its delay begins now.

        :raises Refused: the half message names no valid topic and queue.
        """
        pairs = record.properties
        topic, queue_id = destination(record)
        level = self._levels.nearest(int_or(pairs.get(m.DELAY), 0))
        if level:
            pairs = put_aside(pairs, level, topic, queue_id)
            topic, queue_id = waiting_queue(level)
        copy = self._again(record, self._store.queue(topic, queue_id), m.join_properties(pairs))
        flags = copy.sys_flag | COMMIT
        committed = replace(copy, sys_flag=flags, prepared_offset=record.physical_offset)
        self._append(committed, *self._ends(half))
        self._has_ended(half)

    def require_room(self) -> None:
        """Check that a transaction could be ended now.

        If not, asking its producer would count as a check whose answer is refused, and after some
        of these the transaction would be given up.

        :raises Refused: the broker stores nothing now; or dispatch lags, and half messages without
            a queue entry would seem to have ended.
        """
        if why := self._write_gate.why_closed or self._store.dispatch.lag_reason:
            raise Refused(ResponseCode.SERVICE_NOT_AVAILABLE, f"messages are refused: {why}")

    def roll_back(self, half: HalfRecord) -> None:
        """End a transaction; consumers never get its message."""
        self._append(*self._ends(half))
        self._has_ended(half)

    def give_up(self, record: Record, half: HalfRecord) -> None:
        """Move a half message to the topic of unanswered transactions, and end the transaction."""
        copy = self._again(record, self._queue(m.CHECK_MAX_TIME_TOPIC), record.properties_text)
        self._append(copy, *self._ends(half))
        self._has_ended(half)

    def _again(self, record: Record, queue: ConsumeQueue, properties: str) -> NewRecord:
        """A new record with the message of a half message, for `queue`."""
        host = self._store.config.store_host
        sys_flag = record.sys_flag & ~(m.TRANSACTION_BITS | m.STORE_HOST_V6)
        return NewRecord(
            queue,
            record.body,
            properties.encode(),
            record.flag,
            sys_flag | host_bits(record.born_host, host),
            record.born_ms,
            record.born_host,
            host,
            record.reconsume_times,
        )

    def _ends(self, half: HalfRecord | None) -> list[NewRecord]:
        """The op message that ends a half message, as a list; empty without a half message."""
        if half is None:
            return []
        host = self._store.config.store_host
        body = b"%d" % half.offset
        return [
            NewRecord(
                self._queue(m.HALF_OP_TOPIC),
                body,
                _END_PROPERTIES,
                0,
                host_bits(host, host),
                self._clock.now_ms(),
                host,
                host,
            )
        ]

    def _has_ended(self, half: HalfRecord) -> None:
        self.open.end_stored((half.offset,))
        self.open.ended(half)

    def _append(self, *records: NewRecord) -> int:
        """Append records, together as far as they fit into one segment.

        :returns: the physical offset of the first record.
        """
        places = self._store.writer.append_records(records)
        self._turn.due()
        if len(places) < len(records):
            self._append(*records[len(places) :])
        return places[0]

    def _queue(self, topic: str) -> ConsumeQueue:
        self._topics.get_or_create(TopicConfig(topic, 1, 1))
        return self._store.queue(topic, 0)


def _decoded(data: bytes | None) -> Record | None:
    """Decode a record; None if there is none or it is damaged."""
    try:
        return decode(data) if data is not None else None
    except CorruptRecord:
        return None


def destination(record: Record) -> tuple[str, int]:
    """Topic and queue id to which a half message is committed.

    :raises Refused: the half message names none, or an illegal one.
    """
    topic = record.properties.get(m.REAL_TOPIC, "")
    queue_id = record.properties.get(m.REAL_QID, "")
    number = int_or(queue_id, -1)
    if not m.is_legal_name(topic) or len(topic) > m.TOPIC_SIZE_MAX or number < 0:
        where = f"REAL_TOPIC {topic[:200]!r}, REAL_QID {queue_id[:20]!r}"
        raise Refused(
            ResponseCode.SYSTEM_ERROR,
            f"the half message at physical offset {record.physical_offset} names no valid queue:"
            f" {where}",
        )
    return topic, number


def _message(record: Record) -> tuple[object, ...]:
    """The fields that stay the same when a half message is written again."""
    pairs = record.properties
    named = (pairs.get(name) for name in (m.UNIQ_KEY, m.PRODUCER_GROUP, m.REAL_TOPIC, m.REAL_QID))
    return record.born_ms, record.born_host, record.body, record.flag, *named
