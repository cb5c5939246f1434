"""Plain access to queues, without membership in a group: read from where you say, as often as you like."""

from __future__ import annotations

from collections.abc import Sequence
from types import TracebackType
from typing import Literal, Self, TypeAlias

from roquet.client._consume.pull_request import HOLD_SWEEP_MS, pull_request, pull_result
from roquet.client._consume.pull_result import PullResult, PullStatus
from roquet.client._net import queue_calls
from roquet.client._net.routes import MASTER_ID, BrokerAddress, read_addresses, subscribe_queues
from roquet.client._net.session import Session, masters_only
from roquet.client.selector import Sql, check_filter, subscription_to
from roquet.common.runtime import Runtime
from roquet.protocol.bodies.tables import Route, Subscription
from roquet.protocol.headers.pull import SUBSCRIPTION, SUSPEND
from roquet.protocol.records.message import MessageQueue, check_group
from roquet.protocol.remoting.codes import RequestCode
from roquet.protocol.remoting.command import Command
from roquet.protocol.remoting.signing import Credentials
from roquet.transport.tls import Tls

__all__ = ["PullConsumer", "PullResult", "PullStatus", "ReadFrom"]

ReadFrom: TypeAlias = Literal["master", "slave", "slave-only", "any"]


class PullConsumer:
    """Reads queues by offset.

    Pulls carry their own subscription (sysFlag 4), so no heartbeat is needed and any number of these may use the
    same `group`; brokers create it by themselves.

    :param read_from: "master": never a slave, even when the master is gone. "slave": a slave, the master only when
        there is no slave. "slave-only": never the master. "any": the master, or whom the broker suggests when a reader
        is far behind, or who is left.
    :param timeout_ms: for each call to one broker process; when it fails, the next is asked.
    :param credentials: sign every request, for brokers that check who asks (`aclEnable=true`).
    :param tls: encrypt the connections to name servers and brokers, and verify whose they are.

    All methods raise `RouteNotFound` for a topic that no broker has, `ConnectionClosed` or `CallTimeout` when nobody
    can be asked, and `ResponseError` when the broker refuses.
    """

    def __init__(
        self,
        name_server: str,
        *,
        group: str = "roquet-pull",
        read_from: ReadFrom = "any",
        timeout_ms: int = 3000,
        credentials: Credentials | None = None,
        tls: Tls | None = None,
        client_id: str | None = None,
        runtime: Runtime | None = None,
    ) -> None:
        check_group(group)
        self._group = group
        self._read_from = read_from
        self._timeout_ms = timeout_ms
        self._session = Session(
            name_server, credentials=credentials, tls=tls, client_id=client_id, runtime=runtime
        )
        self._checked: set[Subscription] = set()
        self._suggested: dict[MessageQueue, int] = {}

    async def __aenter__(self) -> Self:
        await self._session.__aenter__()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self._session.__aexit__(kind, error, trace)

    async def topics(self) -> list[str]:
        """Every topic that the name server knows, those that brokers have for themselves among them."""
        return await self._session.routes.topics()

    async def own_topics(self) -> list[str]:
        """The topics named after clusters and brokers, which belong to these."""
        return await self._session.routes.topics(RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_NS)

    async def queues(self, topic: str) -> list[MessageQueue]:
        """The topic's readable queues as the name server knows them now, sorted; a slave is enough for one to count."""
        return list(subscribe_queues(topic, await self._session.routes.refresh(topic)))

    async def min_offset(self, queue: MessageQueue, *, of_master: bool = False) -> int:
        """The first offset the queue still holds; -1 for a queue that nobody wrote to.

        :param of_master: ask no slave either when the master is gone: a slave may lack what its master still holds.
        """
        choose = masters_only if of_master else read_addresses
        return await queue_calls.min_offset(self._session, queue, self._timeout_ms, choose)

    async def max_offset(self, queue: MessageQueue, *, of_master: bool = False) -> int:
        """The offset that the queue's next message will have. The master's, also when reading from a slave.

        :param of_master: ask no slave either when the master is gone: a slave may lag behind what was read already.
        """
        choose = masters_only if of_master else read_addresses
        return await queue_calls.max_offset(self._session, queue, self._timeout_ms, choose)

    async def offset_at(self, queue: MessageQueue, timestamp_ms: int) -> int:
        """The offset of the message stored at that time, or of the one stored nearest to it."""
        return await queue_calls.offset_at(self._session, queue, timestamp_ms, self._timeout_ms)

    async def committed(self, group: str, queue: MessageQueue) -> int | None:
        """How far `group` is with the queue; None where the broker knows nothing (a young queue: 0)."""
        return await queue_calls.committed(self._session, group, queue, self._timeout_ms)

    async def commit(self, group: str, queue: MessageQueue, offset: int) -> None:
        """Store that `group` goes on at `offset`, forwards or backwards."""
        await queue_calls.commit(self._session, group, queue, lambda: offset, self._timeout_ms)

    async def pull(
        self,
        queue: MessageQueue,
        offset: int,
        *,
        max_messages: int = 32,
        tags: str | Sql = "*",
        hold_ms: int = 0,
    ) -> PullResult:
        """Messages from `offset` on.

        :param max_messages: the broker sends at least one when there is one, and often fewer than this.
        :param tags: `*`, or tags joined by `||`, or an SQL92 expression.
        :param hold_ms: how long the broker may wait for a message when there is none yet.
        """
        wanted = subscription_to(queue.topic, tags)
        await self._check(wanted)
        at, response = await self._session.call_broker(
            queue,
            lambda _: self._request(queue, offset, max_messages, wanted, hold_ms),
            self._timeout_ms + (hold_ms + HOLD_SWEEP_MS if hold_ms else 0),
            lambda route, broker_name: self._addresses(route, broker_name, queue),
        )
        return self._result(queue, response, at, wanted)

    async def pull_all(
        self,
        queue: MessageQueue,
        offsets: Sequence[int],
        *,
        max_messages: int = 32,
        tags: str | Sql = "*",
    ) -> list[PullResult]:
        """What a pull from each of these offsets brings, all of them asked for at once and from the same broker.

        Takes the broker's limit per pull for what it is and the way there only once. `timeout_ms` is for all of them.
        """
        wanted = subscription_to(queue.topic, tags)
        await self._check(wanted)
        at, responses = await self._session.call_broker_all(
            queue,
            lambda _: [self._request(queue, offset, max_messages, wanted, 0) for offset in offsets],
            self._timeout_ms,
            lambda route, broker_name: self._addresses(route, broker_name, queue),
        )
        return [self._result(queue, response, at, wanted) for response in responses]

    def _request(
        self,
        queue: MessageQueue,
        offset: int,
        max_messages: int,
        wanted: Subscription,
        hold_ms: int,
    ) -> Command:
        flags = SUBSCRIPTION | (SUSPEND if hold_ms else 0)
        return pull_request(self._group, queue, offset, max_messages, flags, wanted, hold_ms)

    def _result(
        self, queue: MessageQueue, response: Command, at: BrokerAddress, wanted: Subscription
    ) -> PullResult:
        result = pull_result(response, at.address, wanted, of_master=at.is_master)
        found = result.status is PullStatus.FOUND or at.is_master
        self._suggested[queue] = (
            result.suggested_broker_id if found else MASTER_ID
        )  # a slave may only lag
        return result

    async def _check(self, wanted: Subscription) -> None:
        """Before the first pull with an SQL92 expression."""
        if not wanted.is_by_tag and wanted not in self._checked:
            await check_filter(self._session, self._group, wanted)
            self._checked.add(wanted)

    def _addresses(
        self, route: Route, broker_name: str, queue: MessageQueue
    ) -> list[BrokerAddress]:
        match self._read_from:
            case "master":
                return masters_only(route, broker_name)
            case "slave":
                return sorted(
                    read_addresses(route, broker_name), key=lambda at: (at.is_master, at.broker_id)
                )
            case "slave-only":
                return [at for at in read_addresses(route, broker_name) if not at.is_master]
            case "any":
                return read_addresses(route, broker_name, self._suggested.get(queue, MASTER_ID))
