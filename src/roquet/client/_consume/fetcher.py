"""Pulls one queue, for as long as it is ours.

See docs/protocol/consuming.md#pulling.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final

from roquet.client._consume.prefetch import Delivery
from roquet.client._consume.process_queue import ProcessQueue
from roquet.client._consume.pull_flow import (
    PrefetchLimits,
    PullPosition,
    delay_after_failure_ms,
    has_room,
    sys_flag,
)
from roquet.client._consume.pull_request import pull_request, pull_result
from roquet.client._consume.pull_result import PullResult, PullStatus
from roquet.client._net.member_calls import QueueState
from roquet.client._net.routes import BrokerAddress, read_addresses
from roquet.client._net.session import Session
from roquet.errors import RoquetError
from roquet.protocol.bodies.tables import Subscription
from roquet.protocol.records.message import MessageQueue
from roquet.protocol.records.record import Record
from roquet.protocol.remoting.command import Command

log = logging.getLogger(__name__)

HOLD_MS: Final = 15_000
TIMEOUT_MS: Final = 30_000


@dataclass(frozen=True)
class FetchSettings:
    """What all pulls of one consumer have in common.

    `deliver` takes each message, `set_back` stores where a queue goes on whose offset was not legal, `commits`: pulls
    bring the progress to the broker.
    """

    session: Session
    group: str
    count: int
    limits: PrefetchLimits
    deliver: Callable[[Delivery], None]
    set_back: Callable[[MessageQueue, int], Awaitable[None]]
    commits: bool = True


class QueueFetcher:
    """Keeps: `taken` holds the messages delivered from here and not yet done; at most one pull is under way."""

    def __init__(
        self, order: FetchSettings, queue: MessageQueue, start: int, wanted: Subscription
    ) -> None:
        self._order = order
        self._queue = queue
        self._wanted = wanted
        self._position = PullPosition(start)
        self._fails = False
        self._is_told_of_repeats = False
        self._done = asyncio.Event()
        self._pulled_ms = self._done_ms = order.session.runtime.now_ms()
        self.taken = ProcessQueue(start, self._on_done)

    async def run(self) -> None:
        """Pull for ever; what fails is logged and tried again."""
        while True:
            await self._room()
            try:
                delay_ms = await self._pull()
            except RoquetError as error:
                delay_ms = self._failed(error)
            except Exception as error:
                log.exception("pulling %s failed", self._queue)
                delay_ms = delay_after_failure_ms(error)
            if delay_ms:
                await asyncio.sleep(delay_ms / 1000)

    def state(self) -> QueueState:
        taken = self.taken
        last = taken.progress + taken.span
        return QueueState(
            taken.progress, last, taken.count, taken.size, self._pulled_ms, self._done_ms
        )

    def _on_done(self) -> None:
        self._done_ms = self._order.session.runtime.now_ms()
        self._done.set()

    def _failed(self, error: RoquetError) -> float:
        """Said once until it works again, not each second."""
        log.log(
            logging.DEBUG if self._fails else logging.WARNING,
            "pulling %s fails: %s",
            self._queue,
            error,
        )
        self._fails = True
        return delay_after_failure_ms(error)

    async def _room(self) -> None:
        while not has_room(self.taken, self._order.limits):
            self._done.clear()
            await self._done.wait()

    async def _pull(self) -> float:
        """One pull; gives the ms to wait before the next."""
        loop = asyncio.get_running_loop()
        began = loop.time()
        at, response = await self._order.session.call_broker(
            self._queue,
            self._request,
            TIMEOUT_MS,
            lambda route, broker_name: read_addresses(route, broker_name, self._position.broker_id),
        )
        self._pulled_ms = self._order.session.runtime.now_ms()
        result = pull_result(response, at.address, self._wanted)
        if self._fails:
            self._fails = False
            log.info("pulling %s works again, from %s", self._queue, at.address)
        if result.status is PullStatus.OFFSET_ILLEGAL:
            return await self._start_over(result)
        self._take(result, at.address)
        return self._position.answered(result, (loop.time() - began) * 1000)

    def _request(self, at: BrokerAddress) -> Command:
        progress = self.taken.progress if self._order.commits else 0
        flags = sys_flag(at, progress)
        return pull_request(
            self._order.group,
            self._queue,
            self._position.offset,
            self._order.count,
            flags,
            self._wanted,
            HOLD_MS,
            progress,
        )

    def _take(self, result: PullResult, address: str) -> None:
        records = [
            record
            for record in self._once_each(result, address)
            if not self.taken.has(record.queue_offset)
        ]
        self.taken.take(
            ((record.queue_offset, len(record.body)) for record in records), result.next_offset
        )
        for record in records:
            self._order.deliver(
                Delivery(record, self._queue.broker_name, self.taken, record.reconsume_times)
            )

    def _once_each(self, result: PullResult, address: str) -> list[Record]:
        """The messages without those that the same answer had before. Two messages with one queue offset are both
        kept: a broker that has given an offset away twice has both.
        """
        records = result.records
        if len({record.queue_offset for record in records}) == len(records):
            return records
        kept = list(
            {(record.queue_offset, record.physical_offset): record for record in records}.values()
        )
        if len(kept) < len(records) and not self._is_told_of_repeats:
            log.warning(
                "messages came twice in one answer, each is handed over once: queue=%s broker=%s messages=%d "
                "first_offset=%d", self._queue, address, len(records) - len(kept), records[0].queue_offset,
            )  # fmt: skip
            self._is_told_of_repeats = True
        return kept

    async def _start_over(self, result: PullResult) -> float:
        """The offset lies outside the queue: let go of everything, wait, go on where the broker says.

        See docs/pitfalls.md#trap-57.
        """
        log.warning(
            "offset %s lies outside %s, which has %s to %s: going on at %s",
            self._position.offset,
            self._queue,
            result.min_offset,
            result.max_offset,
            result.next_offset,
        )
        self.taken.dropped = True
        self.taken = ProcessQueue(
            result.next_offset, self._on_done
        )  # at once: nothing beyond it is stored any more
        await asyncio.sleep(self._position.answered(result, 0) / 1000)
        await self._order.set_back(self._queue, result.next_offset)
        return 0
