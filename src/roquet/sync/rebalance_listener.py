"""The blocking rebalance listener: what an application does when its queues come and go."""

from __future__ import annotations

import threading
from collections.abc import Callable

from roquet.client import rebalance_listener
from roquet.common.callback_threads import CallbackThreads
from roquet.errors import ConfigError
from roquet.protocol.records.message import MessageQueue
from roquet.sync.callbacks import check_plain

__all__ = ["RebalanceListener"]


class RebalanceListener:
    """The base class of listeners, for `Consumer(listener=...)`, with plain functions.

        class Offsets(RebalanceListener):
            def queues_revoked(self, queues):
                consumer.commit()

    They run in a thread of the consumer's callbacks, so they may block. Otherwise all is as with
    `roquet.RebalanceListener`: one method is called at a time, and may take 10 s. After that the
    rebalance goes on. The function goes on, too, as a thread cannot be cancelled.

    `close`, `subscribe` and `unsubscribe` would wait for the listener: they raise
    `ClientStateError` here. Call them in a thread that the listener does not join.
    """

    def queues_assigned(self, queues: frozenset[MessageQueue]) -> None:
        """Called when this member has got queues. They are pulled when the call has ended."""

    def queues_revoked(self, queues: frozenset[MessageQueue]) -> None:
        """Called when this member has lost queues of which the listener was told before.

        `Consumer.commit` still stores their offsets. See `roquet.RebalanceListener`.
        """


class ListenerInThreads(rebalance_listener.RebalanceListener):
    """Has the functions of a blocking listener called in threads.

    :raises ConfigError: the argument is something else, or has a coroutine function.
    """

    def __init__(self, listener: RebalanceListener, threads: CallbackThreads) -> None:
        if not isinstance(listener, RebalanceListener):
            raise ConfigError(
                f"listener is {listener!r}: give an object of a subclass of "
                "roquet.sync.RebalanceListener"
            )
        for method in (listener.queues_assigned, listener.queues_revoked):
            check_plain(f"{type(listener).__name__}.{method.__name__} of listener", method)
        self._listener = listener
        self._calls = threading.local()
        self._assigned = threads.runs(self._noted(listener.queues_assigned))
        self._revoked = threads.runs(self._noted(listener.queues_revoked))

    @property
    def _log_name(self) -> str:
        return type(self._listener).__name__

    @property
    def is_caller(self) -> bool:
        """Whether it is the listener that runs in this thread."""
        return getattr(self._calls, "is_running", False)

    def _noted(
        self, method: Callable[[frozenset[MessageQueue]], None]
    ) -> Callable[[frozenset[MessageQueue]], None]:
        def call(queues: frozenset[MessageQueue]) -> None:
            self._calls.is_running = True
            try:
                method(queues)
            finally:
                self._calls.is_running = False

        return call

    async def queues_assigned(self, queues: frozenset[MessageQueue]) -> None:
        await self._assigned(queues)

    async def queues_revoked(self, queues: frozenset[MessageQueue]) -> None:
        await self._revoked(queues)
