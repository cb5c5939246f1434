"""The rebalance listener: what an application does when its queues come and go."""

from __future__ import annotations

from roquet.common.callables import is_coroutine_function
from roquet.errors import ConfigError
from roquet.protocol.records.message import MessageQueue

__all__ = ["RebalanceListener"]


class RebalanceListener:
    """The base class of listeners, for `Consumer(listener=...)`.

        class Offsets(RebalanceListener):
            async def queues_revoked(self, queues):
                await consumer.commit()

        consumer = Consumer(
            "127.0.0.1:9876", "billing", "orders", auto_commit=False, listener=Offsets()
        )

    One method is called at a time, never with an empty set. The queues of the group's retry topic
    are told, too. A call may take 10 s: then it is cancelled and logged as a warning, and the
    rebalance goes on. An exception is logged, several in a row once, and stops nothing.

    `close`, `subscribe` and `unsubscribe` would wait for the rebalance, which waits for the
    listener: they raise `ClientStateError` here. Call them in a task of their own that the listener
    does not await. All other methods may be called.
    """

    @property
    def _log_name(self) -> str:
        """What logs call this listener."""
        return type(self).__name__

    async def queues_assigned(self, queues: frozenset[MessageQueue]) -> None:
        """Called when this member has got queues. They are pulled when the call has ended.

        So a `Consumer.seek` here counts before anything is delivered. `Consumer.start` does not
        wait for the call.
        """

    async def queues_revoked(self, queues: frozenset[MessageQueue]) -> None:
        """Called when this member has lost queues of which the listener was told before.

        Nothing of these queues is delivered any more, and they are not in `Consumer.assigned()`.
        What was delivered may still be settled, and `Consumer.commit` stores their offsets. After
        this call the offsets are stored (with `auto_commit`) and the queues given back. It is made

        - in a rebalance and by `unsubscribe`. With `ordered` the queues are still locked. Otherwise
          another member may have them already, because members do not wait for each other.
        - when the consumer is closed, for all queues. This member is still in its group.
        - when locks of an `ordered` consumer were lost. The queues may belong to another member,
          whose offsets a `commit` here may replace: messages come twice then. With `auto_commit`
          the offsets are stored before this call, as they would be older after it.
        - when an administrator resets offsets. The new offset is stored after this call, whatever
          is committed here, and the queue is assigned again.
        """


def check_listener(listener: object) -> RebalanceListener:
    """Check the argument `listener` of a consumer.

    :raises ConfigError: it is something else, or has a plain function in place of a method.
    """
    if not isinstance(listener, RebalanceListener):
        raise ConfigError(
            f"listener is {listener!r}: give an object of a subclass of RebalanceListener"
        )
    for method in (listener.queues_assigned, listener.queues_revoked):
        if not is_coroutine_function(method):
            raise ConfigError(
                f"listener: {type(listener).__name__}.{method.__name__} is no coroutine function: "
                "begin it with `async def`"
            )
    return listener
