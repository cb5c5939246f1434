"""The messages of a consumer that has hooks: they are told of each delivery and its end."""

from __future__ import annotations

from functools import partial
from types import TracebackType
from typing import Self

from roquet.client._consume.message_stream import MessageStream
from roquet.client._consume.prefetch import Delivery, PrefetchBuffer
from roquet.client._consume.redelivery import Redelivery
from roquet.client._consume.trace import ConsumeTrace
from roquet.client._net.hooks import ConsumeHooks, ConsumeWatch
from roquet.client.hook import ConsumeOutcome
from roquet.client.received import ReceivedMessage, Settle


class HookedMessage(ReceivedMessage):
    """A received message whose blocks and whose end hooks are told of."""

    __slots__ = ("_watch",)

    def watched_by(self, watch: ConsumeWatch) -> None:
        """Tell `watch`. Called once, before the application gets the message."""
        self._watch = watch
        # Before `settle_in_this_thread` can replace it: hooks are told in the thread of the loop.
        self._settle = partial(_settle_and_tell, self._settled_by("watched_by"), watch)

    # `async with` calls these, too.

    def __enter__(self) -> Self:
        self._watch.enter()
        return super().__enter__()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> bool:
        self._watch.leave(error)
        return super().__exit__(kind, error, trace)


def _settle_and_tell(settle: Settle, watch: ConsumeWatch, delay_level: int | None) -> None:
    settle(delay_level)
    watch.settled(delay_level)


class HookedMessageStream(MessageStream):
    """A stream of messages that tells hooks of them. Without hooks there is none of this.

    Invariant: `_watches` has the messages that the application has and that are not settled.
    """

    _kind = HookedMessage

    def __init__(
        self,
        prefetch: PrefetchBuffer,
        redelivery: Redelivery,
        uncompressed_max: int,
        consume_timeout_s: float | None,
        trace: ConsumeTrace | None,
        hooks: ConsumeHooks,
    ) -> None:
        super().__init__(prefetch, redelivery, uncompressed_max, consume_timeout_s, trace)
        self._hooks = hooks
        self._watches: dict[Delivery, ConsumeWatch] = {}

    def _open(self, delivery: Delivery, began_s: float) -> ReceivedMessage | None:
        message = super()._open(delivery, began_s)
        if isinstance(message, HookedMessage):
            watch = self._hooks.delivered(message, partial(self._watches.pop, delivery, None))
            self._watches[delivery] = watch
            message.watched_by(watch)
        return message

    def _expired(self, delivery: Delivery, delay_level: int) -> None:
        super()._expired(delivery, delay_level)
        watch = self._watches.get(delivery)
        if watch is not None:
            watch.end(ConsumeOutcome.EXPIRED)

    def close(self) -> int:
        for watch in list(self._watches.values()):
            watch.end(ConsumeOutcome.UNSETTLED)
        return super().close()
