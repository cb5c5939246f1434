"""The calls of an application's rebalance listener."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable
from typing import Final

from roquet.client._consume.context import MemberContext
from roquet.client._net.tasks import Tasks
from roquet.client.rebalance_listener import RebalanceListener
from roquet.common.failure_streak import FailureStreak
from roquet.protocol.records.message import MessageQueue

log = logging.getLogger(__name__)

LISTENER_S_MAX: Final = 10.0
"""How long a rebalance waits for one call of the listener."""


class RebalanceCalls:
    """Calls a rebalance listener: one call at a time, each in a task and for a limited time.

    Invariant: `_untold` has the queues of which the listener is still to be told, and what follows
    that. A queue is revoked only if the listener was told of it.
    """

    def __init__(self, listener: RebalanceListener, context: MemberContext) -> None:
        self._listener = listener
        self._group = context.group
        self._names = context.session.names
        self._turn = asyncio.Lock()
        self._tasks = Tasks()
        self._caller: asyncio.Task[None] | None = None
        self._assigned_streak = FailureStreak()
        self._revoked_streak = FailureStreak()
        self._untold: dict[MessageQueue, Callable[[], None]] = {}

    def is_caller(self) -> bool:
        """Whether the listener is what runs now: a wait for a rebalance would wait for itself."""
        return self._caller is not None and asyncio.current_task() is self._caller

    def has_untold(self) -> bool:
        """Whether the listener is still to be told of queues."""
        return bool(self._untold)

    def added(self, queue: MessageQueue, follows: Callable[[], None]) -> None:
        """Note a queue that was added. `tell` follows.

        :param follows: called when the listener was told of the queue.
        """
        self._untold[queue] = follows

    async def tell(self) -> None:
        """Tell the listener of the queues that were added."""
        async with self._turn:
            told, self._untold = self._untold, {}
            if told:
                await self._call(
                    self._listener.queues_assigned, frozenset(told), self._assigned_streak
                )
        for follows in told.values():
            follows()

    async def revoked(self, queues: Iterable[MessageQueue]) -> None:
        """Tell the listener that queues were taken away.

        It is not told of those of which it does not know.
        """
        known = frozenset(queue for queue in queues if self._untold.pop(queue, None) is None)
        if known:
            async with self._turn:
                await self._call(self._listener.queues_revoked, known, self._revoked_streak)

    async def _call(
        self,
        method: Callable[[frozenset[MessageQueue]], Awaitable[None]],
        queues: frozenset[MessageQueue],
        streak: FailureStreak,
    ) -> None:
        """Wait until the listener has ended, at most `LISTENER_S_MAX`. Failures are logged."""
        name = f"{self._listener._log_name}.{method.__name__}"
        call = self._tasks.start(self._run(method, name, queues, streak), f"call {name}")
        self._caller = call
        try:
            _, late = await asyncio.wait([call], timeout=LISTENER_S_MAX)
        finally:
            # A listener that suppresses its cancellation is not waited for.
            self._caller = None
            call.cancel()
        if late or call.cancelled():
            log.warning(
                "rebalance listener %s, the rebalance goes on: group=%s method=%s queues=%d",
                f"did not end within {LISTENER_S_MAX:g} s" if late else "was cancelled",
                self._group,
                name,
                len(queues),
            )

    async def _run(
        self,
        method: Callable[[frozenset[MessageQueue]], Awaitable[None]],
        name: str,
        queues: frozenset[MessageQueue],
        streak: FailureStreak,
    ) -> None:
        try:
            await method(frozenset(map(self._names.plain_queue, queues)))
        except Exception as error:  # of the application's own listener
            log.log(
                logging.WARNING if streak.failed(type(error)) else logging.DEBUG,
                "rebalance listener failed: group=%s method=%s queues=%d",
                self._group,
                name,
                len(queues),
                exc_info=True,
            )
        else:
            streak.ended()
