"""PURE: the choice of the queue for a send.

See docs/protocol/producing.md#choosing-a-queue.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Sequence
from typing import Final, TypeAlias

from roquet.common.java import INT_MAX
from roquet.errors import MessageError
from roquet.protocol.records.message import MessageQueue, java_hash

LATENCY_STEPS_MS: Final = (50, 100, 550, 1000, 2000, 3000, 15000)
AVOIDED_FOR_MS: Final = (0, 0, 30_000, 60_000, 120_000, 180_000, 600_000)
"""For each step: how long a broker is avoided after a send that took at least that long."""
FAILURE_LATENCY_MS: Final = 30_000
"""The latency that a failed send counts as."""


def queue_for_sharding_key(queues: Sequence[MessageQueue], key: str) -> MessageQueue:
    """The queue of a sharding key, as long as the topic's queues do not change.

    The rule is Apache's SelectMessageQueueByHash, so that clients in all languages agree.
    """
    return queues[abs(java_hash(key)) % len(queues)]


Pick: TypeAlias = Callable[[Sequence[MessageQueue]], MessageQueue]
"""Queues of a topic -> the queue that a message must be sent to."""


def pick_of(
    topic: str, sharding_key: str | None = None, queue: MessageQueue | None = None
) -> Pick | None:
    """How a send's arguments fix its queue; None if any queue will do.

    :raises MessageError: `queue` belongs to another topic, or its id is out of range.
    """
    if queue is not None:
        if queue.topic != topic:
            raise MessageError(f"queue {queue} is not one of topic {topic}")
        if not 0 <= queue.queue_id <= INT_MAX:
            raise MessageError(f"queue {queue}: a queue id is a number from 0 to {INT_MAX}")
        return lambda _: queue
    if sharding_key is not None:
        return lambda queues: queue_for_sharding_key(queues, sharding_key)
    return None


class RoundRobin:
    """Chooses one queue after the other.

    :param start: a random number, so that producers do not all begin with the same queue.
    """

    def __init__(self, start: int) -> None:
        self._count = start

    def next(
        self, queues: Sequence[MessageQueue], avoided: Container[str] = frozenset()
    ) -> MessageQueue:
        """The next queue whose broker is not avoided; the next queue of any broker if all are.

        :param avoided: broker names.
        """
        first = self._step(queues)
        if first.broker_name not in avoided:
            return first
        for _ in queues[1:]:
            queue = self._step(queues)
            if queue.broker_name not in avoided:
                return queue
        return first

    def _step(self, queues: Sequence[MessageQueue]) -> MessageQueue:
        self._count += 1
        return queues[self._count % len(queues)]


class LatencyFaults:
    """The brokers that are avoided for a while because their last send was slow or failed.

    `now_ms` is the time of the event loop in ms.
    """

    def __init__(self) -> None:
        self._avoided_until_ms: dict[str, float] = {}

    def record_send(self, broker_name: str, latency_ms: float, now_ms: float) -> None:
        """Record the latency of a send; that of a failed one is `FAILURE_LATENCY_MS`."""
        for step_ms, avoided_for_ms in zip(
            reversed(LATENCY_STEPS_MS), reversed(AVOIDED_FOR_MS), strict=True
        ):
            if latency_ms >= step_ms:
                self._avoided_until_ms[broker_name] = now_ms + avoided_for_ms
                return
        self._avoided_until_ms.pop(broker_name, None)

    def avoided(self, now_ms: float) -> set[str]:
        """The names of the brokers that are avoided now."""
        return {name for name, until_ms in self._avoided_until_ms.items() if until_ms > now_ms}
