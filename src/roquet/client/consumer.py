"""The consumer: one member of a consumer group."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Final, Self, Unpack

from roquet.client._consume.allocation import Strategy, average
from roquet.client._consume.assignment import Assignment
from roquet.client._consume.fetcher import FetchSettings
from roquet.client._consume.local_offsets import local_offsets
from roquet.client._consume.offsets import BrokerOffsets, OffsetStore
from roquet.client._consume.order_locks import OrderLocks
from roquet.client._consume.prefetch import (
    Delivery,
    DirectDelivery,
    OrderedPrefetchBuffer,
    PrefetchBuffer,
)
from roquet.client._consume.process_queue import ProcessQueue
from roquet.client._consume.pull_flow import PrefetchLimits
from roquet.client._consume.rebalancer import Rebalancer
from roquet.client._consume.send_back import NoSendBack, SendBack
from roquet.client._consume.start_position import Start, start_offset, wire_name
from roquet.client._net.client import Client
from roquet.client._net.groups import GroupMember
from roquet.client._net.tasks import Tasks, every
from roquet.client.config import ClientConfig, ClientOptions
from roquet.client.received import NEVER_AGAIN, ReceivedMessage
from roquet.client.selector import Sql, check_filter, subscription_to
from roquet.common.units import INT_MAX
from roquet.errors import ConfigError, DamagedBody, MessageError, RouteNotFound
from roquet.protocol.bodies.tables import BROADCASTING, CLUSTERING, ConsumerData, Subscription
from roquet.protocol.filters.tags import ALL
from roquet.protocol.records.compression import UNCOMPRESSED_MAX
from roquet.protocol.records.message import (
    RETRY_PREFIX,
    UNIQ_KEY,
    MessageQueue,
    check_group,
    check_topic,
)
from roquet.protocol.records.record import Record

__all__ = ["Consumer", "ReceivedMessage"]

log = logging.getLogger(__name__)

STORE_PERIOD_S: Final = 5.0
RECONSUME_TIMES_MAX: Final = 16
AGAIN_AFTER_S: Final = 5.0
"""Pause before this consumer delivers a failed message again that no broker took back."""
LOCKS_LOOK_S: Final = 1.0
SUSPENDED_S: Final = 1.0
"""Pause before an ordered consumer delivers a failed message again."""
HAND_BACK_S_MAX: Final = 3.0
"""How long closing waits for the brokers to take back failed messages."""


class Consumer(Client):
    """A member of a consumer group. The members of a group share the queues of their topics.

        async with Consumer("127.0.0.1:9876", "billing", {"orders": "new||paid"}) as consumer:
            async for message in consumer:
                async with message:
                    await book(message.body)

    Every message is delivered at least once. `ReceivedMessage` says how a message is settled.
    Several tasks may iterate over one consumer at the same time; each task acknowledges its own
    messages.

    :param name_server: `host:port`, several separated by semicolons; or a `ClientConfig`.
    :param group: the name of the consumer group.
    :param topics: a topic, several topics, or a mapping of topics to filters: `*`, tags joined by
        `||`, or `Sql`. All members of a group must have the same subscriptions
        (docs/pitfalls.md#trap-59).
    :param start: where a group begins that has no stored offset: at the end of each queue
        ("last"), at its beginning ("first"), or at a store time. For a young topic brokers answer
        offset 0 instead of none, so a new group gets all of it (docs/pitfalls.md#trap-29).
    :param ordered: deliver the messages of a queue one at a time; the next one follows when the
        one before is settled. A failed message is delivered again after 1 s, before the messages
        after it. See `sharding_key` of `Producer.send`.
    :param broadcast: every member gets all messages and stores its offsets in a local file. A
        failed message is logged and not delivered again; with `ordered` it is delivered again up
        to `max_reconsume_times` times.
    :param max_reconsume_times: how often a failed message is delivered again before it goes to
        the dead letter topic. None means 16 times, or without limit if `ordered`.
    :param batch_size: maximum number of messages per pull.
    :param limits: how much may wait in this process per queue before pulling pauses.
    :param uncompressed_max: maximum size in bytes of a body after decompression. A message with a
        larger body, or with one that cannot be decompressed, is logged and counts as failed; with
        `ordered` it goes to the dead letter topic at once. A message whose body does not match
        its checksum goes there at once in either case.
    :param strategy: the allocation rule; it must be the same in all members of a group.
    :param offsets_folder: the folder of the offsets of broadcasting members, which are stored in
        `client id/group/offsets.json`. None means `~/.rocketmq_offsets`, as in Apache's client.
    :param client: `credentials`, `tls`, `client_id`, `runtime` of `ClientConfig`. A broadcasting
        member needs a `client_id` that is the same after a restart, because it names the folder
        of the offsets (docs/pitfalls.md#trap-65).
    :raises ConfigError: an argument cannot be used; the message names it. `broadcast` needs
        `client_id`, `offsets_folder` needs `broadcast`.
    :raises MessageError: a topic or group name is not allowed.
    """

    def __init__(
        self,
        name_server: str | ClientConfig,
        group: str,
        topics: str | Iterable[str] | Mapping[str, str | Sql],
        start: Start = "last",
        *,
        ordered: bool = False,
        broadcast: bool = False,
        max_reconsume_times: int | None = None,
        batch_size: int = 32,
        limits: PrefetchLimits | None = None,
        uncompressed_max: int = UNCOMPRESSED_MAX,
        strategy: Strategy = average,
        offsets_folder: str | Path | None = None,
        **client: Unpack[ClientOptions],
    ) -> None:
        super().__init__(name_server, **client)
        check_group(group)
        tries_max = RECONSUME_TIMES_MAX if max_reconsume_times is None else max_reconsume_times
        for name, number, least in (
            ("max_reconsume_times", tries_max, -1),
            ("batch_size", batch_size, 1),
        ):
            if not least <= number <= INT_MAX:
                raise ConfigError(f"{name} is {number}: allowed are {least} to {INT_MAX}")
        self._group = group
        self._start_at = start
        retry_topic = None if broadcast else RETRY_PREFIX + group
        self._subscriptions = _subscriptions(topics, retry_topic, self._session.runtime.now_ms())
        self._message_model = BROADCASTING if broadcast else CLUSTERING
        self._max_reconsume_times = max_reconsume_times
        self._uncompressed_max = uncompressed_max
        self._in_order = OrderedPrefetchBuffer() if ordered else None
        self._locks = OrderLocks(self._session, group) if ordered and not broadcast else None
        self._prefetch = self._in_order or PrefetchBuffer()
        if offsets_folder is not None and not broadcast:
            raise ConfigError(
                "offsets_folder needs broadcast=True: otherwise the brokers store the offsets"
            )
        self._offsets: OffsetStore = (
            local_offsets(offsets_folder, self.config.client_id, group, self._session.runtime)
            if broadcast
            else BrokerOffsets(self._session, group)
        )
        self._send_back = NoSendBack() if broadcast else SendBack(self._session, group, tries_max)
        settings = FetchSettings(
            self._session,
            group,
            batch_size,
            limits or PrefetchLimits(),
            self._prefetch.put,
            self._offsets.reset,
            commits=not broadcast,
        )
        self._assignment = Assignment(
            settings, self._offsets, self._start_offset, self._locks, self._is_busy
        )
        self._tasks = Tasks()
        self._handing_back = Tasks()
        share = None if broadcast else strategy
        self._rebalancer = Rebalancer(
            self._session, group, self._subscriptions, share, self._assignment, self._offsets
        )
        self._handed_out: list[ReceivedMessage] = []

    # start and end

    async def __aenter__(self) -> Self:
        """Join the group and start to pull.

        :raises ConnectionClosed: no name server can be reached.
        :raises CallTimeout: no name server answers.
        :raises AccessDenied: a broker refuses the heartbeat of this member.
        :raises ResponseError: a broker refuses an SQL92 expression.
        :raises ConfigError: a broker is too old for SQL92 expressions.
        :raises StoreError: the offset file of a broadcasting member cannot be read.
        """
        await super().__aenter__()
        try:
            await self._join()
        except BaseException:
            await self.__aexit__(None, None, None)
            raise
        return self

    async def _join(self) -> None:
        """Send a heartbeat, then rebalance.

        Without the heartbeat the brokers' lists of members would lack this one, and it would get
        no queue (docs/pitfalls.md#trap-60).
        """
        await self._offsets.open()
        await self._look_up_routes()
        for subscription in self._subscriptions.values():
            if not subscription.is_by_tag:
                await check_filter(self._session, self._group, subscription)
        member = GroupMember(
            self._heartbeat_data,
            self._wake,
            self._rebalancer.reset,
            self._assignment.states,
            self._consume_directly,
            self._session.runtime.now_ms(),
        )
        self._session.membership.join_as_consumer(self._group, member)
        for denial in await self._session.membership.beat():
            raise denial  # otherwise the application would wait forever for messages
        await self._rebalancer.rebalance()
        self._tasks.start(self._rebalancer.run(), f"rebalance of {self._group}")
        store = every(STORE_PERIOD_S, self._assignment.store_offsets, "storing offsets")
        self._tasks.start(store, f"offsets of {self._group}")
        if self._locks is not None:
            self._tasks.start(self._locks.keep(), f"locks of {self._group}")
            lost = every(LOCKS_LOOK_S, self._drop_unlocked, "dropping queues without lock")
            self._tasks.start(lost, f"lost locks of {self._group}")

    async def _look_up_routes(self) -> None:
        for topic in self._subscriptions:
            try:
                await self._session.routes.refresh(topic)
            except RouteNotFound as error:
                if not topic.startswith(RETRY_PREFIX):
                    log.warning(
                        "topic not found, the consumer waits for it: group=%s topic=%s error=%s",
                        self._group,
                        topic,
                        error,
                    )

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Store the offsets, then leave the group.

        In this order, because the other members take over the queues as soon as this member left
        (docs/protocol/consuming.md#leaving).
        """
        self._prefetch.close()
        try:
            await self._handing_back.finish(HAND_BACK_S_MAX)
            await self._tasks.close()
            await self._assignment.close()
        finally:
            await super().__aexit__(kind, error, trace)

    def _wake(self) -> None:
        """Rebalance soon: the members of the group or the brokers changed."""
        self._rebalancer.due.set()
        if self._locks is not None:
            self._locks.due.set()

    async def _drop_unlocked(self) -> None:
        """Drop the queues whose locks expired or went to another member."""
        assert self._locks is not None
        lost = self._locks.ended()
        if lost:
            log.warning(
                "queue locks lost, the queues are not consumed until they are locked again: "
                "group=%s count=%d queues=%s",
                self._group,
                len(lost),
                ",".join(map(str, lost)),
            )
            await self._assignment.drop(lost)
            self._rebalancer.due.set()

    def _is_busy(self, process_queue: ProcessQueue) -> bool:
        return self._in_order is not None and self._in_order.is_busy(process_queue)

    def _heartbeat_data(self) -> ConsumerData:
        subscriptions = tuple(self._subscriptions.values())
        consume_from = wire_name(self._start_at)
        return ConsumerData(
            self._group,
            message_model=self._message_model,
            consume_from=consume_from,
            subscriptions=subscriptions,
        )

    # messages

    def __aiter__(self) -> AsyncIterator[ReceivedMessage]:
        """Iterate over the messages until the consumer is closed.

        Asking for the next message acknowledges the one before.
        """
        return _Iteration(self._next)

    async def _next(self) -> ReceivedMessage | None:
        while (delivery := await self._prefetch.next()) is not None:
            message = self._open(delivery)
            if message is not None:
                return message
        return None

    def _open(self, delivery: Delivery) -> ReceivedMessage | None:
        """Decode the body of a message for the application.

        Returns None for a message that cannot be decoded, after it was handled as a failed one. A
        damaged message goes to the dead letter topic at once.
        """
        settled = self._in_order.settled if self._in_order is not None else None
        try:
            return delivery.message(self._failed, settled, self._uncompressed_max)
        except MessageError as error:
            _log_unopened(delivery, error)
            # No retry of a damaged body: the broker would store the retry with a checksum of the
            # damaged bytes, and the next delivery would accept it. No retry in order either: the
            # messages after this one would never be delivered.
            is_over = self._in_order is not None or isinstance(error, DamagedBody)
            self._failed(delivery, NEVER_AGAIN if is_over else 0)
            return None

    async def get_many(
        self, max_messages: int = 32, timeout_ms: int = 1000
    ) -> list[ReceivedMessage]:
        """Return up to `max_messages` messages that are already here.

        The next call acknowledges the messages that are not settled by then, so only one task
        should call this method. The list ends early when the bodies together reach
        `uncompressed_max` bytes.

        :param timeout_ms: how long to wait for the first message; the list is empty after that.
        """
        for earlier in self._handed_out:
            earlier.ack()
        self._handed_out = await self._some(max_messages, timeout_ms)
        return list(self._handed_out)

    async def _some(self, count_max: int, timeout_ms: int) -> list[ReceivedMessage]:
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                first = await self._next()
        except TimeoutError:
            first = None
        messages = [] if first is None else [first]
        size = len(first.body) if first is not None else 0
        while messages and len(messages) < count_max and size < self._uncompressed_max:
            delivery = self._prefetch.take()
            if delivery is None:
                break
            message = self._open(delivery)
            if message is not None:
                messages.append(message)
                size += len(message.body)
        return messages

    def _failed(self, delivery: Delivery, delay_level: int = 0) -> None:
        if isinstance(delivery, DirectDelivery):
            delivery.failed()
        elif not self._prefetch.closed:
            work = self._hand_back(delivery, delay_level)
            self._handing_back.start(work, f"send back {delivery.record.offset_message_id}")

    async def _consume_directly(self, record: Record, broker_name: str) -> bool:
        """Deliver a message that an administrator sent.

        Returns whether the application acknowledged it.
        """
        outcome: asyncio.Future[bool] = asyncio.get_running_loop().create_future()

        def settled(is_done: bool) -> None:
            if not outcome.done():
                outcome.set_result(is_done)

        self._prefetch.put(DirectDelivery(record, broker_name, settled))
        return await outcome

    async def _hand_back(self, delivery: Delivery, delay_level: int) -> None:
        """Send a failed message back to the broker.

        If no broker takes it, it is delivered here again after `AGAIN_AFTER_S`.
        """
        if self._in_order is not None:
            await self._hand_out_again(delivery, self._in_order, is_over=delay_level < 0)
        elif await self._send_back.send_back(delivery, delay_level):
            delivery.done()
        elif not self._prefetch.closed:
            await asyncio.sleep(AGAIN_AFTER_S)
            self._prefetch.put(delivery.again())

    async def _hand_out_again(
        self, delivery: Delivery, prefetch: OrderedPrefetchBuffer, *, is_over: bool
    ) -> None:
        """Deliver a failed message of an ordered queue again after `SUSPENDED_S`.

        After the last try it goes to the dead letter topic, and the next message is delivered.
        """
        tries_max = self._max_reconsume_times
        is_over |= tries_max is not None and delivery.reconsume_times >= tries_max
        if is_over and await self._send_back.bury(delivery):
            delivery.done()
            prefetch.settled(delivery)
        elif not prefetch.closed:
            await asyncio.sleep(SUSPENDED_S)
            prefetch.put_again(delivery.again())

    # queues

    def assigned(self) -> frozenset[MessageQueue]:
        """The queues that are assigned to this member now."""
        return self._assignment.queues()

    async def _start_offset(self, queue: MessageQueue) -> int:
        return await start_offset(self._session, self._offsets, queue, self._start_at)


class _Iteration:
    """One `async for` over a consumer."""

    def __init__(self, next_message: Callable[[], Awaitable[ReceivedMessage | None]]) -> None:
        self._next_message = next_message
        self._current: ReceivedMessage | None = None

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> ReceivedMessage:
        if self._current is not None:
            self._current.ack()
        self._current = await self._next_message()
        if self._current is None:
            raise StopAsyncIteration
        return self._current


def _subscriptions(
    topics: str | Iterable[str] | Mapping[str, str | Sql], retry_topic: str | None, version: int
) -> dict[str, Subscription]:
    """The subscription of each topic.

    :param retry_topic: the group's retry topic, which every member subscribes to; None if the
        group broadcasts.
    :raises ConfigError: there is no topic, or an SQL92 expression is empty.
    :raises MessageError: a topic's name is not allowed.
    """
    if isinstance(topics, str):
        topics = [topics]
    wanted: dict[str, str | Sql] = (
        dict(topics) if isinstance(topics, Mapping) else dict.fromkeys(topics, ALL)
    )
    if not wanted:
        raise ConfigError("a consumer needs at least one topic")
    for topic in wanted:
        check_topic(topic)
    if retry_topic is not None:
        wanted[retry_topic] = ALL
    return {topic: subscription_to(topic, selector, version) for topic, selector in wanted.items()}


def _log_unopened(delivery: Delivery, error: MessageError) -> None:
    """Log a message that cannot be decoded: as an error, but its retries at level DEBUG."""
    record = delivery.record
    log.log(
        logging.DEBUG if delivery.reconsume_times else logging.ERROR,
        "message cannot be opened, it counts as failed: "
        "topic=%s broker=%s queue=%d offset=%d msgId=%s error=%s",
        record.topic,
        delivery.broker_name,
        record.queue_id,
        record.queue_offset,
        record.properties.get(UNIQ_KEY, record.offset_message_id),
        error,
    )
