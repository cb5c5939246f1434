"""The pulls that wait for their queue to grow, to fetch again.

See docs/broker/consumers.md#long-polling.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Iterable
from functools import partial
from typing import Final

from roquet.broker.delivery.end_of_turn import EndOfTurn
from roquet.broker.delivery.held_pulls import HeldPull, HeldPulls
from roquet.common.limited_log import LimitedLog
from roquet.common.steps import Steps, in_parts
from roquet.storage.queues.consume_queue import ConsumeQueue
from roquet.transport.connection import Connection

log = logging.getLogger(__name__)

LOOKED_AT_ONCE: Final = 64
"""Pulls that are woken in one turn of the loop; looking and answering takes some 30 us."""
_SWEPT_AT_ONCE: Final = 16
SWEEP_MS: Final = 5000
"""How often held pulls are looked at although nothing woke them."""
_COST: Final = 256
"""Bytes that a held pull counts beside what it keeps of the request: 16,000 of one peer may wait."""
_ANSWERS_AT_ONCE: Final = 16 * 1024 * 1024
"""Bytes of answers that one look makes before what it made can leave: one large message may be for thousands."""


class LongPolls:
    """Keeps: every held pull stands in its queue's `waiting` list exactly once, until it is answered or its
    connection ends; one that is over before its queue is looked at stays until then. A peer that does not read gets no
    answer.

    :param now_ms: the event loop's clock in ms.
    :param count_max: so many pulls may be held.
    """

    def __init__(self, now_ms: Callable[[], float], count_max: int) -> None:
        self._now_ms = now_ms
        self._places = HeldPulls(count_max)
        self._limited_log = LimitedLog(log)
        self._queues: dict[ConsumeQueue, None] = {}
        self._to_wake: dict[ConsumeQueue, int] = {}
        """How many of a queue's pulls, the first ones, are still to be looked at since it grew."""
        self._waking = EndOfTurn(self._wake_some)

    @property
    def count(self) -> int:
        """Pulls that wait."""
        return self._places.count

    def hold(
        self,
        connection: Connection,
        queue: ConsumeQueue,
        offset: int,
        hold_ms: int,
        fetch_again: Callable[[bool], bytes | None],
        size: int = 0,
    ) -> None:
        """Keep a pull until its queue grows beyond `offset`, at most `hold_ms` and a sweep.

        :param size: bytes that `fetch_again` keeps of what the peer sent.
        :raises Refused: too many are held already, or too much of this peer.
        """
        crowding_out = self._places.crowding_out(connection)
        if crowding_out is not None:
            self._answer_early(crowding_out)
        size += _COST
        connection.keep(size)
        held = HeldPull(connection, queue, offset, int(self._now_ms()) + hold_ms, fetch_again, size)
        if queue.waiting is None:
            queue.waiting = []
        queue.waiting.append(held)
        self._queues[queue] = None
        self._places.take(held)

    def _answer_early(self, held: HeldPull) -> None:
        """Another client needs its place. A client that does not read can be answered nothing: it loses all of them."""
        connection = held.connection
        is_deaf = not connection.is_writable
        self._limited_log.warning(
            f"early {is_deaf}",
            self._now_ms() / 1000,
            "waiting pull answered early: other clients need places for theirs, pullThreadPoolQueueCapacity=%d peer=%s "
            "pulls_of_it=%d%s",
            *(self._places.count_max, connection.peer_address, self._places.count_of(connection)),
            "; it does not read, its connection ends" if is_deaf else "",
        )
        if is_deaf:
            self.connection_closed(connection)
            connection.abort()
            return
        answer = held.fetch_again(True)
        self._over(held)
        connection.send(answer or b"")

    def _over(self, held: HeldPull) -> None:
        self._places.leave(held)
        held.connection.release(held.size)

    def connection_closed(self, connection: Connection) -> None:
        """Whoever pulled over it is gone."""
        self._places.closed(connection)

    def wake(self, grown: Iterable[ConsumeQueue]) -> None:
        """Answer the pulls that wait at these queues and now find something; one write per connection and turn."""
        self._to_wake.update((queue, len(queue.waiting)) for queue in grown if queue.waiting)
        if not self._waking.is_due:
            self._wake_some()

    def _wake_some(self) -> None:
        """Of thousands of pulls that wait for one message a part in each turn of the loop."""
        answers, left = _Answers(), LOOKED_AT_ONCE
        while self._to_wake and left:
            queue, count = self._to_wake.popitem()
            if count > left:
                self._to_wake[queue] = count - left
            self._answer(queue, min(count, left), answers)
            left -= min(count, left)
        self._send(answers)
        if self._to_wake:
            self._waking.due()

    def wake_since(self, at: int) -> None:
        """The same at all queues with a record at or behind physical offset `at`, which could not be read so far."""
        self.wake([queue for queue in self._queues if queue.log_end > at])

    def sweep(self) -> Steps[None]:
        """Answer what waited its time, and what a wake-up passed over (its tags did not match: time to move on)."""
        now_ms = self._now_ms()
        for queue in list(self._queues):
            for _ in in_parts(range(len(queue.waiting or ())), _SWEPT_AT_ONCE):
                answers = _Answers()
                self._answer(queue, _SWEPT_AT_ONCE, answers, now_ms)
                self._send(answers)
                yield

    def _answer(
        self, queue: ConsumeQueue, count: int, answers: _Answers, swept_ms: float | None = None
    ) -> None:
        """Look at the first `count` of a queue's pulls; those that go on waiting are its last ones then.

        :param swept_ms: when the queue did not grow, but is swept: others than those that are due need not look again.
        """
        waiting: list[HeldPull] = queue.waiting or []  # type: ignore[assignment]
        still: list[object] = list(waiting[count:])
        for held in waiting[:count]:
            if held.is_over:
                continue
            if not held.connection.is_open:
                self._places.leave(held)
                continue
            is_due = swept_ms is not None and (
                swept_ms >= held.until_ms or queue.max_offset > held.offset
            )
            looks = (is_due or swept_ms is None) and answers.takes(held.connection)
            answer = held.fetch_again(is_due) if looks else None
            if answer is None:
                still.append(held)
            else:
                self._over(held)
                answers.add(held.connection, answer)
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
            [
                queue
                for queue in self._queues
                if any(_is_behind(held, connections) for held in queue.waiting or ())
            ]
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
        is_enough = (
            self._size >= _ANSWERS_AT_ONCE or self._sizes[connection] >= connection.answers_at_once
        )
        if not is_enough and connection.is_writable:
            return True
        self.left[connection] = None
        return False

    def add(self, connection: Connection, answer: bytes) -> None:
        self.parts.setdefault(connection, []).append(answer)
        self._sizes[connection] += len(answer)
        self._size += len(answer)
