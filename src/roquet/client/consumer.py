"""The consumer: one member of a consumer group."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Generator, Iterable, Mapping
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final, Self, Unpack

from roquet.allocation import AllocationStrategy, Averagely, check_strategy
from roquet.client._consume.context import MemberContext
from roquet.client._consume.handlers import Handler, HandlerRun
from roquet.client._consume.in_progress import CHECK_PERIOD_S
from roquet.client._consume.member import Member
from roquet.client._consume.message_stream import MessageStream
from roquet.client._consume.offsets import Start, Where, check_start, check_where
from roquet.client._consume.parts import message_stream, offset_store, redelivery
from roquet.client._consume.prefetch import OrderedPrefetchBuffer, PrefetchBuffer
from roquet.client._consume.pull_flow import PrefetchLimits
from roquet.client._consume.read_from import ReadFrom, check_read_from
from roquet.client._consume.redelivery import SUSPEND_MS
from roquet.client._consume.topic_patterns import Topics, split_topics
from roquet.client._consume.trace import ConsumeTrace
from roquet.client._net.hooks import ConsumeHooks
from roquet.client._net.session_user import SessionUser
from roquet.client._net.tasks import Tasks, all_together, each_in_turn, every
from roquet.client._send.trace import TraceSender
from roquet.client.config import PERIOD_MS_MIN, ClientConfig, ClientOptions, NameServers
from roquet.client.rebalance_listener import RebalanceListener, check_listener
from roquet.client.received import ReceivedMessage
from roquet.client.selector import Sql, subscriptions_to
from roquet.common.arguments import check_bool, check_number
from roquet.common.callables import check_handler
from roquet.common.stop_signals import stopping_on
from roquet.errors import CallTimeout, ClientStateError, ConfigError
from roquet.protocol.records.compression import UNCOMPRESSED_MAX
from roquet.protocol.records.message import RETRY_PREFIX, MessageQueue, check_group, check_queue

if TYPE_CHECKING:
    from roquet.client.metrics import PartMetrics

__all__ = ["Consumer", "ReceivedMessage"]

log = logging.getLogger(__name__)

CONSUME_TIMEOUT_MS: Final = 15 * 60 * 1000
"""As in Apache's clients (`consumeTimeout`)."""
DRAIN_TIMEOUT_MS: Final = 30_000
PERSIST_OFFSETS_MS: Final = 5000
PULL_INTERVAL_MS_MAX: Final = 65_535
"""As in Apache's clients (`persistConsumerOffsetInterval`, `pullInterval`)."""


class MemberOptions(ClientOptions, total=False):
    """The keyword arguments of `Consumer` that are the same in `roquet.sync`."""

    ordered: bool
    broadcast: bool
    max_reconsume_times: int | None
    batch_size: int
    limits: PrefetchLimits | None
    uncompressed_max: int
    strategy: AllocationStrategy | None
    consume_timeout_ms: int | None
    offsets_folder: str | Path | None
    auto_commit: bool
    trace: bool | str
    suspend_ms: int
    read_from: ReadFrom
    pull_interval_ms: int
    persist_offsets_ms: int


class ConsumerOptions(MemberOptions, total=False):
    """The keyword arguments of `Consumer`, for callers that pass them on."""

    listener: RebalanceListener | None


