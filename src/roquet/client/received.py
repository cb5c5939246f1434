"""Received messages, and how a consumer settles them."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from threading import get_ident
from types import TracebackType
from typing import Final, Self

from roquet.common.java import INT_MAX, INT_MIN
from roquet.errors import MessageError
from roquet.protocol.records.compression import UNCOMPRESSED_MAX, plain_body
from roquet.protocol.records.layout import record_struct
from roquet.protocol.records.message import KEYS, RETRY_TOPIC, TAGS, UNIQ_KEY, MessageQueue
from roquet.protocol.records.namespace import NO_NAMESPACE, Namespace
from roquet.protocol.records.record import Record, host_bits, host_text

log = logging.getLogger(__name__)

Settle = Callable[[int | None], None]
"""Called once per delivery: with None for ack, else with the delay level of the next delivery."""
CallSoon = Callable[[Settle, int | None], object]
"""Has a loop call a function soon, from any thread."""
DEAD_LETTER_LEVEL: Final = -1
"""The delay level that sends a message to the dead letter topic."""


@dataclass(frozen=True, slots=True)
class MessageSource:
    """What the messages of one answer have in common.

    :param broker_name: of the queue; empty for a reply.
    :param bounds: minimum and maximum offset of the queue when the messages were pulled.
    :param uncompressed_max: maximum size of a decompressed body in bytes.
    :param names: the namespace of the client.
    """

    broker_name: str = ""
    bounds: tuple[int, int] | None = None
    uncompressed_max: int = UNCOMPRESSED_MAX
    names: Namespace = NO_NAMESPACE


class ReceivedMessage:
    """A message as a consumer, a pull, a query or a request's reply returns it.

    A message of a `Consumer` is settled in one of three ways:

    - by asking for the next message: `async for message in consumer` acknowledges the one before;
    - by `async with message:`, or `with message:` in code without `await`, which acknowledges it
      at the end of the block. An exception in the block is logged and suppressed, and the message
      is delivered again later. Exceptions that are no `Exception`, such as
      `asyncio.CancelledError`, pass through and settle nothing;
    - by `message.ack()` or `message.retry()`.

    A message that is not settled is delivered again, to the next consumer of its queue. Messages of
    others than a `Consumer` cannot be settled.

    Properties and body are decoded when they are first asked for. Times are milliseconds since
    1970. Clients make the messages; two messages are equal only if they are the same object.

    """

    __slots__ = (
        "_body",
        "_properties",
        "_queue",
        "_record",
        "_settle",
        "_source",
        "reconsume_times",
    )

    def __init__(
        self,
        record: Record,
        source: MessageSource,
        reconsume_times: int,
        settle: Settle | None = None,
    ) -> None:
        self._record = record
        self._source = source
        self._settle = settle
        self._properties: dict[str, str] | None = None
        self._body: bytes | None = None
        self._queue: MessageQueue | None = None
        self.reconsume_times = reconsume_times

    @property
    def topic(self) -> str:
        """The topic that the message was sent to, also in later deliveries."""
        return self._source.names.plain(self.properties.get(RETRY_TOPIC, self._record.topic))

    @property
    def body(self) -> bytes:
        """The body as it was sent, decompressed.

        :raises DamagedBody: the stored body does not match its checksum.
        :raises MessageError: the body cannot be decompressed, or is too large. A `Consumer` does
            not deliver such messages; of a pull all other messages can be used.
        """
        if self._body is None:
            record = self._record
            try:
                self._body = plain_body(
                    record.body, record.sys_flag, self._source.uncompressed_max, record.body_crc
                )
            except MessageError as error:
                raise type(error)(
                    f"message {self.message_id} of {self.queue} at offset {self.queue_offset}: "
                    f"{error}"
                ) from error
        return self._body

    @property
    def stored_body(self) -> bytes:
        """The body as it is stored, perhaps compressed, also if it cannot be decoded."""
        return self._record.body

    @property
    def properties(self) -> Mapping[str, str]:
        """All properties, including the system properties."""
        if self._properties is None:
            self._properties = self._record.properties
        return self._properties

    @property
    def tags(self) -> str | None:
        """The tag, or None."""
        return self.properties.get(TAGS)

    @property
    def keys(self) -> tuple[str, ...]:
        """The words by which the message can be queried."""
        return tuple(self.properties.get(KEYS, "").split())

    @property
    def message_id(self) -> str:
        """The unique key, which the producer made; else the offset message id."""
        return self.properties.get(UNIQ_KEY) or self.offset_message_id

    @property
    def offset_message_id(self) -> str:
        """The broker's id, which names host and physical offset. That of a reply is not known: ''.

        See docs/protocol/messages.md#offset-message-id.
        """
        return self._record.offset_message_id if self._record.store_host else ""

    @property
    def queue(self) -> MessageQueue:
        """The queue in which the message is stored now."""
        if self._queue is None:
            record = self._record
            topic = self._source.names.plain(record.topic)
            self._queue = MessageQueue(topic, self._source.broker_name, record.queue_id)
        return self._queue

    @property
    def queue_offset(self) -> int:
        """Where the message is stored now in `queue`. That of a reply is not known: -1."""
        return self._record.queue_offset

    @property
    def physical_offset(self) -> int:
        """Where the message is stored now in the broker's commit log; -1 for a reply."""
        return self._record.physical_offset

    @property
    def min_offset(self) -> int | None:
        """The offset of the oldest message of the queue when this one was pulled.

        None if it was not pulled from a queue: a reply, a message found by key or id.
        """
        bounds = self._source.bounds
        return None if bounds is None else bounds[0]

    @property
    def max_offset(self) -> int | None:
        """The offset that the queue's next message had when this one was pulled, else None.

        `max_offset - queue_offset - 1` messages were behind this one.
        """
        bounds = self._source.bounds
        return None if bounds is None else bounds[1]

    @property
    def born_time_ms(self) -> int:
        """When the producer made the message."""
        return self._record.born_ms

    @property
    def store_time_ms(self) -> int:
        """When the broker stored the message."""
        return self._record.store_ms

    @property
    def born_host(self) -> str:
        """The producer's `address:port` as the broker saw it; empty if it is not known."""
        return host_text(self._record.born_host) if self._record.born_host else ""

    @property
    def store_host(self) -> str:
        """The broker's `address:port`; empty if it is not known."""
        return host_text(self._record.store_host) if self._record.store_host else ""

    @property
    def store_size(self) -> int:
        """The size of the stored message in bytes, with its properties and all other fields."""
        record = self._record
        topic, properties = record.topic.encode(), record.properties_text.encode()
        return record_struct(
            host_bits(record.born_host, record.store_host),
            len(record.body),
            len(topic),
            len(properties),
        ).size

    @property
    def prepared_offset(self) -> int:
        """Where its half message was in the commit log; 0 if it was sent in no transaction."""
        return self._record.prepared_offset

    @property
    def flag(self) -> int:
        """The application's number."""
        return self._record.flag

    @property
    def sys_flag(self) -> int:
        """The protocol's bits (docs/protocol/messages.md#sysflag)."""
        return self._record.sys_flag

    def __repr__(self) -> str:
        return (
            f"ReceivedMessage(topic={self.topic!r}, queue={str(self.queue)!r}, "
            f"queue_offset={self.queue_offset}, message_id={self.message_id!r}, "
            f"tags={self.tags!r}, keys={self.keys!r}, "
            f"stored_body={len(self._record.body)} bytes)"
        )

    def ack(self) -> None:
        """Acknowledge the message. Only the first call of `ack` or `retry` has an effect.

        :raises MessageError: it is no message of a `Consumer`.
        """
        (self._settle or self._settled_by("ack"))(None)

    def retry(self, delay_level: int = 0) -> None:
        """Have the message delivered again later: after 10 s, then 30 s, 1 min, ... 2 h.

        After the consumer's `max_reconsume_times` deliveries the broker moves it to the dead letter
        topic `%DLQ%group`. An `ordered` consumer delivers it again after its `suspend_ms`. A
        consumer with `broadcast` (and not `ordered`) does not deliver it again.

        :param delay_level: the broker's delay level (by default 1 is 1 s, 2 is 5 s, 3 is 10 s ...)
            of the next delivery. 0 means the usual one; -1 moves the message to the dead letter
            topic now.
        :raises MessageError: the level is not a 32-bit number, or it is no message of a
            `Consumer`; the message is not settled.
        """
        settle = self._settled_by("retry")
        if type(delay_level) is not int or not INT_MIN <= delay_level <= INT_MAX:
            raise MessageError(
                f"delay_level is {delay_level!r}: allowed are 32-bit numbers, -1 for the dead "
                "letter topic, 0 for the usual delay, from 1 on for the broker's levels"
            )
        settle(delay_level)

    def _settled_by(self, method: str) -> Settle:
        if self._settle is None:
            raise MessageError(
                f"{method}() of message {self.message_id}: only messages of a Consumer are "
                "settled; who pulls commits offsets with PullConsumer.commit"
            )
        return self._settle

    def settle_in_this_thread(self, soon: CallSoon) -> None:
        """Let `ack` and `retry` be called from any thread. Clients call this in their loop's.

        :param soon: `call_soon_threadsafe` of the loop.
        """
        if self._settle is not None:
            self._settle = partial(_settle_in_thread, get_ident(), soon, self._settle)

    async def __aenter__(self) -> Self:
        return self.__enter__()

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> bool:
        return self.__exit__(kind, error, trace)

    def __enter__(self) -> Self:
        self._settled_by("with")
        return self

    def __exit__(
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


def _settle_in_thread(thread: int, soon: CallSoon, settle: Settle, delay_level: int | None) -> None:
    """Call `settle` in the thread of the loop. Calls of one thread keep their order."""
    if get_ident() == thread:
        settle(delay_level)
        return
    # A loop that is closed has closed its consumer: the message is delivered again to another.
    with suppress(RuntimeError):
        soon(settle, delay_level)
