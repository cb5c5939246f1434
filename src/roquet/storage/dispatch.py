"""Reput: walks new log bytes once, feeds consume queues and index, says which queues grew (store-and-ha.md 3.1)."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from struct import Struct
from typing import Final

from roquet.errors import CorruptRecord
from roquet.protocol import message as m
from roquet.protocol.record import MAGIC
from roquet.storage.commit_log import CommitLog
from roquet.storage.consume_queue import ConsumeQueue
from roquet.storage.index import Index
from roquet.units import PhysicalOffset

log = logging.getLogger(__name__)

_HEAD: Final = Struct(">IIIiiqqi")
_STORE_MS_V4: Final = 56
_BODY_SIZE_V4: Final = 84
_LONG: Final = Struct(">q")
_INT: Final = Struct(">i")
_SHORT: Final = Struct(">H")

Queues = Callable[[str, int], ConsumeQueue]
DelayMs = Callable[[int], int]


@dataclass(frozen=True, slots=True)
class Arrival:
    """What dispatch needs of one record."""

    topic: str
    queue_id: int
    queue_offset: int
    physical: int
    size: int
    sys_flag: int
    store_ms: int
    properties: dict[str, str]

    @property
    def takes_a_queue_slot(self) -> bool:
        """Prepared and rolled back transaction records do not."""
        return self.sys_flag & m.TRANSACTION_BITS in (0, m.TRANSACTION_COMMIT)

    @property
    def keys(self) -> list[bytes]:
        """What the record can be found by: UNIQ_KEY, then the words of KEYS; none for a rolled back one."""
        if self.sys_flag & m.TRANSACTION_BITS == m.TRANSACTION_ROLLBACK:
            return []
        return keys_of(self.properties)


def keys_of(properties: Mapping[str, str]) -> list[bytes]:
    """UNIQ_KEY, then the words of KEYS."""
    unique_key, keys = properties.get(m.UNIQ_KEY), properties.get(m.KEYS)
    found = [unique_key.encode()] if unique_key else []
    if keys:
        found += [key.encode() for key in keys.split(" ") if key]
    return found


def read_arrival(at: int, data: memoryview) -> Arrival:
    """The fields of a record that dispatch needs; the body is not looked at."""
    size, magic, _, queue_id, _, queue_offset, _, sys_flag = _HEAD.unpack_from(data)
    born_more = 12 if sys_flag & m.BORN_HOST_V6 else 0
    (store_ms,) = _LONG.unpack_from(data, _STORE_MS_V4 + born_more)
    body_size_at = _BODY_SIZE_V4 + born_more + (12 if sys_flag & m.STORE_HOST_V6 else 0)
    (body_size,) = _INT.unpack_from(data, body_size_at)
    topic_size_at = body_size_at + 4 + body_size
    topic_size_bytes = 1 if magic == MAGIC else 2
    topic_at = topic_size_at + topic_size_bytes
    properties_size_at = topic_at + int.from_bytes(data[topic_size_at:topic_at], "big")
    if body_size < 0 or properties_size_at + 2 > size:
        raise CorruptRecord(at, f"body of {body_size} bytes in a record of {size}")
    if properties_size_at + 2 + _SHORT.unpack_from(data, properties_size_at)[0] != size:
        raise CorruptRecord(at, "its parts do not add up to its size")
    try:
        topic = str(data[topic_at:properties_size_at], "utf-8")
        properties = m.split_properties(str(data[properties_size_at + 2 :], "utf-8"))
    except UnicodeDecodeError as error:
        raise CorruptRecord(at, f"topic or properties are not UTF-8: {error}") from error
    return Arrival(topic, queue_id, queue_offset, at, size, sys_flag, store_ms, properties)


class Dispatch:
    """Keeps: every whole record before `position` is in its consume queue and noted in the index.

    :param queues: finds or makes the queue of a topic and queue id.
    :param delay_ms: delay level -> ms, for the delivery times in the schedule topic's queues.
    """

    def __init__(self, commit_log: CommitLog, queues: Queues, index: Index | None, delay_ms: DelayMs) -> None:
        self._log = commit_log
        self._queues = queues
        self._index = index
        self._delay_ms = delay_ms
        self.position = PhysicalOffset(0)
        self.store_ms = 0
        """When the newest record that was dispatched here was stored, ms."""

    @property
    def behind(self) -> int:
        """Bytes of the log that are not dispatched yet."""
        return max(0, self._log.end - self.position)

    def catch_up(self) -> list[ConsumeQueue]:
        """Dispatch what the log holds beyond `position`; the queues that grew."""
        grown: list[ConsumeQueue] = []
        self.position = max(self.position, self._log.start)
        try:
            for at, data in self._log.walk(self.position):
                arrival = read_arrival(at, data)
                queue = self.put(arrival)
                self.store_ms = max(self.store_ms, arrival.store_ms)
                self.position = PhysicalOffset(at + len(data))
                if queue is not None:
                    grown.append(queue)
        except CorruptRecord as error:
            log.error("dispatch stops at physical offset %d: %s", self.position, error)
        if self._index is not None:
            self._index.flush()
        return grown

    def put(self, arrival: Arrival) -> ConsumeQueue | None:
        """Dispatch one record; the queue that grew, None when it takes no slot or was there already."""
        queue = self._put_into_queue(arrival) if arrival.takes_a_queue_slot else None
        if self._index is not None and arrival.physical >= self._index.end_at:
            self._index.add(arrival.topic, arrival.keys, arrival.physical, arrival.store_ms)
        return queue

    def _put_into_queue(self, arrival: Arrival) -> ConsumeQueue | None:
        queue = self._queues(arrival.topic, arrival.queue_id)
        if arrival.physical + arrival.size <= queue.log_end or arrival.queue_offset < queue.max_offset:
            return None
        queue.make_room(1, arrival.queue_offset)
        code, store_ms = self._tag_code(arrival), arrival.store_ms
        queue.put(arrival.queue_offset, arrival.physical, arrival.size, code, store_ms)
        return queue

    def _tag_code(self, arrival: Arrival) -> int:
        if arrival.topic == m.SCHEDULE_TOPIC and m.DELAY in arrival.properties:
            return arrival.store_ms + self._delay_ms(int(arrival.properties[m.DELAY]))
        return m.tag_code(arrival.properties.get(m.TAGS))
