"""Received messages, and how a consumer settles them."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import TracebackType
from typing import Final, Self

from roquet.common.java import INT_MAX, INT_MIN
from roquet.errors import MessageError
from roquet.protocol.records.compression import UNCOMPRESSED_MAX, plain_body
from roquet.protocol.records.message import KEYS, RETRY_TOPIC, TAGS, UNIQ_KEY, MessageQueue
from roquet.protocol.records.record import Record

log = logging.getLogger(__name__)

Settle = Callable[[int | None], None]
"""Called once per delivery: with None for ack, else with the delay level of the next delivery."""
DEAD_LETTER_LEVEL: Final = -1
"""The delay level that sends a message to the dead letter topic."""


@dataclass(frozen=True)
class ReceivedMessage:
    """A message that a consumer received.

    It is settled in one of three ways:

    - by asking for the next message: `async for message in consumer` acknowledges the one before;
    - by `async with message:`, which acknowledges it at the end of the block. An exception in the
      block is logged and suppressed, and the message is delivered again later. Exceptions that are
      no `Exception`, such as `asyncio.CancelledError`, pass through and settle nothing;
    - by `message.ack()` or `message.retry()`.

    A message that is not settled is delivered again, to the next consumer of its queue.

    `topic` is the topic that the message was sent to, also in later deliveries; `queue` and
    `queue_offset` say where it is stored now. `properties` includes the system properties. `body`
    is decompressed. `message_id` is the unique key, which the producer made; `offset_message_id`
    is the broker's. Times are milliseconds since 1970.
    """

    topic: str
    body: bytes
    tags: str | None
    keys: tuple[str, ...]
    properties: Mapping[str, str]
    message_id: str
    offset_message_id: str
    queue: MessageQueue
    queue_offset: int
    physical_offset: int
    born_time_ms: int
    store_time_ms: int
    reconsume_times: int
    flag: int
    sys_flag: int
    _settle: Settle | None = field(default=None, repr=False, compare=False)

    def ack(self) -> None:
        """Acknowledge the message. Only the first call of `ack` or `retry` has an effect."""
        if self._settle is not None:
            self._settle(None)

    def retry(self, delay_level: int = 0) -> None:
        """Have the message delivered again later: after 10 s, then 30 s, 1 min, ... 2 h.

        After the consumer's `max_reconsume_times` deliveries the broker moves it to the dead letter
        topic `%DLQ%group`. An `ordered` consumer delivers it again after 1 s. A consumer with
        `broadcast` (and not `ordered`) does not deliver it again.

        :param delay_level: the broker's delay level (by default 1 is 1 s, 2 is 5 s, 3 is 10 s ...)
            of the next delivery. 0 means the usual one; -1 moves the message to the dead letter
            topic now.
        :raises MessageError: the level is not a 32-bit number; the message is not settled.
        """
        if not INT_MIN <= delay_level <= INT_MAX:
            raise MessageError(
                f"delay_level is {delay_level}: allowed are 32-bit numbers, -1 for the dead letter "
                "topic, 0 for the usual delay, from 1 on for the broker's levels"
            )
        if self._settle is not None:
            self._settle(delay_level)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> bool:
        if error is None:
            self.ack()
            return False
        if not isinstance(error, Exception):
            return False
        log.error(
            "message failed: msgId=%s topic=%s",
            self.message_id,
            self.topic,
            exc_info=error,
        )
        self.retry()
        return True


def received(
    record: Record,
    broker_name: str,
    reconsume_times: int,
    settle: Settle | None = None,
    uncompressed_max: int = UNCOMPRESSED_MAX,
) -> ReceivedMessage:
    """A stored record as a consumer receives it.

    :param uncompressed_max: maximum size of the decompressed body in bytes.
    :raises DamagedBody: the body does not match its checksum.
    :raises MessageError: the body cannot be decompressed, or is larger than `uncompressed_max`.
    """
    properties = record.properties
    offset_message_id = record.offset_message_id
    return ReceivedMessage(
        properties.get(RETRY_TOPIC, record.topic),
        plain_body(record.body, record.sys_flag, uncompressed_max, record.body_crc),
        properties.get(TAGS),
        tuple(properties.get(KEYS, "").split()),
        properties,
        properties.get(UNIQ_KEY, offset_message_id),
        offset_message_id,
        MessageQueue(record.topic, broker_name, record.queue_id),
        record.queue_offset,
        record.physical_offset,
        record.born_ms,
        record.store_ms,
        reconsume_times,
        record.flag,
        record.sys_flag,
        settle,
    )
