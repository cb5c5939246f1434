"""Consumes topics as one member of a group."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from roquet.client._consume.allocation import Strategy, average
from roquet.client._consume.assignment import Assignment
from roquet.client._consume.fetcher import FetchSettings
from roquet.client._consume.local_offsets import local_progress
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
from roquet.client._net.heartbeats import GroupMember
from roquet.client._net.session import Session
from roquet.client._net.tasks import Tasks, every
from roquet.client.received import NEVER_AGAIN, ReceivedMessage
from roquet.client.selector import Sql, check_filter, subscription_to
from roquet.common.runtime import Runtime
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
from roquet.protocol.remoting.signing import Credentials
from roquet.transport.tls import Tls

__all__ = ["Consumer", "ReceivedMessage"]

log = logging.getLogger(__name__)

STORE_PERIOD_S: Final = 5.0
RECONSUME_TIMES_MAX: Final = 16
AGAIN_AFTER_S: Final = 5.0
"""When a failed message is handed out again that no broker took back."""
LOCKS_LOOK_S: Final = 1.0
SUSPENDED_S: Final = 1.0
"""When a message that is to come in order and failed is handed out again."""
HAND_BACK_S_MAX: Final = 3.0
"""How long the end waits for brokers to take back what failed."""


class Consumer:
    """One member of a consumer group; the members share out the topics' queues among them.

        async with Consumer("127.0.0.1:9876", "billing", {"orders": "new||paid"}) as consumer:
            async for message in consumer:
                async with message:
                    await book(message.body)

    Every message comes at least once. See `ReceivedMessage` for how one is settled. Several tasks may iterate at the
    same time, each then acknowledges its own.

    :param name_server: `host:port`, several separated by semicolons.
    :param topics: a topic, several, or each with what is wanted of it: `*`, tags joined by `||`, or `Sql`. All members
        of a group must have the same (docs/pitfalls.md#trap-59).
    :param start: where a group begins that has no progress yet; "last", "first" or a point in time.
    :param ordered: the messages of a queue come one after the other, the next one when the one before is dealt with;
        one that failed comes again after a second, before those behind it. See `sharding_key` of a send.
    :param max_reconsume_times: how often a failed message comes again before it is put among the dead letters: 16
        times unless said otherwise, for ever where messages come in order.
    :param broadcast: every member gets all messages, and keeps its progress in a file of its own. A message that failed
        is logged and does not come again (where they come in order: not after `max_reconsume_times`).
    :param batch_size: messages per pull at most.
    :param limits: what may wait here per queue before pulling pauses.
    :param uncompressed_max: bytes that a body may have when it is decompressed. A message with more, or that cannot be
        decompressed, is not handed out; it goes the way of failed ones, and the log says so. One whose body does not
        have its checksum goes among the dead letters at once.
    :param strategy: how members share out queues; the same in all of them.
    :param credentials: sign every request, for brokers that check who asks (`aclEnable=true`).
    :param tls: encrypt the connections to name servers and brokers, and verify whose they are.
    :param client_id: who this client says it is, `address@anything`; unique per process. One that broadcasts needs it,
        and after a restart the same: it names the folder of its progress (docs/pitfalls.md#trap-65).
    :param progress_folder: where members that broadcast keep their progress, `client id/group/offsets.json` in it;
        `~/.rocketmq_offsets` as Apache's client unless said otherwise.
    :raises ConfigError: `broadcast` without `client_id`, or `progress_folder` without `broadcast`; no topic, or an
        empty expression. MessageError: no topic or group can have that name.
    """

    def __init__(
        self,
        name_server: str,
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
        credentials: Credentials | None = None,
        tls: Tls | None = None,
        client_id: str | None = None,
        progress_folder: str | Path | None = None,
        runtime: Runtime | None = None,
    ) -> None:
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
        self._session = Session(
            name_server, credentials=credentials, tls=tls, client_id=client_id, runtime=runtime
        )
        retry_topic = None if broadcast else RETRY_PREFIX + group
        self._subscriptions = _subscriptions(topics, retry_topic, self._session.runtime.now_ms())
        self._message_model = BROADCASTING if broadcast else CLUSTERING
        self._max_reconsume_times = max_reconsume_times
        self._uncompressed_max = uncompressed_max
        self._in_order = OrderedPrefetchBuffer() if ordered else None
        self._locks = OrderLocks(self._session, group) if ordered and not broadcast else None
        self._prefetch = self._in_order or PrefetchBuffer()
        if progress_folder is not None and not broadcast:
            raise ConfigError(
                "progress_folder is for broadcast=True: else the brokers keep the progress"
            )
        self._progress: OffsetStore = (
            local_progress(progress_folder, client_id, group, self._session.runtime)
            if broadcast
            else BrokerOffsets(self._session, group)
        )
        self._send_back = NoSendBack() if broadcast else SendBack(self._session, group, tries_max)
        order = FetchSettings(
            self._session,
            group,
            batch_size,
            limits or PrefetchLimits(),
            self._prefetch.put,
            self._progress.set_back,
            commits=not broadcast,
        )
        self._assignment = Assignment(
            order, self._progress, self._start_offset, self._locks, self._is_busy
        )
        self._tasks = Tasks()
        self._handing_back = Tasks()
        share = None if broadcast else strategy
        self._division = Rebalancer(
            self._session, group, self._subscriptions, share, self._assignment, self._progress
        )
        self._handed_out: list[ReceivedMessage] = []

    # life

    async def __aenter__(self) -> Self:
        """:raises ConnectionClosed: no name server can be reached; CallTimeout: none answers.
        :raises AccessDenied: a broker does not let this member in.
        :raises ResponseError: a broker does not filter by an SQL92 expression; ConfigError: it is too old for that.
        :raises StoreError: the file of a member that broadcasts cannot be read.
        """
        await self._session.__aenter__()
        try:
            await self._join()
        except BaseException:
            await self.__aexit__(None, None, None)
            raise
        return self

    async def _join(self) -> None:
        """Heartbeat before the first division of queues, which the brokers' lists of members need.

        See docs/pitfalls.md#trap-60.
        """
        await self._progress.open()
        await self._look_up_routes()
        for subscription in self._subscriptions.values():
            if not subscription.is_by_tag:
                await check_filter(self._session, self._group, subscription)
        member = GroupMember(
            self._heartbeat_data,
            self._wake,
            self._division.reset,
            self._assignment.states,
            self._consume_directly,
            self._session.runtime.now_ms(),
        )
        self._session.membership.join_as_consumer(self._group, member)
        for denial in await self._session.membership.beat():
            raise denial  # we would wait for messages for ever
        await self._division.renew()
        self._tasks.start(self._division.run(), f"division of {self._group}")
        store = every(STORE_PERIOD_S, self._assignment.store_progress, "storing progress")
        self._tasks.start(store, f"progress {self._group}")
        if self._locks is not None:
            self._tasks.start(self._locks.keep(), f"locks of {self._group}")
            ended = every(LOCKS_LOOK_S, self._let_go_of_unlocked, "letting go of queues")
            self._tasks.start(ended, f"ended locks of {self._group}")

    async def _look_up_routes(self) -> None:
        for topic in self._subscriptions:
            try:
                await self._session.routes.refresh(topic)
            except RouteNotFound as error:
                if not topic.startswith(RETRY_PREFIX):
                    log.warning("group %s waits for its topic: %s", self._group, error)

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Progress is stored before the group hears that this member leaves (docs/protocol/consuming.md#leaving)."""
        self._prefetch.close()
        try:
            await self._handing_back.finish(HAND_BACK_S_MAX)
            await self._tasks.close()
            await self._assignment.close()
        finally:
            await self._session.__aexit__(kind, error, trace)

    def _wake(self) -> None:
        """The group's members, or the brokers, are others than before."""
        self._division.due.set()
        if self._locks is not None:
            self._locks.due.set()

    async def _let_go_of_unlocked(self) -> None:
        """Hand out nothing more of queues whose locks ended or are another member's, until they are locked again."""
        assert self._locks is not None
        lost = self._locks.ended()
        if lost:
            log.warning("group %s lost its locks of %s queues: %s", self._group, len(lost), lost)
            await self._assignment.drop(lost)
            self._division.due.set()

    def _is_busy(self, taken: ProcessQueue) -> bool:
        return self._in_order is not None and self._in_order.is_busy(taken)

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
        """Messages for ever, or until the consumer is closed; each is acknowledged when the next is asked for."""
        return _Iteration(self._next)

    async def _next(self) -> ReceivedMessage | None:
        while (delivery := await self._prefetch.next()) is not None:
            message = self._open(delivery)
            if message is not None:
                return message
        return None

    def _open(self, delivery: Delivery) -> ReceivedMessage | None:
        """The message for the application; one that cannot be opened goes the way of failed ones, a damaged one at
        once to its end.
        """
        dealt_with = self._in_order.dealt_with if self._in_order is not None else None
        try:
            return delivery.message(self._failed, dealt_with, self._uncompressed_max)
        except MessageError as error:
            _tell_unopened(delivery, error)
            # A broker stores a retry with the checksum of the bytes that it has: a damaged body would pass for sound
            # then. In order, nothing behind it would come.
            is_over = self._in_order is not None or isinstance(error, DamagedBody)
            self._failed(delivery, NEVER_AGAIN if is_over else 0)
            return None

    async def get_many(
        self, max_messages: int = 32, timeout_ms: int = 1000
    ) -> list[ReceivedMessage]:
        """Up to `max_messages` that are there, after waiting for the first one at most `timeout_ms`.

        They are fewer where their bodies come to `uncompressed_max` bytes together.

        The next call acknowledges those that are not settled by then; so only one task should call this.
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
        """Hand a message to the application beside those of our queues; whether that dealt with it."""
        outcome: asyncio.Future[bool] = asyncio.get_running_loop().create_future()

        def settled(is_done: bool) -> None:
            if not outcome.done():
                outcome.set_result(is_done)

        self._prefetch.put(DirectDelivery(record, broker_name, settled))
        return await outcome

    async def _hand_back(self, delivery: Delivery, delay_level: int) -> None:
        """To the broker; where none takes it, to the application again after a while."""
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
        """To the application after a while, or among the dead letters, so that what is behind it gets its turn."""
        tries_max = self._max_reconsume_times
        is_over |= tries_max is not None and delivery.reconsume_times >= tries_max
        if is_over and await self._send_back.bury(delivery):
            delivery.done()
            prefetch.dealt_with(delivery)
        elif not prefetch.closed:
            await asyncio.sleep(SUSPENDED_S)
            prefetch.put_again(delivery.again())

    # queues

    def assigned(self) -> frozenset[MessageQueue]:
        """The queues that this member consumes now."""
        return self._assignment.queues()

    async def _start_offset(self, queue: MessageQueue) -> int:
        return await start_offset(self._session, self._progress, queue, self._start_at)


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
    """Topic -> subscription, that to the group's own retry topic included where it has one.

    :raises ConfigError: no topic, or an empty expression. MessageError: no topic can have that name.
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


def _tell_unopened(delivery: Delivery, error: MessageError) -> None:
    """Once of each message: it comes again some times before it is a dead letter, as other members may open it."""
    record = delivery.record
    log.log(
        logging.DEBUG if delivery.reconsume_times else logging.ERROR,
        "message cannot be opened, it goes the way of failed ones: %s topic=%s broker=%s queue=%d offset=%d msgId=%s",
        error,
        record.topic,
        delivery.broker_name,
        record.queue_id,
        record.queue_offset,
        record.properties.get(UNIQ_KEY, record.offset_message_id),
    )
