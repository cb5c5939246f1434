"""What the producers and consumers of one client id share: connections, routes, membership, calls from brokers."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from types import TracebackType
from typing import Self, TypeVar

from roquet.client._net.first_commit import FirstCommitGuard
from roquet.client._net.heartbeats import Heartbeats
from roquet.client._net.identity import new_client_id
from roquet.client._net.name_servers import NameServers, split_addresses
from roquet.client._net.replies import Replies
from roquet.client._net.route_table import REFRESH_PERIOD_S, RouteTable
from roquet.client._net.routes import MASTER_ID, BrokerAddress, read_addresses
from roquet.client._net.tasks import Tasks, attempt, every
from roquet.common.runtime import Runtime
from roquet.errors import CallTimeout, ConnectionClosed, RouteNotFound
from roquet.protocol.bodies.tables import Route
from roquet.protocol.records.message import MessageQueue
from roquet.protocol.remoting.command import Command
from roquet.protocol.remoting.signing import Credentials
from roquet.transport.channels import Channels
from roquet.transport.connection import Connection
from roquet.transport.tls import Tls

AVOID_S = 5.0
"""How long an address whose connection failed is asked only after the others."""
AVOID_SILENT_S = 30.0
"""The same for one that does not answer at all: each try costs seconds."""
SILENT_CALLS_MAX = 2
"""Timeouts in a row after which a connection counts as dead: one late answer shall not cost the others theirs."""

T = TypeVar("T")
Choose = Callable[[Route, str], Iterable[BrokerAddress]]
"""Route, broker name -> the addresses to ask, best first."""


class Session:
    """Keeps: one connection per address; whoever fails is avoided for a while, and its routes are asked for anew."""

    def __init__(
        self,
        name_server: str,
        *,
        credentials: Credentials | None = None,
        tls: Tls | None = None,
        client_id: str | None = None,
        runtime: Runtime | None = None,
    ) -> None:
        self.runtime = runtime or Runtime()
        self.client_id = client_id or new_client_id(self.runtime.random)
        self.tasks = Tasks()
        self._name_servers = NameServers(
            split_addresses(name_server), self.call, self.runtime.random
        )
        self.routes = RouteTable(self._name_servers)
        self.membership = Heartbeats(self.client_id, self.call, self.routes)
        self.replies = Replies(self.runtime)
        self.first_commits = FirstCommitGuard()
        handlers = {**self.membership.handlers, **self.replies.handlers}
        self._channels = Channels(handlers, credentials=credentials, tls=tls)
        self._connections: dict[str, Connection] = {}
        self._silent_calls: dict[str, int] = {}
        self._avoided_until: dict[str, float] = {}
        self._refreshing: set[str] = set()

    async def __aenter__(self) -> Self:
        self.tasks.start(every(REFRESH_PERIOD_S, self._refresh, "refreshing routes"), "routes")
        self.tasks.start(self.membership.run(), "heartbeats")
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            await self.tasks.close()
            await self.membership.leave_all()
        finally:
            await self._channels.close()
            await asyncio.sleep(
                0
            )  # closed transports tell their connections in the loop's next turn

    async def _refresh(self) -> None:
        await self.routes.refresh_all()
        in_use = {at.address for at in self.routes.addresses()}
        self._channels.forget_all_but(in_use | set(self._name_servers.addresses))

    # calls

    async def call(self, address: str, request: Command, timeout_ms: int) -> Command:
        """Ask `address`; the response, of whatever code. Connecting counts into the time.

        :raises ConnectionClosed: not reachable, or it ended before the answer.
        :raises CallTimeout: no answer in time.
        """
        connection, timeout_ms = await self._connection(address, timeout_ms)
        return await self._answered(address, connection, connection.call(request, timeout_ms))

    async def call_all(
        self, address: str, requests: Sequence[Command], timeout_ms: int
    ) -> list[Command]:
        """Ask `address` several things at once; the responses, in the order of the requests. Errors as of `call`."""
        connection, timeout_ms = await self._connection(address, timeout_ms)
        return await self._answered(address, connection, connection.call_all(requests, timeout_ms))

    async def _connection(self, address: str, timeout_ms: int) -> tuple[Connection, int]:
        """With what is left of the time."""
        connection = self._connections.get(address)
        if connection is None or not connection.is_open:
            began = asyncio.get_running_loop().time()
            connection = await self._connect(address, timeout_ms)
            timeout_ms -= int((asyncio.get_running_loop().time() - began) * 1000)
        return connection, timeout_ms

    async def _answered(self, address: str, connection: Connection, call: Awaitable[T]) -> T:
        try:
            response = await call
        except CallTimeout:
            self._count_silence(address, connection)
            raise
        self._silent_calls.pop(address, None)
        return response

    async def _connect(self, address: str, timeout_ms: int) -> Connection:
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                connection = await self._channels.connection(address)
        except TimeoutError:
            raise CallTimeout(f"{address} took no connection within {timeout_ms} ms") from None
        except ConnectionClosed as error:
            if isinstance(error.__cause__, TimeoutError):
                raise CallTimeout(str(error)) from error
            raise
        if self._connections.get(address) not in (None, connection):
            self.membership.due.set()  # the broker forgot this client with its old connection
        self._connections[address] = connection
        return connection

    def _count_silence(self, address: str, connection: Connection) -> None:
        self._silent_calls[address] = self._silent_calls.get(address, 0) + 1
        if self._silent_calls[address] >= SILENT_CALLS_MAX:
            del self._silent_calls[address]
            connection.abort()

    async def notify(self, address: str, request: Command, timeout_ms: int) -> None:
        """Send a one-way request. It waits for a broker that does not read: nothing would slow the sender down else.

        :raises ConnectionClosed: not reachable; CallTimeout: no connection in time, or the broker did not read.
        """
        connection = self._connections.get(address)
        if connection is None or not connection.is_open:
            connection = await self._connect(address, timeout_ms)
        if not connection.is_writable:
            await connection.room(timeout_ms)
        connection.notify(request)

    async def call_broker(
        self,
        queue: MessageQueue,
        request: Callable[[BrokerAddress], Command],
        timeout_ms: int,
        choose: Choose = read_addresses,
    ) -> tuple[BrokerAddress, Command]:
        """Ask the processes of the queue's broker one after the other until one answers; its answer, of whatever code.

        Whenever one fails the route is asked for anew; when all fail, those that are new in it are asked, too.

        :param choose: which ones, best first; those that failed a short while ago come last.
        :param timeout_ms: for each of them.
        :raises RouteNotFound: the route has none of the wanted.
        :raises ConnectionClosed: none can be reached; CallTimeout: the last one did not answer.
        """
        return await self._in_turn(
            queue, lambda at: self.call(at.address, request(at), timeout_ms), choose
        )

    async def call_broker_all(
        self,
        queue: MessageQueue,
        requests: Callable[[BrokerAddress], Sequence[Command]],
        timeout_ms: int,
        choose: Choose = read_addresses,
    ) -> tuple[BrokerAddress, list[Command]]:
        """As `call_broker`, for several requests at once, which go to the same process."""
        return await self._in_turn(
            queue, lambda at: self.call_all(at.address, requests(at), timeout_ms), choose
        )

    async def _in_turn(
        self, queue: MessageQueue, ask: Callable[[BrokerAddress], Awaitable[T]], choose: Choose
    ) -> tuple[BrokerAddress, T]:
        tried: set[BrokerAddress] = set()
        failure: Exception | None = None
        for route_of in (self.routes.route, self.routes.refresh):
            route = await route_of(queue.topic)
            for at in self._least_suspect_first(choose(route, queue.broker_name)):
                if at in tried:
                    continue
                tried.add(at)
                try:
                    return at, await ask(at)
                except (ConnectionClosed, CallTimeout) as error:
                    self._avoid(
                        at.address,
                        AVOID_S if isinstance(error, ConnectionClosed) else AVOID_SILENT_S,
                    )
                    self.refresh_soon(queue.topic)
                    failure = error
        raise failure or RouteNotFound(
            f"no fitting address of broker {queue.broker_name} in the route of {queue.topic}"
        )

    def _avoid(self, address: str, seconds: float) -> None:
        self._avoided_until[address] = asyncio.get_running_loop().time() + seconds

    def refresh_soon(self, topic: str) -> None:
        """Ask for a topic's route beside the calls: they shall not wait for a name server that may be gone as well."""
        if topic not in self._refreshing:
            self._refreshing.add(topic)
            self.tasks.start(self._refresh_one(topic), f"route of {topic}")

    async def _refresh_one(self, topic: str) -> None:
        try:
            await attempt(lambda: self.routes.refresh(topic), f"refreshing the route of {topic}")
        finally:
            self._refreshing.discard(topic)

    def _least_suspect_first(self, addresses: Iterable[BrokerAddress]) -> list[BrokerAddress]:
        if not self._avoided_until:
            return list(addresses)
        now = asyncio.get_running_loop().time()
        self._avoided_until = {
            address: until for address, until in self._avoided_until.items() if until > now
        }
        return sorted(addresses, key=lambda at: at.address in self._avoided_until)


def masters_only(route: Route, broker_name: str) -> list[BrokerAddress]:
    return [at for at in read_addresses(route, broker_name) if at.broker_id == MASTER_ID]
