"""The prefetch buffer: messages that were pulled and not yet delivered to the application."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterator
from itertools import chain
from typing import Protocol

from roquet.client._consume.process_queue import ProcessQueue
from roquet.client._consume.statistics import TIMED_EVERY
from roquet.client._send.trace_records import Outcome
from roquet.client.received import MessageSource, ReceivedMessage
from roquet.protocol.records.record import Record


class DeliveryOwner(Protocol):
    """Is told of each delivery when the application has settled it."""

    def failed(self, delivery: Delivery, delay_level: int) -> None:
        """The application asks for another delivery; the broker's delay level of that."""

    def settled(self, delivery: Delivery) -> None:
        """The message is settled, and its queue may continue."""


class Delivery:
    """One delivery of one message to the application.

    A message that failed and could not be sent back is delivered several times.

    Invariant: a delivery is settled at most once.

    :param source: what the message has in common with those of the same pull.
    """

    __slots__ = (
        "_began_s",
        "_owner",
        "_settled",
        "on_settled",
        "process_queue",
        "reconsume_times",
        "record",
        "source",
    )

    _owner: DeliveryOwner
    _began_s: float | None

    def __init__(
        self,
        record: Record,
        source: MessageSource,
        process_queue: ProcessQueue,
        reconsume_times: int,
    ) -> None:
        self.record = record
        self.source = source
        self.process_queue = process_queue
        self.reconsume_times = reconsume_times
        self.on_settled: Callable[[Outcome], None] | None = None
        """Called once with how the handling ended."""
        self._settled = False

    def message(
        self,
        owner: DeliveryOwner,
        began_s: float = 0.0,
        kind: type[ReceivedMessage] = ReceivedMessage,
    ) -> ReceivedMessage:
        """The message as the application gets it.

        :param owner: told when the message is settled.
        :param began_s: the time of the event loop now.
        :param kind: the class of the message.
        """
        counters = self.process_queue.counters
        counters.handed_out += 1
        self._owner = owner
        self._began_s = began_s if counters.handed_out % TIMED_EVERY == 1 else None
        return kind(self.record, self.source, self.reconsume_times, self._settle)

    def _settle(self, delay_level: int | None) -> None:
        if not self.settle_once(Outcome.ACKNOWLEDGED if delay_level is None else Outcome.FAILED):
            return
        process_queue = self.process_queue
        counters = process_queue.counters
        if self._began_s is not None and process_queue.clock is not None:
            counters.timed += 1
            counters.timed_ms += (process_queue.clock() - self._began_s) * 1000
        if delay_level is None:
            counters.acked += 1
            self.done()
        elif not process_queue.dropped:
            self._owner.failed(self, delay_level)
            return
        self._owner.settled(self)

    @property
    def broker_name(self) -> str:
        return self.source.broker_name

    def settle_once(self, outcome: Outcome) -> bool:
        """Note that this delivery is settled; return False if it was settled before."""
        if self._settled:
            return False
        self._settled = True
        if self.on_settled is not None:
            self.on_settled(outcome)
        return True

    def done(self) -> None:
        """Settle the message in its process queue."""
        self.process_queue.done(self.record.queue_offset)

    def again(self) -> Delivery:
        """The next delivery of the same message."""
        return Delivery(self.record, self.source, self.process_queue, self.reconsume_times + 1)


class DirectDelivery(Delivery):
    """The delivery of a message that an administrator sent to this consumer.

    It has no effect on the message's queue or its offset.

    :param settled: called once, with whether the application acknowledged the message.
    """

    __slots__ = ("_tell",)

    def __init__(
        self, record: Record, source: MessageSource, settled: Callable[[bool], None]
    ) -> None:
        super().__init__(record, source, ProcessQueue(record.queue_offset), record.reconsume_times)
        self._tell = settled

    def done(self) -> None:
        self._tell(True)

    def failed(self) -> None:
        self._tell(False)


