"""The pulls that wait for their queue to grow, to fetch again (store-and-ha.md 5.7)."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Final

from roquet.storage.consume_queue import ConsumeQueue
from roquet.transport.connection import Connection

SWEEP_MS: Final = 5000
"""How often held pulls are looked at although nothing woke them."""


@dataclass(slots=True)
class HeldPull:
    """One pull that found nothing.

    `fetch_again` gives the answer, or None to go on waiting; with True it answers whatever it finds.
    """

    connection: Connection
    queue: ConsumeQueue
    offset: int
    until_ms: int
    fetch_again: Callable[[bool], bytes | None] = field(repr=False)


class Arrivals:
    """Keeps: every held pull stands in its queue's `waiting` list exactly once, until it is answered or its
    connection ends.

    :param now_ms: the event loop's clock in ms.
    """

    def __init__(self, now_ms: Callable[[], float]) -> None:
        self._now_ms = now_ms
        self._queues: dict[ConsumeQueue, None] = {}

    def hold(
        self,
        connection: Connection,
        queue: ConsumeQueue,
        offset: int,
        hold_ms: int,
        fetch_again: Callable[[bool], bytes | None],
    ) -> None:
        """Keep a pull until its queue grows beyond `offset`, at most `hold_ms` and a sweep."""
        held = HeldPull(connection, queue, offset, int(self._now_ms()) + hold_ms, fetch_again)
        if queue.waiting is None:
            queue.waiting = []
        queue.waiting.append(held)
        self._queues[queue] = None

    def wake(self, grown: Iterable[ConsumeQueue]) -> None:
        """Answer the pulls that wait at these queues and now find something; one write per connection."""
        answers: dict[Connection, list[bytes]] = {}
        for queue in dict.fromkeys(grown):
            self._answer(queue, lambda _: False, answers)
        _send(answers)

    def wake_since(self, at: int) -> None:
        """The same at all queues with a record at or behind physical offset `at`, which could not be read so far."""
        self.wake([queue for queue in self._queues if queue.log_end > at])

    def sweep(self) -> None:
        """Answer what waited its time, and what a wake-up passed over (its tags did not match: time to move on)."""
        now_ms = self._now_ms()
        answers: dict[Connection, list[bytes]] = {}
        for queue in list(self._queues):
            self._answer(queue, lambda held: now_ms >= held.until_ms or held.queue.max_offset > held.offset, answers)
        _send(answers)

    def _answer(
        self, queue: ConsumeQueue, is_due: Callable[[HeldPull], bool], answers: dict[Connection, list[bytes]]
    ) -> None:
        waiting: list[HeldPull] = queue.waiting or []  # type: ignore[assignment]
        still: list[object] = []
        for held in waiting:
            if not held.connection.is_open:
                continue
            answer = held.fetch_again(is_due(held))
            if answer is None:
                still.append(held)
            else:
                answers.setdefault(held.connection, []).append(answer)
        queue.waiting = still or None
        if not still:
            self._queues.pop(queue, None)


def _send(answers: dict[Connection, list[bytes]]) -> None:
    for connection, parts in answers.items():
        connection.send(b"".join(parts))
