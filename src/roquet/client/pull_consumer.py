"""The pull consumer: reads queues by offset, without membership in a group."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Unpack

from roquet.client._consume.pull_request import HOLD_SWEEP_MS, pull_request, pull_result
from roquet.client._consume.pull_result import PullResult, PullStatus
from roquet.client._consume.read_from import ReadFrom, addresses_to_read, check_read_from
from roquet.client._net.routes import (
    BrokerAddress,
    masters_only,
    read_addresses,
    subscribe_queues,
)
from roquet.client._net.session_user import SessionUser
from roquet.client.config import ClientConfig, ClientOptions, NameServers
from roquet.client.counters import count_failure
from roquet.client.selector import Sql, check_filter, subscription_to
from roquet.common import arguments
from roquet.common.java import INT_MAX, LONG_MAX, LONG_MIN
from roquet.protocol.bodies.tables import MASTER_ID, Route, Subscription
from roquet.protocol.headers.pull import SUBSCRIPTION, SUSPEND
from roquet.protocol.records.compression import UNCOMPRESSED_MAX
from roquet.protocol.records.message import (
    MessageQueue,
    check_group,
    check_number,
    check_queue,
    check_topic,
    wrong_type,
)
from roquet.protocol.remoting.codes import RequestCode
from roquet.protocol.remoting.command import Command

if TYPE_CHECKING:
    from roquet.client.metrics import PartMetrics

__all__ = ["PullConsumer", "PullResult", "PullStatus", "ReadFrom"]


class PullOptions(ClientOptions, total=False):
    """The keyword arguments of `PullConsumer`, for callers that pass them on."""

    group: str
    read_from: ReadFrom
    timeout_ms: int
    uncompressed_max: int


class PullConsumer(SessionUser):
    """Reads queues by offset, without membership in a group.

    Its pulls carry their own subscription (sysFlag 4), so it sends no heartbeats, and any number
    of pull consumers may use the same `group`.

    All methods raise `RouteNotFound` for a topic that no broker has, `ConnectionClosed` or
    `CallTimeout` if no broker can be asked, and `ResponseError` if a broker refuses.

    :param name_server: `host:port`, several separated by semicolons; or a `ClientConfig`; or a
        started client whose session is shared.
    :param group: the group whose name the pulls carry. Brokers create it on demand if they have
        `autoCreateSubscriptionGroup=true`.
    :param read_from: "any": the master, the replica that the broker suggests to a reader with a
        large lag, or any replica if the master is down. "master": only the master. "slave": a
        slave; the master if there is no slave. "slave-only": only slaves.
    :param timeout_ms: the time in ms for each call to one broker process. When a call fails, the
        next replica is asked.
    :param uncompressed_max: maximum size in bytes of a body after decompression. The `body` of a
        message with a larger one raises `MessageError`.
    :param client: the keyword arguments of `ClientConfig`.
    :raises ConfigError: an argument cannot be used; the message names it.
    :raises MessageError: the group name is not allowed.
    """

    def __init__(
        self,
        name_server: NameServers | ClientConfig | SessionUser,
        *,
        group: str = "roquet-pull",
        read_from: ReadFrom = "any",
        timeout_ms: int = 3000,
        uncompressed_max: int = UNCOMPRESSED_MAX,
        **client: Unpack[ClientOptions],
    ) -> None:
        super().__init__(name_server, **client)
        check_group(group)
        self._names = self._session.names
        self._group = self._names.full(group)
        check_group(self._group)
        check_read_from(read_from)
        arguments.check_number("timeout_ms", timeout_ms, 1)
        arguments.check_number("uncompressed_max", uncompressed_max, 1)
        self._read_from = read_from
        self._timeout_ms = timeout_ms
        self._uncompressed_max = uncompressed_max
        self._checked: set[Subscription] = set()
        self._suggested: dict[MessageQueue, int] = {}
        self._pulls = 0
        self._pulled_bytes = 0
        self._failures: dict[str, int] = {}

    def _own_metrics(self) -> PartMetrics:
        from roquet.client.metrics import PullConsumerMetrics

        return PullConsumerMetrics(
            self._names.plain(self._group), self._pulls, self._pulled_bytes, dict(self._failures)
        )

    def _full(self, queue: MessageQueue) -> MessageQueue:
        """A queue with the full name of its topic.

        :raises MessageError: a part of it has a wrong type.
        """
        check_queue(queue)
        return self._names.full_queue(queue)

    async def topics(self) -> list[str]:
        """The names of all topics that the name server knows, including system topics.

        With a namespace, too, these are the full names of all topics.
        """
        self._require_open()
        return await self._session.routes.topics()

    async def own_topics(self) -> list[str]:
        """The names of the topics that are named after clusters and brokers."""
        self._require_open()
        return await self._session.routes.topics(RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_NS)

    async def queues(self, topic: str) -> list[MessageQueue]:
        """The readable queues of a topic, sorted, as the name server knows them now.

        Queues whose broker has only slaves up are included.

        :raises RouteNotFound: the topic does not exist. That takes two seconds: a topic that a
            send has just created is not registered yet.
        """
        self._require_open()
        check_topic(topic)
        full = self._names.full(topic)
        queues = subscribe_queues(full, await self._session.routes.refresh_created(full))
        return [self._names.plain_queue(queue) for queue in queues]

    async def min_offset(self, queue: MessageQueue, *, of_master: bool = False) -> int:
        """The offset of the oldest message in a queue; 0 if there never was a message.

        :param of_master: ask only the master. By default a slave is asked if the master is down;
            the slave's queue may begin later.
        """
        self._require_open()
        queue = self._full(queue)
        choose = masters_only if of_master else read_addresses
        return await self._session.queues.min_offset(queue, self._timeout_ms, choose)

    async def max_offset(self, queue: MessageQueue, *, of_master: bool = False) -> int:
        """The offset that the next message of a queue will have at the master.

        :param of_master: ask only the master. By default a slave is asked if the master is down;
            the slave may lag behind offsets that were read before.
        """
        self._require_open()
        queue = self._full(queue)
        choose = masters_only if of_master else read_addresses
        return await self._session.queues.max_offset(queue, self._timeout_ms, choose)

    async def offset_at(self, queue: MessageQueue, when: datetime | int) -> int:
        """The offset of the message whose store time is nearest to `when`.

        :param when: a datetime, or milliseconds since 1970. A datetime without zone is local time.
        """
        self._require_open()
        queue = self._full(queue)
        if isinstance(when, datetime):
            when = int(when.timestamp() * 1000)
        if not isinstance(when, int) or isinstance(when, bool):
            raise wrong_type("when", when, "a datetime, or milliseconds since 1970")
        check_number("when", when, LONG_MIN, LONG_MAX)
        return await self._session.queues.offset_at(queue, when, self._timeout_ms)

    async def committed(self, group: str, queue: MessageQueue) -> int | None:
        """The offset of `group` in a queue, or None if the broker has none.

        For a young queue brokers answer 0 instead of none (docs/pitfalls.md#trap-29).
        """
        self._require_open()
        check_group(group)
        group, queue = self._names.full(group), self._full(queue)
        return await self._session.queues.committed(group, queue, self._timeout_ms)

    async def commit(self, group: str, queue: MessageQueue, offset: int) -> None:
        """Set the offset of `group` in a queue, the next one to consume, forwards or backwards."""
        self._require_open()
        check_group(group)
        group, queue = self._names.full(group), self._full(queue)
        check_number("offset", offset, LONG_MIN, LONG_MAX)
        await self._session.queues.commit(group, queue, lambda: offset, self._timeout_ms)

    async def pull(
        self,
        queue: MessageQueue,
        offset: int,
        *,
        max_messages: int = 32,
        tags: str | Sql = "*",
        hold_ms: int = 0,
    ) -> PullResult:
        """Pull messages of a queue from `offset` on.

        :param max_messages: maximum number of messages. Brokers often return fewer, but at least
            one if there is one.
        :param tags: `*`, tags joined by `||`, or an `Sql` expression.
        :param hold_ms: how long in ms the broker may hold the pull while there is no message
            (long polling); 0 returns at once.
        """
        self._require_open()
        queue = self._full(queue)
        check_number("max_messages", max_messages, 1, INT_MAX)
        subscription = subscription_to(queue.topic, tags)
        await self._check(subscription)
        request = self._request(queue, offset, max_messages, subscription, hold_ms)
        with self._counting_failures():
            at, response = await self._session.brokers.call(
                queue,
                request,
                self._timeout_ms + (hold_ms + HOLD_SWEEP_MS if hold_ms else 0),
                partial(self._addresses, queue),
            )
            return self._result(queue, response, at, subscription)

    async def pull_all(
        self,
        queue: MessageQueue,
        offsets: Sequence[int],
        *,
        max_messages: int = 32,
        tags: str | Sql = "*",
    ) -> list[PullResult]:
        """Pull from several offsets of a queue at once; return one result per offset.

        Brokers limit the messages per pull (Apache's to 32). Concurrent pulls avoid one round trip
        per limit. All pulls go to the same broker process, within one `timeout_ms`.

        :param max_messages: maximum number of messages per pull.
        :param tags: as in `pull`.
        """
        self._require_open()
        queue = self._full(queue)
        check_number("max_messages", max_messages, 1, INT_MAX)
        subscription = subscription_to(queue.topic, tags)
        await self._check(subscription)
        requests = [
            self._request(queue, offset, max_messages, subscription, 0) for offset in offsets
        ]
        with self._counting_failures(len(requests)):
            at, responses = await self._session.brokers.call_all(
                queue, requests, self._timeout_ms, partial(self._addresses, queue)
            )
            return [self._result(queue, response, at, subscription) for response in responses]

    @contextmanager
    def _counting_failures(self, pulls: int = 1) -> Iterator[None]:
        try:
            yield
        except BaseException as error:
            count_failure(self._failures, error, pulls)
            raise

    def _request(
        self,
        queue: MessageQueue,
        offset: int,
        max_messages: int,
        subscription: Subscription,
        hold_ms: int,
    ) -> Command:
        flags = SUBSCRIPTION | (SUSPEND if hold_ms else 0)
        return pull_request(self._group, queue, offset, max_messages, flags, subscription, hold_ms)

    def _result(
        self, queue: MessageQueue, response: Command, at: BrokerAddress, subscription: Subscription
    ) -> PullResult:
        result = pull_result(
            response,
            at.address,
            subscription,
            of_master=at.is_master,
            broker_name=queue.broker_name,
            uncompressed_max=self._uncompressed_max,
            names=self._names,
        )
        # A slave that found nothing may only lag: the next pull goes to the master again.
        found = result.status is PullStatus.FOUND or at.is_master
        self._suggested[queue] = result.suggested_broker_id if found else MASTER_ID
        self._pulls += 1
        self._pulled_bytes += len(result.body)
        return result

    async def _check(self, subscription: Subscription) -> None:
        """Check at the brokers, once per expression, that they filter by an SQL92 expression."""
        if not subscription.is_by_tag and subscription not in self._checked:
            await check_filter(self._session, self._group, subscription)
            self._checked.add(subscription)

    def _addresses(
        self, queue: MessageQueue, route: Route, broker_name: str
    ) -> list[BrokerAddress]:
        suggested_id = self._suggested.get(queue, MASTER_ID)
        return addresses_to_read(self._read_from, route, broker_name, suggested_id)