class Consumer(SessionUser):
    """A member of a consumer group. The members of a group share the queues of their topics.

        async with Consumer("127.0.0.1:9876", "billing", {"orders": "new||paid"}) as consumer:
            async for message in consumer:
                async with message:
                    await book(message.body)

    Every message is delivered at least once. `ReceivedMessage` says how a message is settled.
    Several tasks may iterate over one consumer at the same time; each task acknowledges its own
    messages.

    :param name_server: `host:port`, several separated by semicolons; or a `ClientConfig`; or a
        started client whose session is shared.
    :param group: the name of the consumer group.
    :param topics: a topic, several topics, or a mapping of topics to filters: `*`, tags joined by
        `||`, or `Sql`. A compiled pattern, alone or in the mapping, stands for all topics of
        applications whose whole name matches; they are looked for every 30 s. All members of a
        group must have the same subscriptions and patterns (docs/pitfalls.md#trap-59).
    :param start: where a group begins that has no stored offset: "earliest", the beginning of each
        queue; "latest", its end; or a datetime, the first message that was stored then or later
        (one without zone is local time). Of a topic whose first messages still exist, in the
        first file of its queues, a new group gets all with "latest", too
        (docs/pitfalls.md#trap-29).
    :param ordered: deliver the messages of a queue one at a time; the next one follows when the
        one before is settled. A failed message is delivered again after `suspend_ms`, before those
        after it. See `sharding_key` of `Producer.send`.
    :param broadcast: every member gets all messages and stores its offsets in a local file. A
        failed message is logged and not delivered again; with `ordered` it is delivered again up
        to `max_reconsume_times` times.
    :param max_reconsume_times: how often a failed message is delivered again before it goes to
        the dead letter topic. None means 16 times, or without limit if `ordered`.
    :param batch_size: maximum number of messages per pull.
    :param limits: how much may wait in this process before pulling pauses.
    :param uncompressed_max: maximum size in bytes of a body after decompression. A message with a
        larger body, or with one that cannot be decompressed, is logged and counts as failed; with
        `ordered` it goes to the dead letter topic at once. A message whose body does not match
        its checksum goes there at once in either case.
    :param strategy: the rule of `roquet.allocation` by which the members share the queues; it must
        be the same in all members of a group. None means `Averagely()`.
    :param consume_timeout_ms: a message that is not settled this long after its delivery is
        delivered again later; an `ordered` consumer logs it and waits. None means never.
    :param offsets_folder: the folder of the offsets of broadcasting members, which are stored in
        `client id/group/offsets.json`. None means `~/.rocketmq_offsets`, as in Apache's client.
    :param auto_commit: store offsets every `persist_offsets_ms`, with pulls, and when a queue is
        taken away. With False, only `commit` stores offsets; not even closing does.
    :param listener: is told when queues are assigned to this member, and when it loses some.
    :param trace: send records of each message to the trace topic, as `Producer` does.
    :param suspend_ms: how long an `ordered` consumer waits before it delivers a failed message
        again, in ms.
    :param read_from: which processes of a broker are pulled, as in `PullConsumer`. The offsets are
        stored at the master in any case, or at a slave while the master is down.
    :param pull_interval_ms: how long to wait after a pull with messages, in ms, at most 65,535.
    :param persist_offsets_ms: the period in ms in which offsets are stored.
    :param client: the keyword arguments of `ClientConfig`. A broadcasting member needs a
        `client_id` that is the same after a restart, because it names the folder of the offsets
        (docs/pitfalls.md#trap-65).
    :raises ConfigError: an argument cannot be used; the message names it. `broadcast` needs
        `client_id`, `offsets_folder` needs `broadcast`.
    :raises MessageError: a topic or group name is not allowed.
    """

    def __init__(
        self,
        name_server: NameServers | ClientConfig | SessionUser,
        group: str,
        topics: Topics,
        start: Start = "latest",
        *,
        ordered: bool = False,
        broadcast: bool = False,
        max_reconsume_times: int | None = None,
        batch_size: int = 32,
        limits: PrefetchLimits | None = None,
        uncompressed_max: int = UNCOMPRESSED_MAX,
        strategy: AllocationStrategy | None = None,
        consume_timeout_ms: int | None = CONSUME_TIMEOUT_MS,
        offsets_folder: str | Path | None = None,
        auto_commit: bool = True,
        listener: RebalanceListener | None = None,
        trace: bool | str = False,
        suspend_ms: int = SUSPEND_MS,
        read_from: ReadFrom = "any",
        pull_interval_ms: int = 0,
        persist_offsets_ms: int = PERSIST_OFFSETS_MS,
        **client: Unpack[ClientOptions],
    ) -> None:
        super().__init__(name_server, **client)
        check_group(group)
        session = self._session
        self._names = session.names
        self._group = self._names.full(group)
        check_group(self._group)
        check_start(start)
        check_bool("ordered", ordered)
        check_bool("broadcast", broadcast)
        check_bool("auto_commit", auto_commit)
        check_number("batch_size", batch_size, 1)
        check_number("uncompressed_max", uncompressed_max, 1)
        check_read_from(read_from)
        check_number("pull_interval_ms", pull_interval_ms, 0, PULL_INTERVAL_MS_MAX)
        check_number("persist_offsets_ms", persist_offsets_ms, PERIOD_MS_MIN)
        if not isinstance(limits, PrefetchLimits | None):
            raise ConfigError(f"limits is {limits!r}: give a PrefetchLimits, or None")
        if listener is not None:
            check_listener(listener)
        strategy = Averagely() if strategy is None else strategy
        check_strategy(strategy)
        self._prefetch = OrderedPrefetchBuffer() if ordered else PrefetchBuffer()
        self._redelivery = redelivery(
            self._prefetch,
            session,
            self._group,
            max_reconsume_times,
            suspend_ms,
            ordered=ordered,
            broadcast=broadcast,
        )
        traces = TraceSender.of(session, group, "CONSUME", trace)
        self._trace = None if traces is None else ConsumeTrace(traces)
        self._messages = message_stream(
            self._prefetch,
            self._redelivery,
            uncompressed_max,
            consume_timeout_ms,
            self._trace,
            ConsumeHooks.of(self.config.hooks, session.client_id, group),
        )
        offsets = offset_store(
            session, self._group, self.config.client_id, offsets_folder, broadcast=broadcast
        )
        named, patterns = split_topics(topics, self._names)
        retry_topic = None if broadcast else RETRY_PREFIX + self._group
        context = MemberContext(
            session,
            self._group,
            subscriptions_to(
                named,
                retry_topic,
                session.runtime.now_ms(),
                self._names,
                has_patterns=bool(patterns),
            ),
            offsets,
            self._prefetch,
            start,
            strategy,
            ordered,
            broadcast,
            batch_size,
            limits or PrefetchLimits(),
            auto_commit,
            patterns,
            listener,
            read_from,
            pull_interval_ms,
            persist_offsets_ms,
            uncompressed_max,
        )
        self._member = Member(context)
        self._tasks = Tasks()
        self._runs: set[HandlerRun] = set()

    async def start(self) -> Self:
        """Join the group and start to pull.

        :raises ConnectionClosed: no name server can be reached.
        :raises CallTimeout: no name server answers.
        :raises AccessDenied: a broker refuses the heartbeat of this member.
        :raises ResponseError: a broker refuses an SQL92 expression.
        :raises ConfigError: a broker is too old for SQL92 expressions.
        :raises StoreError: the offset file of a broadcasting member cannot be read.
        """
        return await super().start()

    async def _on_start(self) -> None:
        if self._trace is not None:
            self._trace.sender.start()
        await self._member.join()
        in_progress = self._messages.in_progress
        if in_progress.timeout_s is not None:
            period_s = min(CHECK_PERIOD_S, in_progress.timeout_s)
            expiry = every(period_s, in_progress.expire, "checking the consume timeout")
            self._tasks.start(expiry, "consume timeout")

    async def close(self) -> None:
        """Wait for the handlers of `run`, store the offsets, and leave the group.

        What follows the handlers, and a call of the listener, takes 5 s at most.

        :raises ClientStateError: a handler of `run` or the listener calls it, which would wait for
            itself; or the consumer was started in another event loop, which still runs.
        """
        await super().close()

    def _check_close(self) -> None:
        self._require_no_listener("close")
        caller = asyncio.current_task()
        if any(caller in run.workers for run in self._runs):
            raise ClientStateError(
                "close() waits for the handlers, so none of them can call it: call stop()"
            )

    def _own_metrics(self) -> PartMetrics:
        return self._member.metrics(self._messages.in_progress.count)

    async def _on_closing(self) -> None:
        self._prefetch.stop()
        try:
            for run in list(self._runs):
                await run.ended.wait()
        finally:
            self._prefetch.close()

    async def _on_close(self) -> None:
        """Store the offsets, then leave the group."""
        self._prefetch.close()
        last_sends: list[Callable[[], Awaitable[object]]] = [self._redelivery.finish]
        if self._trace is not None:
            last_sends.append(self._trace.sender.close)
        try:
            await each_in_turn(
                self._tasks.close, partial(all_together, *last_sends), self._member.leave
            )
        finally:
            # Until the offsets were stored, the application may settle messages.
            forgotten = self._messages.close()
            if forgotten:
                log.warning(
                    "consumer closed, messages that it handed out were not settled, so they come "
                    "again: group=%s messages=%d",
                    self._group,
                    forgotten,
                )

    def stop(self) -> None:
        """Deliver no more messages. What was delivered can still be settled.

        Iterations end, and `run` returns when its handlers have ended. The member stays in its
        group until it is closed. A signal handler of the event loop may call this. It does not
        wait, so it is called without `await`.
        """
        self._require_open()
        self._prefetch.stop()
        return _Stopped()  # type: ignore[return-value]  # for those who await it all the same

    def __aiter__(self) -> AsyncIterator[ReceivedMessage]:
        """Iterate over the messages until the consumer is stopped or closed.

        Asking for the next message acknowledges the one before. A message whose loop body is left
        by `break`, `return` or an exception is not acknowledged.
        """
        self._require_open()
        return _Iteration(self._messages)

    async def __anext__(self) -> ReceivedMessage:
        """The next message, for `await anext(consumer)`. It is not acknowledged, as in `get`.

        :raises StopAsyncIteration: the consumer is stopped or closed.
        """
        self._require_open()
        message = await self._messages.next()
        if message is None:
            raise StopAsyncIteration
        return message

    async def get(self, timeout_ms: int | None = None) -> ReceivedMessage:
        """Wait for the next message and return it. Nothing is acknowledged.

        If the call is cancelled, no message is lost.

        :param timeout_ms: how long to wait in ms; None means for ever.
        :raises CallTimeout: there was no message in time.
        :raises ClientStateError: the consumer is stopped or closed, perhaps while this waits.
        """
        self._require_open()
        if timeout_ms is not None:
            check_number("timeout_ms", timeout_ms, 0)
            messages = await self._messages.some(1, timeout_ms)
            message = messages[0] if messages else None
            if message is None and not self._messages.stopped.is_set():
                raise CallTimeout(f"no message within {timeout_ms} ms")
        else:
            message = await self._messages.next()
        if message is None:
            raise _stopped()
        return message

    async def get_many(
        self, max_messages: int = 32, timeout_ms: int = 1000
    ) -> list[ReceivedMessage]:
        """Return up to `max_messages` messages that are already here. Nothing is acknowledged.

        The list ends early when the bodies together reach `uncompressed_max` bytes.

        :param timeout_ms: how long to wait for the first message; the list is empty after that.
        :raises ClientStateError: the consumer is stopped or closed, perhaps while this waits.
        :raises ConfigError: a number is out of range.
        """
        self._require_open()
        check_number("max_messages", max_messages, 1)
        check_number("timeout_ms", timeout_ms, 0)
        messages = await self._messages.some(max_messages, timeout_ms)
        if not messages and self._messages.stopped.is_set():
            # An empty list at once would let a loop around this spin, and nothing else run.
            raise _stopped()
        return messages

    @asynccontextmanager
    async def batch(
        self, max_messages: int = 32, timeout_ms: int = 1000
    ) -> AsyncIterator[list[ReceivedMessage]]:
        """Get messages as `get_many` does, and settle them at the end of the block.

            async with consumer.batch() as messages:
                await book_all(message.body for message in messages)

        The end of the block acknowledges those that are not settled yet. An exception in the block
        is logged and suppressed, and those that are not settled are delivered again later.
        Exceptions that are no `Exception`, such as `asyncio.CancelledError`, pass through and
        settle nothing.

        :raises ClientStateError: as `get_many`.
        """
        messages = await self.get_many(max_messages, timeout_ms)
        try:
            yield messages
        except Exception:  # of the application's block
            log.exception("batch failed: group=%s messages=%d", self._group, len(messages))
            for message in messages:
                message.retry()
        else:
            for message in messages:
                message.ack()

    async def run(
        self,
        handler: Handler,
        *,
        concurrency: int = 1,
        stop_signals: Iterable[int] = (),
        drain_timeout_ms: int = DRAIN_TIMEOUT_MS,
    ) -> None:
        """Call `handler` for each message, until the consumer is stopped or closed.

            async with Consumer("127.0.0.1:9876", "billing", "orders") as consumer:
                await consumer.run(book, concurrency=10, stop_signals=[signal.SIGTERM])

        The end of the handler acknowledges its message. After an exception, which is logged, the
        message is delivered again later. An `ordered` consumer handles the messages of a queue one
        after the other, those of different queues at the same time.

        After a stop the handlers that are at work end first. If this call is cancelled, they are
        cancelled. One that runs in a thread goes on, and its message is settled when it ends; the
        end of the process does not wait for it.

        :param handler: a coroutine function, or a function, which runs in a thread and may block.
            It may call `message.ack` or `message.retry` itself.
        :param concurrency: maximum number of messages that are handled at the same time.
        :param stop_signals: the first of these signals stops the consumer.
        :param drain_timeout_ms: how long handlers may work on after a stop. Those that take longer
            are cancelled; their messages are delivered again.
        :raises ConfigError: an argument cannot be used, as a handler that takes two; or
            `stop_signals` outside the main thread.
        """
        self._require_open()
        check_handler(handler)
        check_number("concurrency", concurrency, 1)
        check_number("drain_timeout_ms", drain_timeout_ms, 0)
        run = HandlerRun(self._messages, handler, concurrency, drain_timeout_ms / 1000)
        self._runs.add(run)
        try:
            with stopping_on(stop_signals, self._prefetch.stop):
                await run.run()
        finally:
            self._runs.discard(run)

    def assigned(self) -> frozenset[MessageQueue]:
        """The queues that are assigned to this member now."""
        self._require_open()
        return self._plain(self._member.assignment.queues())

    def _plain(self, queues: Iterable[MessageQueue]) -> frozenset[MessageQueue]:
        return frozenset(map(self._names.plain_queue, queues))

    # What has a wrong type is refused by whom it is given to.

    def _full(self, queue: MessageQueue) -> MessageQueue:
        return self._names.full_queue(queue) if isinstance(queue, MessageQueue) else queue

    def _full_topic(self, topic: str) -> str:
        return self._names.full(topic) if isinstance(topic, str) else topic

    # subscriptions

    async def subscribe(self, topic: str, filter: str | Sql = "*") -> None:  # noqa: A002 - API
        """Subscribe to one more topic, or change the filter of a topic.

        This returns when the brokers know the subscription, and the queues that this member gets
        are assigned. Messages that were prefetched with another filter are delivered. All members
        of the group must change their subscriptions (docs/pitfalls.md#trap-59). If the caller is
        cancelled, a change that has begun is finished.

        :raises ConfigError: the filter cannot be used; or it is SQL92, and a broker is too old.
        :raises MessageError: the topic's name is not allowed.
        :raises ResponseError: a broker refuses the SQL92 expression.
        :raises AccessDenied: a broker refuses the heartbeat; the change was taken back.
        :raises ClientStateError: the consumer is still starting, or was closed meanwhile.
        :raises RoquetError: no name server answers.
        """
        self._require_open()
        self._require_no_listener("subscribe")
        await self._member.subscriptions.subscribe(self._full_topic(topic), filter)

    async def unsubscribe(self, topic: str) -> None:
        """Give up a topic: its queues go, and their offsets are stored.

        If the caller is cancelled, this is finished.

        :raises ConfigError: the topic is not subscribed, or a pattern matches it.
        :raises ClientStateError: the consumer is still starting, or was closed meanwhile.
        """
        self._require_open()
        self._require_no_listener("unsubscribe")
        await self._member.subscriptions.unsubscribe(self._full_topic(topic))

    def _require_no_listener(self, method: str) -> None:
        if self._member.assignment.is_listening():
            raise ClientStateError(
                f"{method}() waits for the rebalance listener, so the listener cannot wait for it: "
                "call it in a task that the listener does not await"
            )

    def subscriptions(self) -> dict[str, str | Sql]:
        """The topics that are subscribed now, those of patterns included, with their filters."""
        self._require_open()
        filters = self._member.subscriptions.filters()
        return {self._names.plain(topic): each for topic, each in filters.items()}

    # control of the assigned queues

    def pause(self, *queues: MessageQueue) -> None:
        """Stop the delivery of some queues; without arguments of all that are assigned now.

        A paused queue stays assigned, but is neither pulled nor delivered. What was prefetched of
        it is delivered when it is resumed. A queue that this member loses is not paused any more
        when it comes back.

        :raises ConfigError: a queue is not assigned; the message names it, and none is paused.
        """
        self._require_open()
        self._member.assignment.pause(list(map(self._full, queues)))

    def resume(self, *queues: MessageQueue) -> None:
        """Deliver paused queues again; without arguments all of them.

        :raises ConfigError: a queue is not assigned; the message names it, and none is resumed.
        """
        self._require_open()
        self._member.assignment.resume(list(map(self._full, queues)))

    def paused(self) -> frozenset[MessageQueue]:
        """The queues that are paused now."""
        self._require_open()
        return self._plain(self._member.assignment.paused())

    async def seek(self, queue: MessageQueue, where: Where) -> None:
        """Continue a queue at another place, and store that as the group's offset.

        Nothing is delivered any more that was prefetched at the old place. Messages that the
        application is handling may still be settled, without effect on the offset; they do not come
        again if they fail. With `ordered`, the next message is delivered when they are settled.
        An offset outside the queue becomes the nearest one after 10 s.

        :param where: an offset, "earliest", "latest", or a datetime: the first message that was
            stored then or later.
        :raises ConfigError: the queue is not assigned, or `where` is something else.
        :raises RoquetError: no broker told the offset, and nothing has changed; or no broker stored
            the new offset. The queue continues there all the same, and storing is tried again.
        """
        self._require_open()
        check_where(where)
        await self._member.assignment.seek(self._full(queue), where)

    async def commit(self, offsets: Mapping[MessageQueue, int] | None = None) -> None:
        """Store offsets of the group now.

        Messages before a stored offset are not delivered again after a restart or to another
        member. Messages that fail are sent back to the broker in any case, and come again.

        :param offsets: the next offset to consume of each of these queues, which may be lower than
            the stored one. It does not change what is delivered next. With `auto_commit`, higher
            offsets follow soon. None: of all queues, what is settled so far.
        :raises ConfigError: a queue is not assigned, or an offset is none; nothing is stored.
        :raises RoquetError: an offset could not be stored; the others are.
        """
        self._require_open()
        if offsets is not None:
            if not isinstance(offsets, Mapping):
                raise ConfigError(f"offsets is {offsets!r}: give a mapping of queues to offsets")
            offsets = {self._full(queue): offset for queue, offset in offsets.items()}
        await self._member.assignment.commit(offsets)

    def position(self, queue: MessageQueue) -> int:
        """The offset of the next message of a queue that will be delivered.

        The message there may be one that the filter does not select, or may not exist yet.

        :raises ConfigError: the queue is not assigned.
        """
        self._require_open()
        return self._member.assignment.position(self._full(queue))

    async def committed(self, queue: MessageQueue) -> int | None:
        """The stored offset of the group in a queue, assigned or not; None if there is none.

        For a young queue brokers answer 0 instead of none (docs/pitfalls.md#trap-29).

        :raises RoquetError: no broker answers.
        """
        self._require_open()
        check_queue(queue)
        return await self._member.committed(self._full(queue))

    async def lag(self) -> dict[MessageQueue, int]:
        """How many messages of each assigned queue are not consumed yet.

        These are all messages at or after the offset of the group, also those that the filter does
        not select. Where no pull told the end of a queue lately, its broker is asked.

        :raises RoquetError: a broker does not answer.
        """
        self._require_open()
        lags = await self._member.assignment.lag()
        return {self._names.plain_queue(queue): lag for queue, lag in lags.items()}


def _stopped() -> ClientStateError:
    return ClientStateError("this Consumer was stopped: it delivers no more messages")


class _Stopped:
    """What `stop` returns. In other clients, `await consumer.stop()` leaves the group."""

    def __await__(self) -> Generator[None, None, None]:
        raise ClientStateError(
            "stop() does not wait: call it without await. It ends the deliveries; to leave the "
            "group, call `await consumer.close()`"
        )

    def __repr__(self) -> str:
        return "None"  # as it is shown in a notebook


class _Iteration:
    """One `async for` over a consumer."""

    def __init__(self, messages: MessageStream) -> None:
        self._messages = messages
        self._current: ReceivedMessage | None = None

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> ReceivedMessage:
        if self._current is not None:
            self._current.ack()
        self._current = self._messages.next_here() or await self._messages.next()
        if self._current is None:
            raise StopAsyncIteration
        return self._current
