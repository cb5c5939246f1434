"""The messages that a consumer hands out to the application."""

from __future__ import annotations

import asyncio
import logging
from functools import partial
from typing import ClassVar

from roquet.client._consume.in_progress import InProgress
from roquet.client._consume.prefetch import (
    Delivery,
    DirectDelivery,
    OrderedPrefetchBuffer,
    PrefetchBuffer,
)
from roquet.client._consume.redelivery import Redelivery
from roquet.client._consume.trace import ConsumeTrace
from roquet.client._send.trace_records import Outcome
from roquet.client.received import ReceivedMessage
from roquet.common.loop_time import now_s
from roquet.errors import MessageError
from roquet.protocol.records.message import UNIQ_KEY

log = logging.getLogger(__name__)


class MessageStream:
    """The messages of a consumer, in the order of its prefetch buffer, decoded when asked for.

    Messages that cannot be decoded are left out; `redelivery` handles them as failed ones.

    :param uncompressed_max: maximum size in bytes of a body after decompression.
    :param consume_timeout_s: as of `InProgress`.
    :param trace: traces the messages, if it is given.
    """

    _kind: ClassVar[type[ReceivedMessage]] = ReceivedMessage

    def __init__(
        self,
        prefetch: PrefetchBuffer,
        redelivery: Redelivery,
        uncompressed_max: int,
        consume_timeout_s: float | None,
        trace: ConsumeTrace | None = None,
    ) -> None:
        self._prefetch = prefetch
        self._redelivery = redelivery
        self._uncompressed_max = uncompressed_max
        self._trace = trace
        is_ordered = isinstance(prefetch, OrderedPrefetchBuffer)
        self.in_progress = InProgress(consume_timeout_s, None if is_ordered else self._expired)
        self._cancelled: set[str] = set()
        """The offset message ids of those whose handlers were cancelled."""
        self._has_told_late = False
        """Whether the log says that a message was acknowledged after the close."""
        self.stopped = prefetch.stopped
        """Set once no more messages are delivered."""

    async def next(self) -> ReceivedMessage | None:
        """Wait for the next message and return it; None once the consumer is stopped or closed."""
        while (delivery := await self._prefetch.next()) is not None:
            message = self._open(delivery, now_s())
            if message is not None:
                return message
        return None

    async def some(self, count_max: int, timeout_ms: int) -> list[ReceivedMessage]:
        """Wait for a message; return it and those that are already here.

        The list ends early when the bodies together reach `uncompressed_max` bytes.

        :param timeout_ms: how long to wait for the first message; the list is empty after that.
        """
        message = self.next_here()
        if message is None:
            try:
                async with asyncio.timeout(timeout_ms / 1000):
                    message = await self.next()
            except TimeoutError:
                return []
        began_s = now_s()  # once for the list: reading the clock takes as long as handing out
        messages: list[ReceivedMessage] = []
        size = 0
        while message is not None:
            messages.append(message)
            size += len(message.body)
            is_full = len(messages) >= count_max or size >= self._uncompressed_max
            message = None if is_full else self._next_here(began_s)
        return messages

    def next_here(self) -> ReceivedMessage | None:
        """The next message that is already here; None if there is none."""
        return self._next_here(now_s())

    def _next_here(self, began_s: float) -> ReceivedMessage | None:
        while (delivery := self._prefetch.take()) is not None:
            message = self._open(delivery, began_s)
            if message is not None:
                return message
        return None

    def _open(self, delivery: Delivery, began_s: float) -> ReceivedMessage | None:
        """Decode the body of a message; None if it cannot be decoded.

        :param began_s: the time of the event loop now.
        """
        try:
            message = delivery.message(self, began_s, self._kind)
            _ = message.body  # decoded here: the application gets no message that cannot be
        except MessageError as error:
            self._redelivery.unreadable(delivery, error)
            return None
        self.in_progress.add(delivery, began_s)
        if self._trace is not None:
            delivery.on_settled = self._trace.delivered(message)
        return message

    def failed(self, delivery: Delivery, delay_level: int) -> None:
        """Called for a delivery that the application wants to be repeated."""
        self.in_progress.remove(delivery)
        self._redelivery.failed(delivery, delay_level)

    def settled(self, delivery: Delivery) -> None:
        """Called for a delivery that is settled, so that its queue may continue."""
        self.in_progress.remove(delivery)
        self._prefetch.settled(delivery)

    def _expired(self, delivery: Delivery, delay_level: int) -> None:
        self._redelivery.failed(delivery, delay_level)

    def handler_cancelled(self, message: ReceivedMessage) -> None:
        """Called for a message that is not settled as its handler was cancelled, which is told."""
        self._cancelled.add(message.offset_message_id)

    def close(self) -> int:
        """Called when the consumer is closed: what is not settled now does not count any more.

        :returns: how many messages the application has and has not settled, without those whose
            handlers were cancelled.
        """
        forgotten = 0
        for delivery in self.in_progress.deliveries():
            delivery.on_settled = partial(self._settled_too_late, delivery)
            is_told = delivery.record.offset_message_id in self._cancelled
            forgotten += not is_told and not isinstance(delivery, DirectDelivery)
        return forgotten

    def _settled_too_late(self, delivery: Delivery, outcome: Outcome) -> None:
        if outcome is not Outcome.ACKNOWLEDGED or isinstance(delivery, DirectDelivery):
            return
        record = delivery.record
        # More of them, of a loop that goes on, say nothing new.
        log.log(
            logging.DEBUG if self._has_told_late else logging.WARNING,
            "message was acknowledged after its consumer was closed, it comes again: topic=%s "
            "broker=%s queue=%d offset=%d msgId=%s",
            record.topic,
            delivery.broker_name,
            record.queue_id,
            record.queue_offset,
            record.properties.get(UNIQ_KEY, record.offset_message_id),
        )
        self._has_told_late = True
