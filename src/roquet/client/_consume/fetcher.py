"""The fetcher: pulls one queue while it is assigned.

See docs/protocol/consuming.md#pulling.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from roquet.client._consume.context import MemberContext
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
from roquet.client._consume.pull_result import PullResult, PullStatus, selected_records
from roquet.client._consume.read_from import addresses_to_read
from roquet.client._net.member_calls import QueueState
from roquet.client._net.outages import is_outage
from roquet.client._net.routes import BrokerAddress
from roquet.client.received import MessageSource
from roquet.common.failure_streak import FailureStreak
from roquet.common.loop_time import now_s
from roquet.errors import RoquetError
from roquet.protocol.bodies.tables import Route, Subscription
from roquet.protocol.headers.pull import COMMIT_OFFSET
from roquet.protocol.records.message import MessageQueue
from roquet.protocol.records.record import Record
from roquet.protocol.remoting.command import Command

if TYPE_CHECKING:
    from roquet.client.metrics import QueueMetrics

log = logging.getLogger(__name__)

HOLD_MS: Final = 15_000
TIMEOUT_MS: Final = 30_000
BUSY_CHECK_S: Final = 0.1
"""Period of the checks whether the application has settled a message."""
END_VALID_S: Final = 5.0
"""How long the end of a queue that a pull told counts as known."""
HANDLED_S: Final = 0.05
"""How long a broker may take until it has stored the offset that a pull carries. Apache's handles
pulls and commits in different threads, so that a commit sent just after a pull can be stored before
it. Of 120 consumers that settled their last message and closed at once, 118 ended so; with 1 ms in
between none did."""


class QueueFetcher:
    """Pulls one queue and delivers its messages to the prefetch buffer.

    Invariant: `process_queue` has the messages that were delivered and are not settled. At most one
    pull is under way. `_former` has the process queues of earlier positions of which the
    application may still handle a message that comes before all others.

    :param limits: called before each pull, because the limits depend on how many queues the member
        has.
    :param waits: pull only after `let_go`.
    """

    def __init__(
        self,
        context: MemberContext,
        queue: MessageQueue,
        start: int,
        subscription: Subscription,
        limits: Callable[[], PrefetchLimits],
        *,
        waits: bool = False,
    ) -> None:
        self._context = context
        self._queue = queue
        self.subscription = subscription
        self._limits = limits
        self._position = PullPosition(start)
        self._end: tuple[int, float] | None = None
        """The end of the queue that a master told last, and when (time of the event loop)."""
        self._carried: tuple[int, float] | None = None
        """The offset that the pull under way carries to be stored, and when it was sent."""
        self._is_paused = False
        self._is_waiting = waits
        self._former: list[ProcessQueue] = []
        self._streak = FailureStreak()
        self._has_logged_repeats = False
        self._changed = asyncio.Event()
        """Set when a message was settled, or the queue is not paused or waiting any more."""
        self._pulled_ms = context.session.runtime.now_ms()
        self._clock = asyncio.get_running_loop().time
        self._done_s = self._clock()
        """When a message was settled last, by the event loop's clock: reading that for each message
        costs a third of reading the wall clock."""
        self._counters = context.statistics.of_topic(queue.topic, now_s())
        self.process_queue = self._new_process_queue(start)

    def _new_process_queue(self, start: int) -> ProcessQueue:
        return ProcessQueue(start, self._on_done, self._counters, self._clock)

    async def run(self) -> None:
        """Pull forever; failures are logged and retried."""
        while True:
            await self._until_pull_is_allowed()
            try:
                delay_ms = await self._pull()
            except RoquetError as error:
                delay_ms = self._failed(error)
            except Exception as error:  # one strange answer must not end the queue's pulls
                log.exception("pull failed unexpectedly, will be retried: queue=%s", self._queue)
                delay_ms = delay_after_failure_ms(error)
            if delay_ms:
                await asyncio.sleep(delay_ms / 1000)

    @property
    def is_paused(self) -> bool:
        return self._is_paused

    def pause(self) -> None:
        """Neither pull nor deliver messages. What is prefetched stays, also what comes now."""
        self._is_paused = True
        self.process_queue.pause()

    def resume(self) -> None:
        """Pull and deliver messages again."""
        self._is_paused = False
        self.process_queue.resume()
        self._context.prefetch.restore(self.process_queue)
        self._changed.set()

    def let_go(self) -> None:
        """Pull from now on: the application's listener knows the queue."""
        self._is_waiting = False
        self._changed.set()

    def drop(self) -> None:
        """Deliver nothing any more: the queue was taken away."""
        self.process_queue.drop()
        self._context.prefetch.forget(self.process_queue)

    def move_to(self, offset: int) -> None:
        """Continue at another offset. `run` must be cancelled, and started again."""
        self._begin_at(offset)
        self._position = PullPosition(offset)

    def _begin_at(self, offset: int) -> None:
        """Discard all messages. Those being handled do not count for the offset any more."""
        self.drop()
        self._former.append(self.process_queue)
        self.process_queue = self._new_process_queue(offset)
        if self._is_paused:
            self.process_queue.pause()

    def is_busy(self) -> bool:
        """Whether the application must settle a message before another one may be delivered."""
        return self._is_former_busy() or self._context.prefetch.is_busy(self.process_queue)

    def _is_former_busy(self) -> bool:
        self._former = [each for each in self._former if self._context.prefetch.is_busy(each)]
        return bool(self._former)

    def position(self) -> int:
        """The offset of the next message that will be delivered, if the filter selects it."""
        waiting = self._context.prefetch.next_offset(self.process_queue)
        return self._position.offset if waiting is None else waiting

    def known_end(self) -> int | None:
        """The end of the queue, if a pull told it lately."""
        if self._end is None or now_s() - self._end[1] > END_VALID_S:
            return None
        return self._end[0]

    def consumer_offset(self) -> int:
        """The offset to store for the group now."""
        return self.process_queue.consumer_offset

    def may_be_overwritten_s(self) -> float:
        """For how many seconds the pull under way may still replace an offset committed now."""
        if self._carried is None or self._carried[0] == self.consumer_offset():
            return 0
        return max(0, self._carried[1] + HANDLED_S - now_s())

    def state(self) -> QueueState:
        process_queue = self.process_queue
        last = process_queue.consumer_offset + process_queue.span
        return QueueState(
            process_queue.consumer_offset,
            last,
            process_queue.count,
            process_queue.size,
            self._pulled_ms,
            self._context.session.runtime.now_ms() - round((self._clock() - self._done_s) * 1000),
            consuming=1 if self._context.prefetch.is_consumed(process_queue) else 0,
            is_dropped=process_queue.dropped,
        )

    def metrics(self, waiting: int | None, committed: int | None) -> QueueMetrics:
        """The metrics of the queue.

        :param waiting: the lowest offset of its messages that wait for the application.
        :param committed: the offset that this member stored last.
        """
        from roquet.client.metrics import QueueMetrics

        offset = self.consumer_offset()
        return QueueMetrics(
            self._position.offset if waiting is None else waiting,
            offset,
            committed,
            None if self._end is None else max(0, self._end[0] - offset),
            self.process_queue.count,
            self.process_queue.size,
            self._pulled_ms,
            self._is_paused,
        )

    def _on_done(self) -> None:
        self._done_s = self._clock()
        self._changed.set()

    def _failed(self, error: RoquetError) -> float:
        """Log a failed pull and return the ms to wait.

        Only the first of several failures is a warning, as there is one per second. The session
        tells of a broker that does not answer, once for all queues.
        """
        log.log(
            logging.DEBUG if is_outage(error) or not self._streak.failed() else logging.WARNING,
            "pull failed, will be retried: queue=%s error=%s",
            self._queue,
            error,
        )
        return delay_after_failure_ms(error)

    async def _until_pull_is_allowed(self) -> None:
        is_ordered = self._context.ordered
        while self._former and self._is_former_busy():
            await asyncio.sleep(BUSY_CHECK_S)
        while (
            self._is_waiting
            or self._is_paused
            or not has_room(self.process_queue, self._limits(), is_ordered=is_ordered)
        ):
            self._changed.clear()
            await self._changed.wait()

    async def _pull(self) -> float:
        """Pull once and deliver the messages; return the ms to wait before the next pull."""
        began_s = now_s()
        at, response = await self._context.session.brokers.first(
            self._queue, self._ask, self._addresses
        )
        self._carried = None
        self._pulled_ms = self._context.session.runtime.now_ms()
        result = pull_result(response, at.address, self.subscription)
        if at.is_master:
            self._end = result.max_offset, now_s()
        if self._streak.ended():
            log.info("pull works again: queue=%s broker=%s", self._queue, at.address)
        if result.status is PullStatus.OFFSET_ILLEGAL:
            return await self._start_over(result)
        elapsed_ms = (now_s() - began_s) * 1000
        self._deliver(result, at.address)
        delay_ms = self._position.advance(result, elapsed_ms)
        if result.status is not PullStatus.FOUND:
            return delay_ms
        self._counters.pulls += 1
        self._counters.pull_ms += elapsed_ms
        return max(delay_ms, self._context.pull_interval_ms)

    def _addresses(self, route: Route, broker_name: str) -> list[BrokerAddress]:
        read_from = self._context.read_from
        return addresses_to_read(read_from, route, broker_name, self._position.broker_id)

    async def _ask(self, at: BrokerAddress) -> tuple[BrokerAddress, Command]:
        commits = self._context.auto_commit and not self._context.broadcast
        commit_offset = self.process_queue.consumer_offset if commits else 0
        flags = sys_flag(at, commit_offset)
        if flags & COMMIT_OFFSET:
            self._carried = commit_offset, now_s()
        request = pull_request(
            self._context.group,
            self._queue,
            self._position.offset,
            self._context.batch_size,
            flags,
            self.subscription,
            HOLD_MS,
            commit_offset,
        )
        return at, await self._context.session.call(at.address, request, TIMEOUT_MS)

    def _deliver(self, result: PullResult, address: str) -> None:
        records = [
            record
            for record in self._without_repeats(result, address)
            if not self.process_queue.has(record.queue_offset)
        ]
        size_before = self.process_queue.size
        self.process_queue.take(
            ((record.queue_offset, len(record.body)) for record in records), result.next_offset
        )
        self._counters.pulled += len(records)
        self._counters.pulled_bytes += self.process_queue.size - size_before
        source = MessageSource(
            self._queue.broker_name,
            (result.min_offset, result.max_offset),
            self._context.uncompressed_max,
            self._context.session.names,
        )
        process_queue = self.process_queue
        self._context.prefetch.put_all(
            [Delivery(each, source, process_queue, each.reconsume_times) for each in records]
        )

    def _without_repeats(self, result: PullResult, address: str) -> list[Record]:
        """The messages of an answer without repetitions.

        Two different messages with one queue offset are both kept: a broker may have assigned an
        offset twice.
        """
        records = selected_records(result)
        if len({record.queue_offset for record in records}) == len(records):
            return records
        kept = list(
            {(record.queue_offset, record.physical_offset): record for record in records}.values()
        )
        if len(kept) < len(records) and not self._has_logged_repeats:
            log.warning(
                "messages came twice in one answer, each is delivered once: "
                "queue=%s broker=%s messages=%d first_offset=%d",
                self._queue,
                address,
                len(records) - len(kept),
                records[0].queue_offset,
            )
            self._has_logged_repeats = True
        return kept

    async def _start_over(self, result: PullResult) -> float:
        """Handle an offset outside the queue: discard all messages, wait, go on at `next_offset`.

        See docs/pitfalls.md#trap-57.
        """
        log.warning(
            "offset outside the queue, pulling continues at next_offset: "
            "queue=%s offset=%d min_offset=%d max_offset=%d next_offset=%d",
            self._queue,
            self._position.offset,
            result.min_offset,
            result.max_offset,
            result.next_offset,
        )
        # Before the pause, so that no offset after next_offset is committed meanwhile.
        self._begin_at(result.next_offset)
        # A seek or another filter may end this before the offset is stored below.
        self._context.offsets.forget(self._queue)
        await asyncio.sleep(self._position.advance(result, 0) / 1000)
        if self._context.auto_commit:
            await self._context.offsets.reset(self._queue, result.next_offset)
        return 0
