"""The queues assigned to this consumer, with one fetcher each."""

from __future__ import annotations

import asyncio
import logging
import reprlib
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from roquet.client._consume.context import MemberContext
from roquet.client._consume.fetcher import BUSY_CHECK_S, QueueFetcher
from roquet.client._consume.offsets import (
    TIMEOUT_MS,
    Where,
    check_offset,
    offset_of,
    start_offset,
)
from roquet.client._consume.order_locks import OrderLocks
from roquet.client._consume.pull_flow import PrefetchLimits
from roquet.client._consume.rebalance_calls import LISTENER_S_MAX, RebalanceCalls
from roquet.client._net.member_calls import QueueState
from roquet.client._net.outages import level_of
from roquet.client._net.tasks import Tasks, attempt, cancel
from roquet.errors import ConfigError, RoquetError
from roquet.protocol.bodies.tables import Subscription
from roquet.protocol.records.message import MessageQueue

if TYPE_CHECKING:
    from roquet.client.metrics import QueueMetrics

log = logging.getLogger(__name__)

BUSY_S_MAX: Final = 20.0
"""How long a queue that was taken away keeps its lock for the message that is being consumed."""
DROP_S_MAX: Final = 10.0 + 3 * LISTENER_S_MAX
"""How long `close` waits for queues that were being dropped when the member began to leave. Up to
three calls of the listener may come first: one with added queues, one with queues that were taken
away, and one with those whose locks were lost."""


@dataclass(frozen=True)
class Running:
    """The fetcher of one assigned queue, and the task that runs it."""

    fetcher: QueueFetcher
    task: asyncio.Task[None]


