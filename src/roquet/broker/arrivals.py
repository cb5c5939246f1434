"""The pulls that wait for their queue to grow, to fetch again (store-and-ha.md 5.7)."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import partial
from typing import Final

from roquet.errors import Refused
from roquet.protocol.codes import ResponseCode
from roquet.storage.consume_queue import ConsumeQueue
from roquet.transport.connection import Connection

SWEEP_MS: Final = 5000
"""How often held pulls are looked at although nothing woke them."""
_ANSWERS_AT_ONCE: Final = 16 * 1024 * 1024
"""Bytes of answers that one look makes before what it made can leave: one large message may be for thousands."""


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
    connection ends; a peer that does not read gets no answer.

    :param now_ms: the event loop's clock in ms.
    :param count_max: so many pulls may be held.
    """

    def __init__(self, now_ms: Callable[[], float], count_max: int) -> None:
        self._now_ms = now_ms
        self._count_max = count_max
        self._queues: dict[ConsumeQueue, None] = {}
        self.count = 0

    def hold(
        self,
        connection: Connection,
        queue: ConsumeQueue,
        offset: int,
        hold_ms: int,
        fetch_again: Callable[[bool], bytes | None],
    ) -> None:
        """Keep a pull until its queue grows beyond `offset`, at most `hold_ms` and a sweep.

        :raises Refused: too many are held already.
        """
        if self.count >= self._count_max:
            raise Refused(ResponseCode.SYSTEM_BUSY, f"[OVERLOAD]{self.count} pulls wait for messages already")
        held = HeldPull(connection, queue, offset, int(self._now_ms()) + hold_ms, fetch_again)
        if queue.waiting is None:
            queue.waiting = []
        queue.waiting.append(held)
        self._queues[queue] = None
        self.count += 1

    def wake(self, grown: Iterable[ConsumeQueue]) -> None:
        """Answer the pulls that wait at these queues and now find something; one write per connection."""
        answers = _Answers()
        for queue in dict.fromkeys(grown):
            self._answer(queue, lambda _: False, answers)
        self._send(answers)

    def wake_since(self, at: int) -> None:
        """The same at all queues with a record at or behind physical offset `at`, which could not be read so far."""
        self.wake([queue for queue in self._queues if queue.log_end > at])

    def sweep(self) -> None:
        """Answer what waited its time, and what a wake-up passed over (its tags did not match: time to move on)."""
        now_ms = self._now_ms()
        answers = _Answers()
        for queue in list(self._queues):
            self._answer(queue, lambda held: now_ms >= held.until_ms or held.queue.max_offset > held.offset, answers)
        self._send(answers)

    def _answer(self, queue: ConsumeQueue, is_due: Callable[[HeldPull], bool], answers: _Answers) -> None:
        waiting: list[HeldPull] = queue.waiting or []  # type: ignore[assignment]
        still: list[object] = []
        for held in waiting:
            if not held.connection.is_open:
                continue
            answer = held.fetch_again(is_due(held)) if answers.takes(held.connection) else None
            if answer is None:
                still.append(held)
            else:
                answers.add(held.connection, answer)
        self.count -= len(waiting) - len(still)
        queue.waiting = still or None
        if not still:
            self._queues.pop(queue, None)

    def _send(self, answers: _Answers) -> None:
        for connection, parts in answers.parts.items():
            connection.send(b"".join(parts))
        soon: set[Connection] = set()
        for connection in answers.left:
            if connection.is_writable:
                soon.add(connection)
            else:
                connection.on_writable = partial(self._wake_of, {connection})
        if soon:
            asyncio.get_running_loop().call_soon(self._wake_of, soon)

    def _wake_of(self, connections: set[Connection]) -> None:
        """Look at the queues again where pulls of these connections were left out."""
        self.wake(
            [queue for queue in self._queues if any(_is_behind(held, connections) for held in queue.waiting or ())]
        )


def _is_behind(held: object, connections: set[Connection]) -> bool:
    assert isinstance(held, HeldPull)
    return held.connection in connections and held.queue.max_offset > held.offset


class _Answers:
    """What one look at held pulls gives each connection; `left` are those that cannot take it all now."""

    def __init__(self) -> None:
        self.parts: dict[Connection, list[bytes]] = {}
        self.left: dict[Connection, None] = {}
        self._sizes: Counter[Connection] = Counter()
        self._size = 0

    def takes(self, connection: Connection) -> bool:
        """Whether there is room for one more."""
        is_enough = self._size >= _ANSWERS_AT_ONCE or self._sizes[connection] >= connection.answers_at_once
        if not is_enough and connection.is_writable:
            return True
        self.left[connection] = None
        return False

    def add(self, connection: Connection, answer: bytes) -> None:
        self.parts.setdefault(connection, []).append(answer)
        self._sizes[connection] += len(answer)
        self._size += len(answer)
