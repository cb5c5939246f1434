"""Failed messages: brokers deliver them again, or the dead letter topic gets them.

See docs/protocol/consuming.md#sending-a-message-back.
"""

from __future__ import annotations

import asyncio
import logging
from typing import ClassVar, Final

from roquet.client._consume.prefetch import Delivery, DirectDelivery, PrefetchBuffer
from roquet.client._consume.send_back import NoSendBack, SendBack
from roquet.client._net.tasks import Tasks
from roquet.client.received import DEAD_LETTER_LEVEL
from roquet.errors import DamagedBody, MessageError
from roquet.protocol.records.message import UNIQ_KEY

log = logging.getLogger(__name__)

REDELIVERY_PAUSE_S: Final = 5.0
"""Pause before this consumer delivers a failed message again that no broker took back."""
SUSPEND_MS: Final = 1000
SUSPEND_MS_MIN: Final = 10
SUSPEND_MS_MAX: Final = 30_000
"""Pause before an ordered consumer delivers a failed message again: the default, and what is
allowed, as in Java's client."""
FINISH_S_MAX: Final = 3.0
"""How long closing waits for the brokers to take back failed messages."""


class Redelivery:
    """Sends failed messages back to the brokers, which deliver them again.

    A message that no broker takes back is delivered again by this consumer.

    Invariant: a failed message is settled in its process queue only after a broker took it back.
    """

    # No retry of a damaged body: the broker would store the retry with a checksum of the damaged
    # bytes, and the next delivery would accept it.
    _UNRECOVERABLE: ClassVar[type[MessageError]] = DamagedBody
    """Messages whose bodies cause this error go to the dead letter topic at once."""

    def __init__(self, prefetch: PrefetchBuffer, send_back: SendBack | NoSendBack) -> None:
        self._prefetch = prefetch
        self._send_back = send_back
        self._tasks = Tasks()

    def failed(self, delivery: Delivery, delay_level: int = 0) -> None:
        """Have a failed message delivered again. This returns at once.

        :param delay_level: as of `ReceivedMessage.retry`.
        """
        if isinstance(delivery, DirectDelivery):
            delivery.failed()
        elif not self._prefetch.closed:
            delivery.process_queue.counters.failed += 1
            work = self._deliver_again(delivery, delay_level)
            self._tasks.start(work, f"send back {delivery.record.offset_message_id}")

    def unreadable(self, delivery: Delivery, error: MessageError) -> None:
        """Handle a message whose body cannot be decoded as a failed one, and log it."""
        _log_unreadable(delivery, error)
        self.failed(delivery, DEAD_LETTER_LEVEL if isinstance(error, self._UNRECOVERABLE) else 0)

    async def _deliver_again(self, delivery: Delivery, delay_level: int) -> None:
        if await self._send_back.send_back(delivery, delay_level):
            delivery.done()
        elif not self._prefetch.closed:
            await asyncio.sleep(REDELIVERY_PAUSE_S)
            self._prefetch.put(delivery.again())

    async def finish(self) -> None:
        """Wait for the brokers to take back the failed messages, for a limited time."""
        await self._tasks.finish(FINISH_S_MAX)


class OrderedRedelivery(Redelivery):
    """Delivers failed messages of ordered queues again itself, before the messages after them.

    :param max_reconsume_times: after so many deliveries more a message goes to the dead letter
        topic, and the next message of its queue is delivered; None means never.
    :param suspend_ms: the pause before a failed message is delivered again, in ms.
    """

    # No retry in order: the messages after this one would never be delivered.
    _UNRECOVERABLE = MessageError

    def __init__(
        self,
        prefetch: PrefetchBuffer,
        send_back: SendBack | NoSendBack,
        max_reconsume_times: int | None,
        suspend_ms: int = SUSPEND_MS,
    ) -> None:
        super().__init__(prefetch, send_back)
        self._max_reconsume_times = max_reconsume_times
        self._suspend_s = suspend_ms / 1000

    async def _deliver_again(self, delivery: Delivery, delay_level: int) -> None:
        times_max = self._max_reconsume_times
        is_over = delay_level < 0
        is_over |= times_max is not None and delivery.reconsume_times >= times_max
        if is_over and await self._send_back.give_up(delivery):
            delivery.done()
            self._prefetch.settled(delivery)
        elif not self._prefetch.closed:
            await asyncio.sleep(self._suspend_s)
            self._prefetch.put_again(delivery.again())


def _log_unreadable(delivery: Delivery, error: MessageError) -> None:
    """Log a message that cannot be decoded: as an error, but its retries at level DEBUG."""
    record = delivery.record
    log.log(
        logging.DEBUG if delivery.reconsume_times else logging.ERROR,
        "message cannot be opened, it counts as failed: "
        "topic=%s broker=%s queue=%d offset=%d msgId=%s error=%s",
        record.topic,
        delivery.broker_name,
        record.queue_id,
        record.queue_offset,
        record.properties.get(UNIQ_KEY, record.offset_message_id),
        error.__cause__ or error,  # without the message's name, which this line has
    )
