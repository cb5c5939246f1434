"""PURE: which queue the next message goes to.

See docs/protocol/producing.md#choosing-a-queue.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Sequence
from typing import Final

from roquet.protocol.records.message import MessageQueue, java_hash

LATENCY_STEPS_MS: Final = (50, 100, 550, 1000, 2000, 3000, 15000)
AVOIDED_FOR_MS: Final = (0, 0, 30_000, 60_000, 120_000, 180_000, 600_000)
"""A send that took at least the step's time puts its broker aside for so long."""
FAILURE_LATENCY_MS: Final = 30_000
"""What a failed send counts as."""


def queue_of_key(queues: Sequence[MessageQueue], key: str) -> MessageQueue:
    """The queue for all messages of one key: Apache's SelectMessageQueueByHash, so that clients of any language agree.

    The same as long as the topic's queues are the same.
    """
    return queues[abs(java_hash(key)) % len(queues)]


class RoundRobin:
    """One queue after the other, from a given start on, so that many producers do not begin at the same one."""

    def __init__(self, start: int) -> None:
        self._count = start

    def next(
        self, queues: Sequence[MessageQueue], suits: Callable[[str], bool] | None = None
    ) -> MessageQueue:
        """The next queue whose broker suits; when none does, the plain next.

        :param suits: broker name -> whether it may be chosen; None: every broker.
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
    """Which brokers to leave alone for a while, by how long their last send took; `now_ms` is of the loop's clock."""

    def __init__(self) -> None:
        self._avoided_until_ms: dict[str, float] = {}

    def sent(self, broker_name: str, latency_ms: float, now_ms: float) -> None:
        """Take note of a send; a failed one took `FAILURE_LATENCY_MS`."""
        for step_ms, avoided_for_ms in zip(
            reversed(LATENCY_STEPS_MS), reversed(AVOIDED_FOR_MS), strict=True
        ):
            if latency_ms >= step_ms:
                self._avoided_until_ms[broker_name] = now_ms + avoided_for_ms
                return
        self._avoided_until_ms.pop(broker_name, None)

    def suits(self, broker_name: str, now_ms: float, failed: Container[str] = ()) -> bool:
        """Whether to send to that broker: it did not fail just now, and it is not put aside."""
        return broker_name not in failed and self._avoided_until_ms.get(broker_name, 0) <= now_ms
