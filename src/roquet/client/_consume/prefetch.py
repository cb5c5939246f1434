"""Messages that were pulled and wait to be asked for."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable

from roquet.client._consume.process_queue import ProcessQueue
from roquet.client.received import ReceivedMessage, received
from roquet.protocol.records.compression import UNCOMPRESSED_MAX
from roquet.protocol.records.record import Record


class Delivery:
    """One handing over of one message; a message that failed here and could not be sent back has several.

    Keeps: it is settled at most once.
    """

    __slots__ = ("_settled", "broker_name", "reconsume_times", "record", "taken")

    def __init__(
        self, record: Record, broker_name: str, taken: ProcessQueue, reconsume_times: int
    ) -> None:
        self.record = record
        self.broker_name = broker_name
        self.taken = taken
        self.reconsume_times = reconsume_times
        self._settled = False

    def message(
        self,
        failed: Callable[[Delivery, int], None],
        dealt_with: Callable[[Delivery], None] | None = None,
        uncompressed_max: int = UNCOMPRESSED_MAX,
    ) -> ReceivedMessage:
        """:param failed: told the delay level of the next try.
        :param dealt_with: told when there is none.
        :raises DamagedBody: its body does not have its checksum.
        :raises MessageError: it cannot be decompressed, or not to so few bytes.
        """

        def settle(delay_level: int | None) -> None:
            if not self._settled:
                self._settled = True
                if delay_level is None:
                    self.done()
                elif not self.taken.dropped:
                    failed(self, delay_level)
                    return
                if dealt_with is not None:
                    dealt_with(self)

        return received(
            self.record, self.broker_name, self.reconsume_times, settle, uncompressed_max
        )

    def done(self) -> None:
        """Its queue may go on; of one that was taken away this counts only if somebody stores its progress later."""
        self.taken.done(self.record.queue_offset)

    def again(self) -> Delivery:
        return Delivery(self.record, self.broker_name, self.taken, self.reconsume_times + 1)


class DirectDelivery(Delivery):
    """One handing over of a message that an administrator wants consumed, whoever has its queue: it comes once, and
    nothing follows for the queue.

    :param settled: told once whether the message was dealt with.
    """

    __slots__ = ("_tell",)

    def __init__(self, record: Record, broker_name: str, settled: Callable[[bool], None]) -> None:
        super().__init__(
            record, broker_name, ProcessQueue(record.queue_offset), record.reconsume_times
        )
        self._tell = settled

    def done(self) -> None:
        self._tell(True)

    def failed(self) -> None:
        self._tell(False)


class PrefetchBuffer:
    """Keeps: nothing of a queue that was taken away is handed over; what came first goes first."""

    def __init__(self) -> None:
        self._deliveries: deque[Delivery] = deque()
        self._filled = asyncio.Event()
        self.closed = False

    def put(self, delivery: Delivery) -> None:
        self._deliveries.append(delivery)
        self._filled.set()

    def take(self) -> Delivery | None:
        """The next one, if there is one."""
        while self._deliveries:
            delivery = self._deliveries.popleft()
            if not delivery.taken.dropped:
                return delivery
            self.passed_over(delivery)
        return None

    def passed_over(self, delivery: Delivery) -> None:
        """Its queue was taken away before it was handed over."""

    async def next(self) -> Delivery | None:
        """The next one, as soon as there is one; None when the inbox is closed."""
        while not self.closed:
            delivery = self.take()
            if delivery is not None:
                return delivery
            self._filled.clear()
            await self._filled.wait()
        return None

    def close(self) -> None:
        """Nothing more is handed over."""
        self.closed = True
        self._deliveries.clear()
        self._filled.set()


class OrderedPrefetchBuffer(PrefetchBuffer):
    """Keeps: of each queue, one message at most is handed over and not yet dealt with; the others wait behind it."""

    def __init__(self) -> None:
        super().__init__()
        self._behind: dict[ProcessQueue, deque[Delivery]] = {}

    def put(self, delivery: Delivery) -> None:
        if isinstance(delivery, DirectDelivery):
            super().put(delivery)
        elif delivery.taken in self._behind:
            self._behind[delivery.taken].append(delivery)
        else:
            self._behind[delivery.taken] = deque()
            super().put(delivery)

    def put_again(self, delivery: Delivery) -> None:
        """The first of its queue was not dealt with: it is handed over once more, before those behind it."""
        super().put(delivery)

    def settled(self, delivery: Delivery) -> None:
        """The next of its queue may be handed over."""
        behind = self._behind.get(delivery.taken)
        if behind and not delivery.taken.dropped:
            super().put(behind.popleft())
        else:
            self._behind.pop(delivery.taken, None)

    def passed_over(self, delivery: Delivery) -> None:
        self._behind.pop(delivery.taken, None)

    def is_busy(self, taken: ProcessQueue) -> bool:
        """Whether a message of the queue is being dealt with, or waits to be."""
        return taken in self._behind
