"""The network part of a write: sends pieces to several queues at once, one at a time per queue.

Invariants:
- Pieces with the same target are stored in the order in which they were sent.
- Without a journal, a piece whose answer was lost is sent again, to any broker that accepts it.
- With a journal, such a piece waits for its broker, which is asked for the rows that it stored.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable, Container, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol, TypeVar

from pyspark.sql.datasource import WriterCommitMessage

from roquet.client._net.queue_calls import checked_header
from roquet.client._net.session import Session
from roquet.client._send.queue_choice import RoundRobin
from roquet.client._send.sender import RETRIED_CODES
from roquet.client._send.topic_routes import TopicRoutes
from roquet.client.send_result import SendStatus
from roquet.errors import (
    LASTING,
    CallTimeout,
    ConnectionClosed,
    ResponseError,
    RoquetError,
    RouteNotFound,
)
from roquet.protocol.headers.send import SendAnswer
from roquet.protocol.records.message import MessageQueue
from roquet.spark._options.write import WriteOptions
from roquet.spark._write.encoding import Piece

log = logging.getLogger(__name__)

PIECES_MAX: Final = 16
"""Concurrent requests of a task."""
PAUSE_S_MIN: Final = 0.1
PAUSE_S_MAX: Final = 3.0
PASSING: Final = (ConnectionClosed, CallTimeout, RouteNotFound, ResponseError)
"""Errors after which a retry may succeed; a `ResponseError` only if `may_pass` says so."""
STATUS_OF_CODE: Final = {int(status.value): status for status in SendStatus}

T = TypeVar("T")


class SinkError(RoquetError):
    """A write cannot continue. The text says what to do before the next attempt."""


def may_pass(error: Exception) -> bool:
    if isinstance(error, LASTING):
        return False
    return not isinstance(error, ResponseError) or error.code in RETRIED_CODES


async def patiently(ask: Callable[[], Awaitable[T]], retries: int) -> T:
    """The result of `ask`, which is retried after errors that may pass."""
    for pause in pauses(retries):
        try:
            return await ask()
        except PASSING as error:
            if not may_pass(error):
                raise
            log.info("request failed, will be retried: error=%s", error)
        await asyncio.sleep(pause)
    return await ask()


def pauses(retries: int) -> Iterator[float]:
    """Seconds to wait before each retry."""
    return (min(PAUSE_S_MIN * 2**number, PAUSE_S_MAX) for number in range(retries))


class Journal(Protocol):
    """Finds out which rows of a task are stored."""

    async def stored(self, queue: MessageQueue) -> Container[int]:
        """The rows stored in `queue` of those that were sent to it since its last answer."""
        ...

    def went_to(self, queue: MessageQueue, end: int) -> None:
        """Record that all rows that this task sent to `queue` have offsets below `end`."""
        ...


@dataclass
class Written(WriterCommitMessage):
    """The counts of a task, which Spark brings to the driver.

    `found`: rows that an earlier attempt stored. `unsafe`: rows per send status other than SEND_OK.
    """

    rows: int = 0
    requests: int = 0
    retries: int = 0
    found: int = 0
    unsafe: Counter[str] = field(default_factory=Counter)


class PieceSender:
    """Sends the pieces of one topic."""

    def __init__(
        self,
        session: Session,
        routes: TopicRoutes,
        queues: Sequence[MessageQueue],
        options: WriteOptions,
        written: Written,
        journal: Journal | None = None,
    ) -> None:
        self._session = session
        self._routes = routes
        self.queues = queues
        self._options = options
        self._written = written
        self._journal = journal
        self._turn = RoundRobin(session.runtime.random.getrandbits(31))
        self._lanes: defaultdict[MessageQueue, asyncio.Lock] = defaultdict(asyncio.Lock)

    async def send(self, piece: Piece) -> None:
        """Send a piece, and return when it is stored.

        :raises ResponseError: a broker refused it.
        :raises ConnectionClosed, CallTimeout: no broker accepted it.
        :raises SinkError: its status is not SEND_OK, and failOnUnsafe is true.
        """
        waits = pauses(self._options.retries)
        if piece.target >= 0:
            await self._in_lane(piece, self.queues[piece.target], waits)
            return
        failed: set[str] = set()
        left: Piece | None = piece
        while left:
            left = await self._in_lane(left, self._next_queue(failed), waits, failed)

    def _next_queue(self, failed: set[str]) -> MessageQueue:
        """The next queue, preferably one that is free and whose broker did not fail.

        :param failed: names of brokers that failed for this piece.
        """
        all_failed = all(queue.broker_name in failed for queue in self.queues)
        kept = [queue for queue in self.queues if all_failed or queue.broker_name not in failed]
        free = [queue for queue in kept if not self._lanes[queue].locked()]
        return self._turn.next(free or kept)

    async def _in_lane(
        self,
        piece: Piece,
        queue: MessageQueue,
        waits: Iterator[float],
        failed: set[str] | None = None,
    ) -> Piece | None:
        """Send a piece to `queue`, with retries.

        :param waits: seconds before each retry.
        :param failed: names of brokers that failed; a failed broker is added. None if the piece
            must go to this queue.
        :returns: None if all rows are stored; otherwise the piece to send to another queue.
        """
        async with self._lanes[queue]:
            while len(piece.rows):
                try:
                    await self._try(piece, queue)
                    return None
                except PASSING as error:
                    wait = next(waits, None)
                    if wait is None or not may_pass(error):
                        raise
                    is_open = isinstance(error, ConnectionClosed | CallTimeout)
                    log.info("send failed, will be retried: queue=%s error=%s", queue, error)
                self._written.retries += 1
                self._session.routes.refresh_soon(queue.topic)
                await asyncio.sleep(wait)
                if is_open and self._journal:
                    piece = self._left(piece, await self._journal.stored(queue))
                elif failed is not None:
                    failed.add(queue.broker_name)
                    return piece
            return None

    def _left(self, piece: Piece, stored: Container[int]) -> Piece:
        left = piece.without(stored)
        self._written.found += len(piece.rows) - len(left.rows)
        return left

    async def _try(self, piece: Piece, queue: MessageQueue) -> None:
        timeout_ms = self._options.timeout_ms
        address = await self._routes.master(queue, timeout_ms)
        request = piece.outgoing.request(self._options.group, queue, self._session.runtime.now_ms())
        response = await self._session.call(address, request, timeout_ms)
        answer = checked_header(SendAnswer, response, address, STATUS_OF_CODE)
        self._written.requests += 1
        self._written.rows += len(piece.rows)
        if self._journal:
            self._journal.went_to(queue, answer.queue_offset + len(piece.rows))
        status = STATUS_OF_CODE[response.code]
        if status is not SendStatus.SEND_OK:
            self._unsafe(status, queue, response.remark or "", len(piece.rows))

    def _unsafe(self, status: SendStatus, queue: MessageQueue, remark: str, rows: int) -> None:
        if self._options.fail_on_unsafe:
            raise SinkError(
                f"{queue} stored {rows} rows with {status.name}: {remark}; "
                "failOnUnsafe=false only counts such rows"
            )
        if not self._written.unsafe:
            log.warning(
                "rows stored with less than SEND_OK, further ones are only counted: "
                "queue=%s status=%s rows=%d remark=%s",
                queue,
                status.name,
                rows,
                remark,
            )
        self._written.unsafe[status.name] += rows
