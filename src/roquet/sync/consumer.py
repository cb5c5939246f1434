"""The blocking consumer."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Self, TypeAlias, Unpack, cast

from roquet.client import consumer
from roquet.client._consume.offsets import Start, Where
from roquet.client._consume.topic_patterns import Topics
from roquet.client.config import ClientConfig, NameServers
from roquet.client.consumer import DRAIN_TIMEOUT_MS, MemberOptions
from roquet.client.received import ReceivedMessage
from roquet.client.selector import Sql
from roquet.common.callables import check_handler
from roquet.common.callback_threads import CallbackThreads
from roquet.common.stop_signals import stopping_on
from roquet.errors import ClientStateError
from roquet.protocol.records.message import MessageQueue
from roquet.sync.background_loop import Work
from roquet.sync.blocking_user import BlockingUser, underneath
from roquet.sync.callbacks import check_plain
from roquet.sync.rebalance_listener import ListenerInThreads, RebalanceListener

__all__ = ["Consumer"]

Handler: TypeAlias = Callable[[ReceivedMessage], object]
"""Handles a message. Its end acknowledges the message, an exception has it delivered again."""


class ConsumerOptions(MemberOptions, total=False):
    """The keyword arguments of `Consumer`, for callers that pass them on."""

    listener: RebalanceListener | None


class Consumer(BlockingUser[consumer.Consumer]):
    """A member of a consumer group: `roquet.Consumer` for code without event loop.

        with Consumer("127.0.0.1:9876", "billing", {"orders": "new||paid"}) as consumer:
            for message in consumer:
                with message:
                    book(message.body)

    The arguments are those of `roquet.Consumer`; `listener` is a `roquet.sync.RebalanceListener`.
    Several threads may iterate over one consumer at
    the same time; each acknowledges its own messages. Any thread may settle a message.

    :raises ConfigError: an argument cannot be used; the message names it.
    :raises MessageError: a topic or group name is not allowed.
    """

    def __init__(
        self,
        name_server: NameServers | ClientConfig | BlockingUser[Any],
        group: str,
        topics: Topics,
        start: Start = "latest",
        **options: Unpack[ConsumerOptions],
    ) -> None:
        shared, owner = underneath(name_server)
        threads = CallbackThreads("roquet-handler")
        listener = options.get("listener")
        self._listener = None if listener is None else ListenerInThreads(listener, threads)
        asynchronous = cast(consumer.ConsumerOptions, {**options, "listener": self._listener})
        super().__init__(
            consumer.Consumer(shared, group, topics, start, **asynchronous), owner, threads
        )
        self._callbacks = threads

    def stop(self) -> None:
        """Deliver no more messages. What was delivered can still be settled.

        Iterations end, and `run` returns when its handlers have ended. The member stays in its
        group until it is closed. Handlers and handlers of signals may call this: it does not wait.
        """
        self._open_loop().soon(self._stop)

    def _stop(self) -> None:
        if self._client.is_open:  # it may have been closed meanwhile
            self._client.stop()

    def __iter__(self) -> Iterator[ReceivedMessage]:
        """Iterate over the messages until the consumer is stopped or closed.

        Asking for the next message acknowledges the one before. A message whose loop body is left
        by `break`, `return` or an exception is not acknowledged.
        """
        self._open_loop()
        return _BlockingIteration(self)

    def __next__(self) -> ReceivedMessage:
        """The next message, for `next(consumer)`. It is not acknowledged, as in `get`.

        :raises StopIteration: the consumer is stopped or closed.
        """
        message = self._next()
        if message is None:
            raise StopIteration
        return message

    def _next(self, former: ReceivedMessage | None = None) -> ReceivedMessage | None:
        """Acknowledge the former message and return the next one; None if there will be none."""
        return self._open_loop().call(lambda: self._take(former), unclaimed=_deliver_again)

    async def _take(self, former: ReceivedMessage | None) -> ReceivedMessage | None:
        if former is not None:
            former.ack()
        try:
            return _of_any_thread(await anext(self._client))
        except StopAsyncIteration:
            return None

    def get(self, timeout_ms: int | None = None) -> ReceivedMessage:
        """Wait for the next message and return it. Nothing is acknowledged.

        :param timeout_ms: how long to wait in ms; None means for ever.
        :raises CallTimeout: there was no message in time.
        :raises ClientStateError: the consumer is stopped or closed, perhaps while this waits.
        """

        async def get() -> ReceivedMessage:
            return _of_any_thread(await self._client.get(timeout_ms))

        return self._open_loop().call(get, unclaimed=_deliver_again)

    def get_many(self, max_messages: int = 32, timeout_ms: int = 1000) -> list[ReceivedMessage]:
        """Return up to `max_messages` messages that are already here. Nothing is acknowledged.

        :param timeout_ms: how long to wait for the first message; the list is empty after that.
        :raises ClientStateError: the consumer is stopped or closed, perhaps while this waits.
        """
        return self._many(lambda: self._client.get_many(max_messages, timeout_ms))

    def _many(self, work: Work[list[ReceivedMessage]]) -> list[ReceivedMessage]:
        async def get() -> list[ReceivedMessage]:
            return [_of_any_thread(message) for message in await work()]

        return self._open_loop().call(get, unclaimed=_deliver_all_again)

    @contextmanager
    def batch(
        self, max_messages: int = 32, timeout_ms: int = 1000
    ) -> Iterator[list[ReceivedMessage]]:
        """Get messages as `get_many` does, and settle them at the end of the block.

            with consumer.batch() as messages:
                book_all(message.body for message in messages)

        The end of the block acknowledges those that are not settled yet. An exception in the block
        is logged and suppressed, and those that are not settled are delivered again later.
        Exceptions that are no `Exception`, such as `KeyboardInterrupt`, pass through and settle
        nothing.
        """
        batch = self._client.batch(max_messages, timeout_ms)
        messages = self._many(batch.__aenter__)
        try:
            yield messages
        except Exception as error:
            if not self._call(batch.__aexit__, type(error), error, error.__traceback__):
                raise
        else:
            self._call(batch.__aexit__, None, None, None)

    def run(
        self,
        handler: Handler,
        *,
        concurrency: int = 1,
        stop_signals: Iterable[int] = (),
        drain_timeout_ms: int = DRAIN_TIMEOUT_MS,
    ) -> None:
        """Call `handler` for each message in a thread, until the consumer is stopped or closed.

            with Consumer("127.0.0.1:9876", "billing", "orders") as consumer:
                consumer.run(book, concurrency=10, stop_signals=[signal.SIGTERM])

        The end of the handler acknowledges its message. After an exception, which is logged, the
        message is delivered again later. An `ordered` consumer handles the messages of a queue one
        after the other, those of different queues at the same time.

        After a stop the handlers that are at work end first. If this call is interrupted, they are
        not waited for: their messages are settled when they end. The end of the process does not
        wait for them, either.

        :param handler: a function that may block. It may call `message.ack` or `message.retry`.
        :param concurrency: maximum number of messages that are handled at the same time.
        :param stop_signals: the first of these signals stops the consumer.
        :param drain_timeout_ms: how long handlers may work on after a stop. Those that take longer
            are not waited for; their messages are delivered again.
        :raises ConfigError: an argument cannot be used; or `stop_signals` outside the main thread.
        """
        check_plain("handler", handler)
        check_handler(handler)
        loop = self._open_loop()
        with stopping_on(stop_signals, lambda: loop.soon(self._stop)):
            self._call(
                self._client.run,
                self._callbacks.runs(handler),
                concurrency=concurrency,
                drain_timeout_ms=drain_timeout_ms,
            )

    def assigned(self) -> frozenset[MessageQueue]:
        """The queues that are assigned to this member now."""
        return self._call_plain(self._client.assigned)

    def subscribe(self, topic: str, filter: str | Sql = "*") -> None:  # noqa: A002 - API
        """Subscribe to one more topic, or change the filter of a topic."""
        self._require_no_listener("subscribe")
        self._call(self._client.subscribe, topic, filter)

    def unsubscribe(self, topic: str) -> None:
        """Give up a topic: its queues go, and their offsets are stored."""
        self._require_no_listener("unsubscribe")
        self._call(self._client.unsubscribe, topic)

    def _require_no_listener(self, method: str) -> None:
        if self._listener is not None and self._listener.is_caller:
            raise ClientStateError(
                f"{method}() waits for the rebalance listener, so the listener cannot wait for it: "
                "call it in a thread that the listener does not join"
            )

    def subscriptions(self) -> dict[str, str | Sql]:
        """The topics that are subscribed now, those of patterns included, with their filters."""
        return self._call_plain(self._client.subscriptions)

    def pause(self, *queues: MessageQueue) -> None:
        """Stop the delivery of some queues; without arguments of all that are assigned now."""
        self._call_plain(self._client.pause, *queues)

    def resume(self, *queues: MessageQueue) -> None:
        """Deliver paused queues again; without arguments all of them."""
        self._call_plain(self._client.resume, *queues)

    def paused(self) -> frozenset[MessageQueue]:
        """The queues that are paused now."""
        return self._call_plain(self._client.paused)

    def seek(self, queue: MessageQueue, where: Where) -> None:
        """Continue a queue at another place, and store that as the group's offset."""
        self._call(self._client.seek, queue, where)

    def commit(self, offsets: Mapping[MessageQueue, int] | None = None) -> None:
        """Store offsets of the group now: those given, or of all queues what is settled so far."""
        self._call(self._client.commit, offsets)

    def position(self, queue: MessageQueue) -> int:
        """The offset of the next message of a queue that will be delivered."""
        return self._call_plain(self._client.position, queue)

    def committed(self, queue: MessageQueue) -> int | None:
        """The stored offset of the group in a queue, assigned or not; None if there is none."""
        return self._call(self._client.committed, queue)

    def lag(self) -> dict[MessageQueue, int]:
        """How many messages of each assigned queue are not consumed yet."""
        return self._call(self._client.lag)


class _BlockingIteration:
    """One `for` over a consumer."""

    def __init__(self, messages: Consumer) -> None:
        self._messages = messages
        self._current: ReceivedMessage | None = None

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> ReceivedMessage:
        former, self._current = self._current, None
        try:
            message = self._messages._next(former)
        except ClientStateError:
            if not self._messages._is_closed:
                raise
            message = None
        if message is None:
            raise StopIteration
        self._current = message
        return message


def _of_any_thread(message: ReceivedMessage) -> ReceivedMessage:
    message.settle_in_this_thread(asyncio.get_running_loop().call_soon_threadsafe)
    return message


def _deliver_again(message: ReceivedMessage | None) -> None:
    if message is not None:
        message.retry()


def _deliver_all_again(messages: list[ReceivedMessage]) -> None:
    for message in messages:
        message.retry()
