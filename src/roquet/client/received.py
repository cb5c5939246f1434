"""A message as a consumer gets it, and how it is settled."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import TracebackType
from typing import Final, Self

from roquet.common.units import INT_MAX, INT_MIN
from roquet.errors import MessageError
from roquet.protocol.records.compression import UNCOMPRESSED_MAX, plain_body
from roquet.protocol.records.message import KEYS, RETRY_TOPIC, TAGS, UNIQ_KEY, MessageQueue
from roquet.protocol.records.record import Record

log = logging.getLogger(__name__)

Settle = Callable[[int | None], None]
"""Told once how it went: None for a message that was dealt with, else the delay level of the next try."""
NEVER_AGAIN: Final = -1
"""Instead of a delay level: the message goes to the dead letters at once."""


@dataclass(frozen=True)
class ReceivedMessage:
    """One message, settled in one of three ways:

    - by asking for the next one: `async for message in consumer` acknowledges the message before;
    - `async with message:` acknowledges it at the end of the block. An exception in the block is logged, goes no
      further, and the message comes again later (cancellation and other exits of the program pass through and
      settle nothing);
    - `message.ack()` or `message.retry()`.

    What nobody settles comes again to whoever consumes the queue next.

    `topic` is the one it was sent to, also when it comes again; `queue` and `queue_offset` say where it lies now.
    `properties` holds the system's, too. `body` is decompressed. Times are ms since the epoch.
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
        """It is dealt with. Only the first of all calls of `ack` and `retry` counts."""
        if self._settle is not None:
            self._settle(None)

    def retry(self, delay_level: int = 0) -> None:
        """It could not be dealt with and shall come again later: in 10 s, 30 s, 1 min ... 2 h, then never more.

        After `max_reconsume_times` of the consumer the broker puts it among the dead letters (`%DLQ%group`).
        A consumer that is `ordered` brings it again after a second, one that is to `broadcast` never.

        :param delay_level: of the broker (1 s, 5 s, 10 s ...) instead of the usual one; -1: among the dead letters now.
        :raises MessageError: no broker has such a level; the message is not settled.
        """
        if not INT_MIN <= delay_level <= INT_MAX:
            raise MessageError(
                f"delay_level is {delay_level}: -1 is among the dead letters, 1 the shortest delay"
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
        log.error("message %s of %s failed", self.message_id, self.topic, exc_info=error)
        self.retry()
        return True


def received(
    record: Record,
    broker_name: str,
    reconsume_times: int,
    settle: Settle | None = None,
    uncompressed_max: int = UNCOMPRESSED_MAX,
) -> ReceivedMessage:
    """
    :raises DamagedBody: the body does not have its checksum.
    :raises MessageError: it cannot be decompressed, or has more bytes than `uncompressed_max` then.
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
