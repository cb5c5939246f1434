"""The session: the connections, routes and heartbeats of one client id."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Self

from roquet.client._net.address_server import AddressServer
from roquet.client._net.broker_calls import BrokerCalls
from roquet.client._net.broker_requests import BrokerRequests
from roquet.client._net.close_limit import close_limit, is_closing, limited_s
from roquet.client._net.heartbeats import Heartbeats
from roquet.client._net.identity import new_client_id
from roquet.client._net.name_servers import TIMEOUT_MS, NameServers
from roquet.client._net.outages import Outages
from roquet.client._net.queue_calls import QueueCalls
from roquet.client._net.replies import Replies
from roquet.client._net.route_table import RouteTable
from roquet.client._net.tasks import Tasks, attempt, every
from roquet.client._net.traffic import AddressTraffic
from roquet.client.config import ClientConfig
from roquet.common.loop_time import now_s
from roquet.common.runtime import Runtime
from roquet.errors import CallTimeout, ConnectionClosed
from roquet.protocol.records.namespace import Namespace
from roquet.protocol.remoting.command import Command
from roquet.transport.channels import Channels
from roquet.transport.connection import Connection

if TYPE_CHECKING:
    from roquet.client.metrics import ConnectionMetrics

log = logging.getLogger(__name__)

SILENT_CALLS_MAX = 2
"""Timeouts in a row after which a connection is aborted. After one alone, a late answer would cost
all other calls of the connection their answers."""


class Session:
    """The shared state of the producers and consumers of one client id.

    It has the connections, routes, heartbeats and replies, and handles requests from brokers.

    Invariant: there is at most one open connection per address.
    """

    def __init__(self, config: ClientConfig) -> None:
        self.runtime = config.runtime or Runtime()
        self.names = Namespace(config.namespace)
        self.client_id = config.client_id or new_client_id(self.runtime.random, config.unit_name)
        self.unit_mode = config.unit_mode
        self.tasks = Tasks()
        self.name_servers = NameServers(config.addresses, self._call_shared, self.runtime.random)
        url = config.address_server
        self._address_server = None if url is None else AddressServer(url, config.unit_name)
        self.routes = RouteTable(self.name_servers, self.tasks)
        self.brokers = BrokerCalls(self.call, self.call_all, self.routes)
        self.queues = QueueCalls(self.call, self.brokers)
        heartbeat_s = config.heartbeat_ms / 1000
        self.membership = Heartbeats(self.client_id, self._call_shared, self.routes, heartbeat_s)
        self._refresh_period_s = config.poll_name_server_ms / 1000
        requests = BrokerRequests(self.membership.producers, self.membership.consumers)
        self.replies = Replies(self.runtime, self.names)
        handlers = {**requests.handlers, **self.replies.handlers}
        self._channels = Channels(handlers, credentials=config.credentials, tls=config.tls)
        self._connections: dict[str, Connection] = {}
        self.is_closed = False
        """Whether no connection is opened any more."""
        self._close_ends: list[float] = []
        """For each close of those that use this session: when it should be over."""
        self._traffic = AddressTraffic()
        self._silent_calls: dict[str, int] = {}
        self._outages = Outages(self.name_servers.addresses)

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def start(self) -> None:
        """Begin to refresh routes and to send heartbeats.

        :raises ConnectionClosed, CallTimeout, PeerError: the address server names no name servers.
        """
        if self._address_server is not None:
            await self._find_name_servers(self._address_server)
        refresh = every(self._refresh_period_s, self._refresh, "refreshing routes")
        self.tasks.start(refresh, "routes")
        self.tasks.start(self.membership.run(), "heartbeats")

    async def close(self) -> None:
        """Unregister all groups, and close the connections."""
        try:
            await self.tasks.close()
            await self.membership.leave_all()
        finally:
            self.is_closed = True
            if self._address_server is not None:
                self._address_server.close()
            await self._channels.close()
            # Closed transports notify their connections in the next turn of the event loop.
            await asyncio.sleep(0)

    @contextmanager
    def closing(self) -> Iterator[None]:
        """What is called in this block belongs to a close: its time is limited."""
        with close_limit() as until_s:
            self._close_ends.append(until_s)
            try:
                yield
            finally:
                self._close_ends.remove(until_s)

    async def _find_name_servers(self, server: AddressServer) -> None:
        try:
            addresses = await server.ask()
        except (ConnectionClosed, CallTimeout) as error:
            self._outages.failed(server.url, error)
            raise
        self._outages.answered(server.url)
        if self.name_servers.replace(addresses):
            log.info("name servers found: address_server=%s addresses=%s", server.url, addresses)

    async def _refresh(self) -> None:
        if self._address_server is not None:
            # Without an answer the name servers that are known go on being asked.
            await attempt(self._find_name_servers(self._address_server), "asking for name servers")
        await self.routes.refresh_all()
        in_use = {at.address for at in self.routes.addresses()}
        self._channels.forget_all_but(in_use | set(self.name_servers.addresses))

    # calls

    async def reach(self) -> None:
        """Connect to a name server.

        :raises ConnectionClosed: no name server can be reached.
        :raises CallTimeout: no name server accepts a connection in time.
        """
        await self.name_servers.first(lambda address: self._connection(address, TIMEOUT_MS))

    async def call(self, address: str, request: Command, timeout_ms: int) -> Command:
        """Send a request to `address` and return the response, whatever its code is.

        :param timeout_ms: the time in ms, including that for connecting.
        :raises ConnectionClosed: there is no connection, or it ended before the answer.
        :raises CallTimeout: there was no answer in time.
        """
        if self._close_ends:
            is_away = address in self._outages.away
            timeout_ms = int(limited_s(timeout_ms / 1000, is_away=is_away) * 1000)
        connection = self._connections.get(address)
        if connection is None or not connection.is_open:
            connection, timeout_ms = await self._connection(address, timeout_ms)
        try:
            response = await connection.calls.call(request, timeout_ms)
        except (CallTimeout, ConnectionClosed) as error:
            self._failed(address, connection, error)
            raise
        if self._silent_calls or self._outages.away:
            self._answered(address)
        return response

    async def _call_shared(self, address: str, request: Command, timeout_ms: int) -> Command:
        """Make a call that several tasks may wait for. Raises as `call`.

        A close waits for heartbeats and routes, whoever began to ask: while there is a close, its
        limit counts.
        """
        if not self._close_ends:
            return await self.call(address, request, timeout_ms)
        with close_limit(min(self._close_ends)):
            return await self.call(address, request, timeout_ms)

    async def call_all(
        self, address: str, requests: Sequence[Command], timeout_ms: int
    ) -> list[Command]:
        """Send several requests at once; return the responses in the order of the requests.

        Raises as `call`.
        """
        connection, timeout_ms = await self._connection(address, timeout_ms)
        try:
            responses = await connection.calls.call_all(requests, timeout_ms)
        except (CallTimeout, ConnectionClosed) as error:
            self._failed(address, connection, error)
            raise
        self._answered(address)
        return responses

    async def _connection(self, address: str, timeout_ms: int) -> tuple[Connection, int]:
        """A connection to `address`, and the rest of the time in ms."""
        connection = self._connections.get(address)
        if connection is None or not connection.is_open:
            began = now_s()
            connection = await self._connect(address, timeout_ms)
            timeout_ms -= int((now_s() - began) * 1000)
        return connection, timeout_ms

    async def _connect(self, address: str, timeout_ms: int) -> Connection:
        if self.is_closed:
            raise ConnectionClosed(f"cannot connect to {address}: the client was closed")
        try:
            connection = await self._connected(address, timeout_ms)
        except (CallTimeout, ConnectionClosed) as error:
            self._outages.failed(address, error)
            raise
        former = self._connections.get(address)
        if former is not connection:
            self._traffic.opened(address, former)
        if former not in (None, connection):
            # The broker has removed this client together with its former connection.
            self.membership.due.set()
            self._silent_calls.pop(address, None)
        self._connections[address] = connection
        return connection

    async def _connected(self, address: str, timeout_ms: int) -> Connection:
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                return await self._channels.connection(address)
        except TimeoutError:
            raise CallTimeout(f"no connection to {address} within {timeout_ms} ms") from None
        except ConnectionClosed as error:
            if isinstance(error.__cause__, TimeoutError):
                raise CallTimeout(str(error)) from error
            raise

    def connection_metrics(self) -> dict[str, ConnectionMetrics]:
        """The connections to brokers and name servers, by address.

        Those to brokers that no route has any more count only while they are open.
        """
        name_servers = self.name_servers.addresses
        addresses = {*name_servers, *(at.address for at in self.routes.addresses())}
        addresses |= {address for address, each in self._connections.items() if each.is_open}
        return {
            address: self._traffic.metrics(
                address,
                self._connections.get(address),
                is_name_server=address in name_servers,
                is_silent=address in self._outages.away,
            )
            for address in sorted(addresses)
        }

    def _answered(self, address: str) -> None:
        self._silent_calls.pop(address, None)
        self._outages.answered(address)

    def _failed(self, address: str, connection: Connection, error: Exception) -> None:
        if self.is_closed:
            return  # its connections end, whatever the servers do
        self._outages.failed(address, error)
        if isinstance(error, ConnectionClosed) or is_closing():
            return  # what others wait for on this connection may have more time than a close
        self._silent_calls[address] = self._silent_calls.get(address, 0) + 1
        if self._silent_calls[address] >= SILENT_CALLS_MAX:
            del self._silent_calls[address]
            connection.abort()

    async def notify(self, address: str, request: Command, timeout_ms: int) -> None:
        """Send a one-way request.

        If the broker does not read, this waits for it. Nothing else slows the sender down.

        :raises ConnectionClosed: there is no connection.
        :raises CallTimeout: there was no connection in time, or the broker did not read.
        """
        connection = self._connections.get(address)
        if connection is None or not connection.is_open:
            connection = await self._connect(address, timeout_ms)
        if not connection.is_writable:
            await connection.room(timeout_ms)
        connection.calls.notify(request)
