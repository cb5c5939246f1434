"""Long polling: held pulls wait until their queue grows or their time is over.

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

WOKEN_AT_ONCE: Final = 64
"""Pulls that are woken in one turn of the loop; to fetch and answer takes some 30 us each."""
_SWEPT_AT_ONCE: Final = 16
"""Pulls that one step of a sweep checks."""
SWEEP_MS: Final = 5000
"""How often all held pulls are checked, woken or not."""
_COST: Final = 256
"""Bytes that a held pull counts for beside what it keeps of the request; so 16,000 small pulls of
one connection may be held."""
_ANSWERS_AT_ONCE: Final = 16 * 1024 * 1024
"""Bytes of answers after which a turn makes no more, so that these can be sent first: one large
message may be for thousands of pulls."""


class LongPolls:
    """Holds pulls that found nothing, until their queue grows or their time is over.

    A connection that does not read gets no answers.

    Invariant: every held pull is in the list of its queue exactly once, until it is answered or its
    connection closes. A pull that is over otherwise stays in the list until the queue is checked
    next. No list is empty.

    :param now_ms: the event loop's clock in ms.
    :param count_max: pulls that may be held at once.
    """

    def __init__(self, now_ms: Callable[[], float], count_max: int) -> None:
        self._now_ms = now_ms
        self._places = HeldPulls(count_max)
        self._limited_log = LimitedLog(log)
        self.queues: dict[ConsumeQueue, list[HeldPull]] = {}
        """The held pulls of each queue; the store tells which of these queues grew."""
        self._to_wake: dict[ConsumeQueue, int] = {}
        """Queues that grew -> how many of their first held pulls have not fetched since."""
        self._waking = EndOfTurn(self._wake_some)

    @property
    def count(self) -> int:
        """How many pulls are held."""
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
        """Hold a pull until its queue grows beyond `offset`, at most `hold_ms` plus `SWEEP_MS`.

        :param offset: the queue offset that it pulls.
        :param fetch_again: see `HeldPull`.
        :param size: bytes of the request that `fetch_again` keeps in memory.
        :raises Refused: too many pulls are held, or too many bytes for this connection.
        """
        crowding_out = self._places.crowding_out(connection)
        size += _COST
        connection.later.keep(size)  # may refuse: another client keeps its place then
        if crowding_out is not None:
            self._answer_early(crowding_out)
        held = HeldPull(connection, queue, offset, int(self._now_ms()) + hold_ms, fetch_again, size)
        self.queues.setdefault(queue, []).append(held)
        self._places.take(held)

    def _answer_early(self, held: HeldPull) -> None:
        """Free the place of a held pull for another client, by answering it now.

        A client that does not read cannot be answered: its connection is closed instead.
        """
        connection = held.connection
        reads = connection.is_writable
        text = (
            "waiting pull answered early, another client needs its place"
            if reads
            else "connection closed, the client does not read and another client needs the place "
            "of a waiting pull"
        )
        self._limited_log.warning(
            f"early {reads}",
            f"{text}: peer=%s pulls=%d pullThreadPoolQueueCapacity=%d",
            connection.peer_address,
            self._places.count_of(connection),
            self._places.count_max,
        )
        if not reads:
            self.connection_closed(connection)
            connection.abort()
            return
        answer = held.fetch_again(True)
        self._over(held)
        connection.send(answer or b"")

    def _over(self, held: HeldPull) -> None:
        self._places.leave(held)
        held.connection.later.release(held.size)

    def connection_closed(self, connection: Connection) -> None:
        """Drop the pulls of a closed connection."""
        self._places.closed(connection)

    def wake(self, grown: Iterable[ConsumeQueue]) -> None:
        """Fetch again for the pulls held at these queues, and answer those that find messages.

        The answers for one connection and turn are one write.
        """
        queues = self.queues
        self._to_wake.update((queue, len(queues[queue])) for queue in grown if queue in queues)
        if not self._waking.is_due:
            self._wake_some()

    def _wake_some(self) -> None:
        """Wake `WOKEN_AT_ONCE` pulls, schedule the rest: thousands may wait for one message."""
        answers, left = _Answers(), WOKEN_AT_ONCE
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
        """Wake all queues with a record at or after physical offset `at`, not readable before."""
        self.wake([queue for queue in self.queues if queue.log_end > at])

    def sweep(self) -> Steps[None]:
        """Answer the pulls whose time is over, or whose queue grew by messages they do not match.

        The latter get the offset reached, so that their consumers move on.
        """
        now_ms = self._now_ms()
        for queue in list(self.queues):
            for _ in in_parts(range(len(self.queues.get(queue, ()))), _SWEPT_AT_ONCE):
                answers = _Answers()
                self._answer(queue, _SWEPT_AT_ONCE, answers, now_ms)
                self._send(answers)
                yield

    def _answer(
        self, queue: ConsumeQueue, count: int, answers: _Answers, swept_ms: float | None = None
    ) -> None:
        """Fetch again for the first `count` pulls of a queue; those still held move to its end.

        :param swept_ms: the time of a sweep, in which only pulls that are due fetch again; None
            if the queue grew.
        """
        waiting = self.queues.get(queue, [])
        still = waiting[count:]
        for held in waiting[:count]:
            if held.is_over:
                continue
            if not held.connection.is_open:
                self._places.leave(held)
                continue
            is_due = swept_ms is not None and (
                swept_ms >= held.until_ms or queue.max_offset > held.offset
            )
            fetches = (is_due or swept_ms is None) and answers.takes(held.connection)
            answer = held.fetch_again(is_due) if fetches else None
            if answer is None:
                still.append(held)
            else:
                self._over(held)
                answers.add(held.connection, answer)
        if still:
            self.queues[queue] = still
        else:
            self.queues.pop(queue, None)

    def _send(self, answers: _Answers) -> None:
        for connection, parts in answers.parts.items():
            connection.send(b"".join(parts))
        soon: set[Connection] = set()
        for connection in answers.left:
            if connection.is_writable:
                soon.add(connection)
            else:
                connection.when_writable(partial(self._wake_of, {connection}))
        if soon:
            asyncio.get_running_loop().call_soon(self._wake_of, soon)

    def _wake_of(self, connections: set[Connection]) -> None:
        """Wake the queues with pulls of these connections that could not be answered before."""
        self.wake(
            [
                queue
                for queue, waiting in self.queues.items()
                if any(
                    held.connection in connections and queue.max_offset > held.offset
                    for held in waiting
                )
            ]
        )


class _Answers:
    """The answers of one pass over held pulls, by connection.

    `left` has the connections whose further answers have to wait.
    """

    def __init__(self) -> None:
        self.parts: dict[Connection, list[bytes]] = {}
        self.left: dict[Connection, None] = {}
        self._sizes: Counter[Connection] = Counter()
        self._size = 0

    def takes(self, connection: Connection) -> bool:
        """Whether one more answer may be made for this connection; otherwise adds it to `left`."""
        is_enough = (
            self._size >= _ANSWERS_AT_ONCE
            or self._sizes[connection] >= connection.dispatcher.answers_at_once
        )
        if not is_enough and connection.is_writable:
            return True
        self.left[connection] = None
        return False

    def add(self, connection: Connection, answer: bytes) -> None:
        self.parts.setdefault(connection, []).append(answer)
        self._sizes[connection] += len(answer)
        self._size += len(answer)
