"""The queues that this consumer has, and the pulls that follow from that."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from roquet.client._consume.fetcher import FetchSettings, QueueFetcher
from roquet.client._consume.offsets import OffsetStore
from roquet.client._consume.order_locks import OrderLocks
from roquet.client._consume.process_queue import ProcessQueue
from roquet.client._net.member_calls import QueueState
from roquet.client._net.tasks import Tasks, attempt, cancel
from roquet.errors import RoquetError
from roquet.protocol.bodies.tables import Subscription
from roquet.protocol.records.message import MessageQueue

log = logging.getLogger(__name__)

BUSY_S_MAX: Final = 20.0
"""How long a queue that is another member's next waits for the message that is being dealt with."""
BUSY_LOOK_S: Final = 0.1


@dataclass(frozen=True)
class Running:
    pull: QueueFetcher
    task: asyncio.Task[None]


class Assignment:
    """Keeps: exactly one running pull for each queue assigned; a queue's progress is stored when it is taken away;
    `_giving_back` has the queues with locks that were taken away while somebody here may still work on them.

    :param start: where the group begins or goes on with a queue.
    :param locks: where queues are consumed in order, one is only ours with its lock.
    :param is_busy: whether a message of a queue is being dealt with: nobody else may have the queue before it is.
    """

    def __init__(
        self,
        order: FetchSettings,
        progress: OffsetStore,
        start: Callable[[MessageQueue], Awaitable[int]],
        locks: OrderLocks | None = None,
        is_busy: Callable[[ProcessQueue], bool] = lambda _: False,
    ) -> None:
        self._order = order
        self._progress = progress
        self._start = start
        self._locks = locks
        self._is_busy = is_busy
        self.waits_for_locks = False
        """Whether a queue that is wanted was another member's when it was asked for last."""
        self._tasks = Tasks()
        self._running: dict[MessageQueue, Running] = {}
        self._giving_back: set[MessageQueue] = set()

    def queues(self, topic: str | None = None) -> frozenset[MessageQueue]:
        """Those of one topic, or all."""
        return frozenset(queue for queue in self._running if topic in (None, queue.topic))

    def states(self) -> dict[MessageQueue, QueueState]:
        """How this consumer stands with its queues; ahead of what the brokers know."""
        return {queue: running.pull.state() for queue, running in self._running.items()}

    async def become(self, wanted: frozenset[MessageQueue], subscription: Subscription) -> None:
        """Take and give queues of a topic until exactly `wanted` are left.

        A queue whose start cannot be found out now is left for the next time.
        """
        current = self.queues(subscription.topic)
        await self.drop(sorted(current - wanted))
        added = sorted(wanted - current)
        if self._locks is not None:
            added = await self._locked(added, self._locks)
        await asyncio.gather(*(self._add(queue, subscription) for queue in added))

    async def _locked(self, queues: list[MessageQueue], locks: OrderLocks) -> list[MessageQueue]:
        """Those that may be consumed now: neither another member nor a task of this one still works on them."""
        locked = await locks.acquire(queue for queue in queues if queue not in self._giving_back)
        self.waits_for_locks |= len(locked) < len(queues)
        return locked

    async def _add(self, queue: MessageQueue, subscription: Subscription) -> None:
        try:
            start = await self._start(queue)
        except RoquetError as error:
            log.warning("%s is not consumed yet, its start is not known: %s", queue, error)
            if self._locks is not None:
                await self._locks.release([queue])
            return
        if self._locks is not None and not self._locks.has(queue):
            self.waits_for_locks = True  # somebody else may have it by now
            return
        log.info("consuming %s from %s", queue, start)
        pull = QueueFetcher(self._order, queue, start, subscription)
        self._running[queue] = Running(pull, self._tasks.start(pull.run(), f"pull {queue}"))

    async def drop(self, queues: Iterable[MessageQueue], *, stores: bool = True) -> None:
        """Stop the pulls of these queues and store how far they came; not where somebody wants them elsewhere."""
        dropped = {queue: self._running.pop(queue) for queue in queues if queue in self._running}
        for running in dropped.values():
            running.pull.taken.dropped = True
        if self._locks is not None:
            self._giving_back.update(dropped)
        await cancel(*(running.task for running in dropped.values()))
        if stores:
            await self._store_all(dropped)
        for queue in dropped:
            self._progress.forget(queue)
        if self._locks is not None:
            for queue, running in dropped.items():
                work = self._give_back(self._locks, queue, running.pull, stores=stores)
                self._tasks.start(work, f"unlock {queue}")

    async def _give_back(
        self, locks: OrderLocks, queue: MessageQueue, pull: QueueFetcher, *, stores: bool
    ) -> None:
        """Once its message is dealt with, which then counts, too; the lock goes back after a while in any case."""
        try:
            async with asyncio.timeout(BUSY_S_MAX):
                await self._idle(pull.taken)
            if stores and locks.has(queue):
                await self._store(queue, pull)
                self._progress.forget(queue)
        except TimeoutError:
            log.warning(
                "%s goes to another member, a message of it has been under way for too long", queue
            )
        await locks.release([queue])
        await self._idle(pull.taken)
        self._giving_back.discard(queue)

    async def _idle(self, taken: ProcessQueue) -> None:
        while self._is_busy(taken):
            await asyncio.sleep(BUSY_LOOK_S)

    async def store_offsets(self) -> None:
        """Store how far every queue came; what cannot be stored is logged and goes with the next time."""
        await self._store_all(self._running)

    async def _store_all(self, queues: Mapping[MessageQueue, Running]) -> None:
        await asyncio.gather(
            *(self._store(queue, running.pull) for queue, running in list(queues.items()))
        )
        await attempt(self._progress.save, "saving progress")

    async def _store(self, queue: MessageQueue, pull: QueueFetcher) -> None:
        await attempt(
            lambda: self._progress.store(queue, lambda: pull.taken.progress),
            f"storing the progress of {queue}",
        )

    async def close(self) -> None:
        try:
            await self.drop(sorted(self.queues()))
        finally:
            await self._tasks.close()
            if self._locks is not None:
                await self._locks.release_all()
