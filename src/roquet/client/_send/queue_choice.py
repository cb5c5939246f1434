"""PURE: the choice of the queue for a send.

See docs/protocol/producing.md#choosing-a-queue.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

from roquet.common.java import INT_MAX
from roquet.errors import MessageError
from roquet.protocol.records.message import MessageQueue, check_queue, java_hash, wrong_type
from roquet.protocol.records.namespace import NO_NAMESPACE, Namespace

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


QueueSelector: TypeAlias = Callable[[Sequence[MessageQueue]], MessageQueue]
"""Queues of a topic -> the one of them that a message must be sent to."""
Pick: TypeAlias = QueueSelector


def pick_of(
    topic: str,
    sharding_key: str | None = None,
    queue: MessageQueue | QueueSelector | None = None,
    names: Namespace = NO_NAMESPACE,
) -> Pick | None:
    """How a send's arguments fix its queue; None if any queue will do.

    :param topic: the full name of the topic.
    :param queue: a queue, or a selector, with plain names.
    :raises MessageError: `queue` belongs to another topic, or its id is out of range; or an
        argument has a wrong type. The pick raises it, too, and what the selector raises.
    """
    if callable(queue):
        return _Selected(topic, queue, names)
    if queue is not None:
        check_queue(queue)
        if names.full(queue.topic) != topic:
            raise MessageError(f"queue {queue} is not one of topic {topic}")
        if not 0 <= queue.queue_id <= INT_MAX:
            raise MessageError(f"queue {queue}: a queue id is a number from 0 to {INT_MAX}")
        full = names.full_queue(queue)
        return lambda _: full
    if sharding_key is not None:
        if not isinstance(sharding_key, str):
            raise wrong_type("sharding_key", sharding_key, "a text, or None")
        return lambda queues: queue_for_sharding_key(queues, sharding_key)
    return None


class _Selected:
    """The queue that an application's selector chose. All tries of a send go to that one."""

    def __init__(self, topic: str, select: QueueSelector, names: Namespace) -> None:
        self._names = names
        self._topic = topic
        self._select = select
        self._chosen: MessageQueue | None = None

    def __call__(self, queues: Sequence[MessageQueue]) -> MessageQueue:
        if self._chosen is None:
            queues = [self._names.plain_queue(queue) for queue in queues]
            chosen = self._select(queues)
            if not isinstance(chosen, MessageQueue) or chosen not in queues:
                raise MessageError(
                    f"queue: the function returned {chosen!r} for a message to {self._topic}: "
                    "it must return one of the queues that it is given"
                )
            self._chosen = self._names.full_queue(chosen)
        return self._chosen


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


@dataclass(frozen=True, slots=True)
class _Fault:
    latency_ms: float
    avoided_until_ms: float


_NO_FAULT: Final = _Fault(0.0, 0.0)


class LatencyFaults:
    """The brokers that are avoided for a while because their last send was slow or failed.

    The rules are those of Apache's LatencyFaultToleranceImpl. `now_ms` is the time of the event
    loop in ms.
    """

    def __init__(self) -> None:
        self._faults: dict[str, _Fault] = {}
        self._turn = 0

    def record_send(
        self, broker_name: str, latency_ms: float, now_ms: float, *, has_failed: bool = False
    ) -> None:
        """Record the latency of a send. A failed one counts as `FAILURE_LATENCY_MS`."""
        counted_ms = FAILURE_LATENCY_MS if has_failed else latency_ms
        for step_ms, avoided_for_ms in zip(
            reversed(LATENCY_STEPS_MS), reversed(AVOIDED_FOR_MS), strict=True
        ):
            if counted_ms >= step_ms:
                self._faults[broker_name] = _Fault(latency_ms, now_ms + avoided_for_ms)
                return
        self._faults.pop(broker_name, None)

    def avoided(self, now_ms: float) -> set[str]:
        """The names of the brokers that are avoided now."""
        return {name for name, fault in self._faults.items() if fault.avoided_until_ms > now_ms}

    def least_bad(self, broker_names: Iterable[str]) -> str:
        """One of the better half of some brokers, in turn, for when all are avoided.

        Those whose last send was quicker are better, then those that are avoided for less long.

        :param broker_names: at least one.
        """
        ranked = sorted(set(broker_names), key=self._badness)
        half = ranked[: max(1, len(ranked) // 2)]
        self._turn += 1
        return half[self._turn % len(half)]

    def _badness(self, broker_name: str) -> tuple[float, float, str]:
        # One without a fault has answered another send since it failed.
        fault = self._faults.get(broker_name, _NO_FAULT)
        return fault.latency_ms, fault.avoided_until_ms, broker_name