class Assignment:
    """The queues assigned to this consumer. It starts and stops their fetchers.

    Invariant: each assigned queue has exactly one running fetcher. When a queue is taken away, its
    offset is stored, unless the application stores the offsets itself. `_giving_back` has the
    queues that were taken away and whose locks are kept because the application may still work on
    a message of them, each with the fetcher whose offset is stored then, or None if none is.
    `_revoking` has those of which the listener is being told that they were taken away.

    :param locks: the queue locks of an ordered consumer, which consumes a queue only with its lock.
    """

    def __init__(self, context: MemberContext, locks: OrderLocks | None) -> None:
        self._context = context
        self._offsets = context.offsets
        self._locks = locks
        self._tasks = Tasks()
        self._drops = Tasks()
        self._running: dict[MessageQueue, Running] = {}
        self._giving_back: dict[MessageQueue, QueueFetcher | None] = {}
        self._revoking: dict[MessageQueue, QueueFetcher] = {}
        listener = context.listener
        self._calls = None if listener is None else RebalanceCalls(listener, context)

    def queues(self, topic: str | None = None) -> frozenset[MessageQueue]:
        """The assigned queues of one topic, or of all topics."""
        return frozenset(queue for queue in self._running if topic in (None, queue.topic))

    def is_held(self, queue: MessageQueue) -> bool:
        """Whether the offset of a queue is this member's.

        The queue is assigned, or the listener may still store its offset, or it is still locked
        because one of its messages is consumed.
        """
        if queue in self._running or queue in self._revoking:
            return True
        return self._locks is not None and queue in self._giving_back and self._locks.has(queue)

    def is_listening(self) -> bool:
        """Whether it is the listener that runs now."""
        return self._calls is not None and self._calls.is_caller()

    def states(self) -> dict[MessageQueue, QueueState]:
        """The state of each queue that is assigned or still locked.

        The offsets are newer than those at the brokers.
        """
        fetchers = {queue: fetcher for queue, fetcher in self._giving_back.items() if fetcher}
        fetchers |= {queue: running.fetcher for queue, running in self._running.items()}
        return {queue: self._state(queue, fetcher) for queue, fetcher in fetchers.items()}

    def _state(self, queue: MessageQueue, fetcher: QueueFetcher) -> QueueState:
        state, locks = fetcher.state(), self._locks
        if locks is None:
            return state
        return replace(state, locked_ms=locks.locked_ms(queue), is_locked=locks.has(queue))

    def metrics(self) -> dict[MessageQueue, QueueMetrics]:
        """The metrics of each assigned queue."""
        waiting = self._context.prefetch.next_offsets()
        return {
            queue: running.fetcher.metrics(
                waiting.get(running.fetcher.process_queue), self._offsets.last_stored(queue)
            )
            for queue, running in self._running.items()
        }

    # what the application asks for

    def _of(self, queue: MessageQueue) -> Running:
        """The fetcher of an assigned queue.

        :raises ConfigError: the queue is not assigned, or no queue.
        """
        if not isinstance(queue, MessageQueue):
            raise ConfigError(
                f"queue is {reprlib.repr(queue)} of type {type(queue).__name__}: give a "
                "MessageQueue; several are several arguments, as in pause(*queues)"
            )
        running = self._running.get(queue)
        if running is None:
            raise _not_assigned(queue)
        return running

    def pause(self, queues: Collection[MessageQueue]) -> None:
        """Stop the delivery of these queues, or of all if none is named."""
        for running in [self._of(queue) for queue in queues or self._running]:
            running.fetcher.pause()

    def resume(self, queues: Collection[MessageQueue]) -> None:
        """Deliver these queues again, or all if none is named."""
        for running in [self._of(queue) for queue in queues or self._running]:
            running.fetcher.resume()

    def paused(self) -> frozenset[MessageQueue]:
        """The queues that are paused."""
        return frozenset(
            queue for queue, running in self._running.items() if running.fetcher.is_paused
        )

    async def seek(self, queue: MessageQueue, where: Where) -> None:
        """Continue a queue at another place, and store that as the group's offset.

        Raises as `Consumer.seek`.
        """
        self._of(queue)
        offset = await offset_of(self._context.session, self._context.group, queue, where)
        running = self._of(queue)  # it may have been taken away meanwhile
        running.task.cancel()
        running.fetcher.move_to(offset)
        self._run(queue, running.fetcher)
        self._offsets.forget(queue)
        if self._context.auto_commit:
            await self._commit(queue, running.fetcher)
            await self._offsets.persist()

    async def commit(self, offsets: Mapping[MessageQueue, int] | None) -> None:
        """Store these offsets; None: those of all queues.

        Raises as `Consumer.commit`.
        """
        fetchers = self._with_offsets()
        if offsets is None:
            work = [self._commit(queue, fetcher) for queue, fetcher in fetchers.items()]
        else:
            for queue, offset in offsets.items():
                if queue not in fetchers:
                    raise _not_assigned(queue)
                check_offset(f"the offset of {queue}", offset)
            work = [self._offsets.reset(queue, offset) for queue, offset in offsets.items()]
        failures = [
            outcome
            for outcome in await asyncio.gather(*work, return_exceptions=True)
            if outcome is not None
        ]
        await self._offsets.persist()
        if failures:
            raise failures[0]

    def _with_offsets(self) -> dict[MessageQueue, QueueFetcher]:
        """The queues of which this member may store the offset, with their fetchers."""
        fetchers = {
            queue: fetcher
            for queue, fetcher in self._giving_back.items()
            if fetcher is not None and self.is_held(queue)
        }
        fetchers |= self._revoking
        return fetchers | {queue: running.fetcher for queue, running in self._running.items()}

    def position(self, queue: MessageQueue) -> int:
        """The offset of the next message of a queue that will be delivered."""
        return self._of(queue).fetcher.position()

    async def lag(self) -> dict[MessageQueue, int]:
        """How many messages each queue has at or after the consumer offset."""
        lags = await asyncio.gather(
            *(self._lag(queue, running.fetcher) for queue, running in self._running.items())
        )
        return dict(lags)

    async def _lag(self, queue: MessageQueue, fetcher: QueueFetcher) -> tuple[MessageQueue, int]:
        end = fetcher.known_end()
        if end is None:
            end = await self._context.session.queues.max_offset(queue, TIMEOUT_MS)
        return queue, max(0, end - fetcher.consumer_offset())

    # rebalance

    def _limits(self) -> PrefetchLimits:
        """The prefetch limits of each queue now."""
        return self._context.limits.of_queue(len(self._running))

    async def apply(self, wanted: frozenset[MessageQueue], subscription: Subscription) -> bool:
        """Add and drop queues of a topic so that `wanted` are assigned.

        A queue whose start offset cannot be found now is left out until the next rebalance.
        Returns whether the locks of all added queues were got, if they need any.
        """
        current = self.queues(subscription.topic)
        await self.drop(sorted(current - wanted))
        for queue in current & wanted & self._running.keys():
            running = self._running[queue]
            if running.fetcher.subscription != subscription:
                running.task.cancel()
                running.fetcher.subscription = subscription
                self._run(queue, running.fetcher)
        added = sorted(wanted - current)
        locked = added
        if self._locks is not None:
            # A queue that is being given back may still have a message that is being consumed.
            locked = await self._locks.acquire(
                queue for queue in added if queue not in self._giving_back
            )
        keep_locks = await asyncio.gather(*(self._add(queue, subscription) for queue in locked))
        if self._calls is not None and self._calls.has_untold():
            self._tasks.start(self._calls.tell(), f"queues assigned of {subscription.topic}")
        return len(locked) == len(added) and all(keep_locks)

    async def _add(self, queue: MessageQueue, subscription: Subscription) -> bool:
        """Start to pull a queue; return False if its lock expired meanwhile."""
        try:
            start = await start_offset(
                self._context.session,
                self._context.group,
                self._offsets,
                queue,
                self._context.start,
            )
        except RoquetError as error:
            log.log(
                level_of(error),
                "queue not consumed yet, its start offset is not known: queue=%s error=%s",
                queue,
                error,
            )
            if self._locks is not None:
                await self._locks.release([queue])
            return True
        if self._locks is not None and not self._locks.has(queue):
            return False  # another member may have it by now
        assert queue not in self._running, f"{queue} has a fetcher already"
        log.info("queue assigned: queue=%s offset=%d", queue, start)
        fetcher = QueueFetcher(
            self._context,
            queue,
            start,
            subscription,
            self._limits,
            waits=self._calls is not None,
        )
        if self._calls is not None:
            self._calls.added(queue, fetcher.let_go)
        self._run(queue, fetcher)
        return True

    def _run(self, queue: MessageQueue, fetcher: QueueFetcher) -> None:
        self._running[queue] = Running(fetcher, self._tasks.start(fetcher.run(), f"pull {queue}"))

    async def drop_unlocked(self) -> bool:
        """Drop the queues whose locks expired or went to another member.

        Returns whether there were any.
        """
        lost = [] if self._locks is None else self._locks.ended()
        if lost:
            log.warning(
                "queue locks lost, the queues are not consumed until they are locked again: "
                "group=%s count=%d queues=%s",
                self._context.group,
                len(lost),
                ",".join(map(str, lost)),
            )
            await self.drop(lost, is_lost=True)
        return bool(lost)

    async def drop(
        self, queues: Iterable[MessageQueue], *, stores: bool = True, is_lost: bool = False
    ) -> None:
        """Stop the fetchers of these queues, tell the listener, and store their offsets.

        A drop that has begun is finished even if the caller is cancelled, because the queues are
        not in the assignment any more when this member leaves.

        :param stores: False while an administrator resets the offsets. Then the offsets of queues
            that were dropped before and are still locked are not stored later, either.
        :param is_lost: another member may have the queues. Their offsets are stored before the
            listener is told, so that they do not replace those of the other member later.
        """
        queues = list(queues)
        if not stores:
            self._giving_back.update(dict.fromkeys(self._giving_back.keys() & queues))
        dropped = {queue: self._running.pop(queue) for queue in queues if queue in self._running}
        for running in dropped.values():
            running.fetcher.drop()
        if self._locks is not None:
            for queue, running in dropped.items():
                self._giving_back[queue] = running.fetcher if stores else None
        ending = self._drops.start(
            self._end(dropped, stores=stores, is_lost=is_lost), "drop queues"
        )
        await asyncio.shield(ending)

    async def _end(
        self, dropped: Mapping[MessageQueue, Running], *, stores: bool, is_lost: bool
    ) -> None:
        await cancel(*(running.task for running in dropped.values()))
        if stores and is_lost:
            await self._store_all(dropped)
        if self._calls is not None:
            await self._tell_revoked(self._calls, dropped)
        if stores and not is_lost:
            await self._store_all(dropped, is_last=True)
        for queue in dropped:
            self._offsets.forget(queue)
        if self._locks is not None:
            for queue, running in dropped.items():
                work = self._give_back(self._locks, queue, running.fetcher)
                self._tasks.start(work, f"unlock {queue}")

    async def _tell_revoked(
        self, calls: RebalanceCalls, dropped: Mapping[MessageQueue, Running]
    ) -> None:
        """Tell the listener of queues that were taken away. It may store their offsets."""
        revoking = {queue: running.fetcher for queue, running in dropped.items()}
        self._revoking |= revoking
        try:
            await calls.revoked(revoking)
        finally:
            for queue in revoking:
                del self._revoking[queue]

    async def _give_back(
        self, locks: OrderLocks, queue: MessageQueue, fetcher: QueueFetcher
    ) -> None:
        """Wait until the application has settled its message, store the offset, unlock the queue.

        The lock is released after `BUSY_S_MAX` in any case.
        """
        try:
            async with asyncio.timeout(BUSY_S_MAX):
                await _idle(fetcher)
            if self._giving_back[queue] is not None and locks.has(queue):
                await self._store_last(queue, fetcher)
                self._offsets.forget(queue)
        except TimeoutError:
            log.warning(
                "queue released before its message was settled, another member gets the message, "
                "too: queue=%s waited_s=%d",
                queue,
                BUSY_S_MAX,
            )
        await locks.release([queue])
        await _idle(fetcher)
        del self._giving_back[queue]

    async def store_offsets(self) -> None:
        """Store the offsets of all queues; failures are logged and retried at the next call."""
        await self._store_all(self._running)

    async def _store_all(
        self, queues: Mapping[MessageQueue, Running], *, is_last: bool = False
    ) -> None:
        store = self._store_last if is_last else self._store
        await asyncio.gather(
            *(store(queue, running.fetcher) for queue, running in list(queues.items()))
        )
        await attempt(self._offsets.persist(), "saving offsets")

    async def _store(self, queue: MessageQueue, fetcher: QueueFetcher) -> None:
        if self._context.auto_commit:
            await attempt(self._commit(queue, fetcher), f"storing the offset of {queue}")

    async def _commit(self, queue: MessageQueue, fetcher: QueueFetcher) -> None:
        await self._offsets.commit(queue, fetcher.consumer_offset)
        if fetcher.may_be_overwritten_s():
            self._offsets.distrust(queue)

    async def _store_last(self, queue: MessageQueue, fetcher: QueueFetcher) -> None:
        """Store the offset of a queue that is given back, after all that its last pull may store.

        There is no later commit that would mend it, and the next member would get messages again.
        """
        wait_s = fetcher.may_be_overwritten_s()
        if wait_s:
            await asyncio.sleep(wait_s)
        await self._store(queue, fetcher)

    async def _store_given_back(self, fetchers: Mapping[MessageQueue, QueueFetcher | None]) -> None:
        """Store the offsets of queues that were being given back when this member began to leave.

        A message may have been settled since their offsets were stored.
        """
        await asyncio.gather(
            *(
                self._store_last(queue, fetcher)
                for queue, fetcher in fetchers.items()
                if fetcher is not None
                and self._giving_back.get(queue) is fetcher
                and self._locks is not None
                and self._locks.has(queue)
            )
        )

    async def close(self) -> None:
        """Drop all queues and release their locks."""
        given_back = dict(self._giving_back)
        try:
            await self.drop(sorted(self.queues()))
            await self._drops.finish(DROP_S_MAX)
            await self._tasks.close()
            await self._store_given_back(given_back)
        finally:
            await self._drops.close()
            await self._tasks.close()
            if self._locks is not None:
                await self._locks.release_all()


def _not_assigned(queue: object) -> ConfigError:
    return ConfigError(
        f"queue {queue!s} is not assigned to this consumer now: "
        "`Consumer.assigned()` has the queues that are"
    )


async def _idle(fetcher: QueueFetcher) -> None:
    while fetcher.is_busy():
        await asyncio.sleep(BUSY_CHECK_S)