class PrefetchBuffer:
    """Messages that wait for the application, in the order in which they were pulled.

    Invariant: no message of a queue that is dropped or paused is delivered. `_set_aside` has the
    messages of paused queues whose turn came.
    """

    def __init__(self) -> None:
        self._deliveries: deque[Delivery] = deque()
        self._set_aside: dict[ProcessQueue, deque[Delivery]] = {}
        self._filled = asyncio.Event()
        self.stopped = asyncio.Event()
        self.closed = False

    def put(self, delivery: Delivery) -> None:
        if self.stopped.is_set():
            self.discarded(delivery)
            return
        self._deliveries.append(delivery)
        self._filled.set()

    def put_all(self, deliveries: list[Delivery]) -> None:
        """As `put`, of those of a pull."""
        if self.stopped.is_set():
            for delivery in deliveries:
                self.discarded(delivery)
        elif deliveries:
            self._deliveries.extend(deliveries)
            self._filled.set()

    async def deliver_directly(self, record: Record, source: MessageSource) -> bool:
        """Deliver a message that an administrator sent.

        Returns whether the application acknowledged it.
        """
        outcome: asyncio.Future[bool] = asyncio.get_running_loop().create_future()

        def settled(is_done: bool) -> None:
            if not outcome.done():
                outcome.set_result(is_done)

        delivery = DirectDelivery(record, source, settled)
        self.put(delivery)
        try:
            return await outcome
        finally:
            # The administrator waits no longer: nobody must get the message after that.
            delivery.process_queue.drop()

    def take(self) -> Delivery | None:
        """Remove and return the next delivery, or None if the buffer is empty."""
        while self._deliveries:
            delivery = self._deliveries.popleft()
            if delivery.process_queue.deliverable:
                return delivery
            if delivery.process_queue.dropped:
                self.discarded(delivery)
            else:
                self._set_aside.setdefault(delivery.process_queue, deque()).append(delivery)
        return None

    def restore(self, process_queue: ProcessQueue) -> None:
        """Called for a queue that is not paused any more."""
        deliveries = self._set_aside.pop(process_queue, None)
        if deliveries:
            self._deliveries.extendleft(reversed(deliveries))
            self._filled.set()

    def forget(self, process_queue: ProcessQueue) -> None:
        """Called for a queue that was dropped."""
        self._set_aside.pop(process_queue, None)

    def next_offset(self, process_queue: ProcessQueue) -> int | None:
        """The lowest offset of the messages of a queue that wait here; None if there is none."""
        return min(
            (each.record.queue_offset for each in self._waiting_of(process_queue)), default=None
        )

    def next_offsets(self) -> dict[ProcessQueue, int]:
        """As `next_offset`, of all queues of which messages wait here."""
        found: dict[ProcessQueue, int] = {}
        for delivery in self._all_waiting():
            offset = delivery.record.queue_offset
            found[delivery.process_queue] = min(found.get(delivery.process_queue, offset), offset)
        return found

    def _all_waiting(self) -> Iterator[Delivery]:
        return chain(self._deliveries, *self._set_aside.values())

    def _waiting_of(self, process_queue: ProcessQueue) -> Iterator[Delivery]:
        waiting = chain(self._deliveries, self._set_aside.get(process_queue, ()))
        return (each for each in waiting if each.process_queue is process_queue)

    def put_again(self, delivery: Delivery) -> None:
        """Deliver a failed message again."""
        self.put(delivery)

    def settled(self, delivery: Delivery) -> None:
        """Called for a delivery that was settled and will not be repeated."""

    def discarded(self, delivery: Delivery) -> None:
        """Called for a delivery that is discarded: its queue was dropped, or the buffer stopped."""

    def is_busy(self, process_queue: ProcessQueue) -> bool:  # noqa: ARG002 - ordered ones need it
        """Whether the application must settle a message of the queue before another may come."""
        return False

    def is_consumed(self, process_queue: ProcessQueue) -> bool:  # noqa: ARG002 - as above
        """Whether the application has the queue's one message that it may have now."""
        return False

    async def next(self) -> Delivery | None:
        """Wait for the next delivery and return it; None once the buffer is stopped or closed.

        If the wait is cancelled, no delivery is lost: one is taken only to be returned.
        """
        while not self.stopped.is_set():
            delivery = self.take()
            if delivery is not None:
                return delivery
            self._filled.clear()
            await self._filled.wait()
        return None

    def stop(self) -> None:
        """Discard all messages and end all waits in `next`. Those delivered can be settled."""
        self.stopped.set()
        for delivery in self._deliveries:
            self.discarded(delivery)
        self._deliveries.clear()
        self._set_aside.clear()
        self._filled.set()

    def close(self) -> None:
        """Stop, and let no failed message be delivered again."""
        self.stop()
        self.closed = True


class OrderedPrefetchBuffer(PrefetchBuffer):
    """A prefetch buffer that delivers the messages of each queue one at a time.

    Invariant: at most one message of a queue is delivered and not settled. The next messages of the
    queue are in `_waiting`. `_consumed` has the queues whose message the application has.
    """

    def __init__(self) -> None:
        super().__init__()
        self._waiting: dict[ProcessQueue, deque[Delivery]] = {}
        self._consumed: set[ProcessQueue] = set()

    def put_all(self, deliveries: list[Delivery]) -> None:
        for delivery in deliveries:
            self.put(delivery)

    def put(self, delivery: Delivery) -> None:
        if isinstance(delivery, DirectDelivery):
            super().put(delivery)
        elif delivery.process_queue in self._waiting:
            self._waiting[delivery.process_queue].append(delivery)
        else:
            self._waiting[delivery.process_queue] = deque()
            super().put(delivery)

    def take(self) -> Delivery | None:
        delivery = super().take()
        if delivery is not None and not isinstance(delivery, DirectDelivery):
            self._consumed.add(delivery.process_queue)
        return delivery

    def put_again(self, delivery: Delivery) -> None:
        """Deliver a failed message again, before the next messages of its queue."""
        self._consumed.discard(delivery.process_queue)
        if delivery.process_queue.dropped:
            self.discarded(delivery)
        else:
            super().put(delivery)

    def forget(self, process_queue: ProcessQueue) -> None:
        """Called for a queue that was dropped. It is busy only if a message was delivered."""
        if process_queue not in self._consumed:
            self._waiting.pop(process_queue, None)
        super().forget(process_queue)

    def settled(self, delivery: Delivery) -> None:
        """Allow the next message of the queue to be delivered."""
        self._consumed.discard(delivery.process_queue)
        waiting = self._waiting.get(delivery.process_queue)
        if waiting and not delivery.process_queue.dropped:
            super().put(waiting.popleft())
        else:
            self._waiting.pop(delivery.process_queue, None)

    def discarded(self, delivery: Delivery) -> None:
        self._waiting.pop(delivery.process_queue, None)

    def _waiting_of(self, process_queue: ProcessQueue) -> Iterator[Delivery]:
        return chain(super()._waiting_of(process_queue), self._waiting.get(process_queue, ()))

    def _all_waiting(self) -> Iterator[Delivery]:
        return chain(super()._all_waiting(), *self._waiting.values())

    def is_busy(self, process_queue: ProcessQueue) -> bool:
        """Whether a message of the queue is delivered and not settled, or waits for delivery."""
        return process_queue in self._waiting

    def is_consumed(self, process_queue: ProcessQueue) -> bool:
        return process_queue in self._consumed
