"""PURE: the choice of the queue for a send.

See docs/protocol/producing.md#choosing-a-queue.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Sequence
from typing import Final

from roquet.protocol.records.message import MessageQueue, java_hash

LATENCY_STEPS_MS: Final = (50, 100, 550, 1000, 2000, 3000, 15000)
AVOIDED_FOR_MS: Final = (0, 0, 30_000, 60_000, 120_000, 180_000, 600_000)
"""For each step: how long the broker of a send is avoided that took at least that long."""
FAILURE_LATENCY_MS: Final = 30_000
"""The latency that a failed send counts as."""


def queue_of_key(queues: Sequence[MessageQueue], key: str) -> MessageQueue:
    """The queue of a sharding key, as long as the topic's queues do not change.

    The rule is Apache's SelectMessageQueueByHash, so that clients in all languages agree.
    """
    return queues[abs(java_hash(key)) % len(queues)]


class RoundRobin:
    """Chooses one queue after the other.

    :param start: a random number, so that producers do not all begin with the same queue.
    """

    def __init__(self, start: int) -> None:
        self._count = start

    def next(
        self, queues: Sequence[MessageQueue], suits: Callable[[str], bool] | None = None
    ) -> MessageQueue:
        """The next queue whose broker `suits`; the next queue of any broker if none does.

        :param suits: broker name -> whether it may be chosen; None means that all may.
        """
        first = self._step(queues)
        if suits is None or suits(first.broker_name):
            return first
        for _ in queues[1:]:
            queue = self._step(queues)
            if suits(queue.broker_name):
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

    def sent(self, broker_name: str, latency_ms: float, now_ms: float) -> None:
        """Record the latency of a send; that of a failed one is `FAILURE_LATENCY_MS`."""
        for step_ms, avoided_for_ms in zip(
            reversed(LATENCY_STEPS_MS), reversed(AVOIDED_FOR_MS), strict=True
        ):
            if latency_ms >= step_ms:
                self._avoided_until_ms[broker_name] = now_ms + avoided_for_ms
                return
        self._avoided_until_ms.pop(broker_name, None)

    def suits(self, broker_name: str, now_ms: float, failed: Container[str] = ()) -> bool:
        """Whether the broker may be chosen: it is not avoided, and not in `failed`."""
        return broker_name not in failed and self._avoided_until_ms.get(broker_name, 0) <= now_ms
