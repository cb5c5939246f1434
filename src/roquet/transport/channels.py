"""The client's connections: one per address, opened on demand and shared by all calls to it."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from functools import partial
from typing import Final

from roquet.errors import CallTimeout, ConnectionClosed
from roquet.protocol.remoting.command import Command
from roquet.protocol.remoting.signing import Credentials
from roquet.transport.connect_errors import connect_error
from roquet.transport.connection import Connection, Handler
from roquet.transport.limits import CALLER
from roquet.transport.peers import Peers
from roquet.transport.tls import Tls, handshake_error

CONNECT_TIMEOUT_S = 3.0
_NOT_IN_HOSTS: Final = frozenset("/ ")
"""A URL is no address, although its last colon may be followed by a port."""
GOOD_BYE_S = 1.0
"""Seconds for which `close` waits for the peers' TLS close_notify."""


def split_address(address: str) -> tuple[str, int]:
    """Split `host:port` at its last colon; brackets around an IPv6 address are removed.

    :raises ValueError: `address` has no such form.
    """
    host, separator, port = address.strip().rpartition(":")
    is_host = bool(host) and not set(host) & _NOT_IN_HOSTS
    if not separator or not is_host or not port.isdigit() or not 0 < int(port) < 65536:
        raise ValueError(f"address {address!r} is not host:port")
    return host.removeprefix("[").removesuffix("]"), int(port)


class Channels:
    """The open connections of a client, by address.

    Invariant: at most one connection per address is open or being opened; all callers share it.

    :param handlers: request code -> handler, for requests that servers send to this client.
    :param credentials: used to sign every request; None: requests are not signed.
    :raises ConfigError: a file that `tls` names cannot be used.
    """

    def __init__(
        self,
        handlers: Mapping[int, Handler] | None = None,
        *,
        credentials: Credentials | None = None,
        tls: Tls | None = None,
        connect_timeout_s: float = CONNECT_TIMEOUT_S,
    ) -> None:
        self._connect_timeout_s = connect_timeout_s
        self._handlers: Mapping[int, Handler] = {} if handlers is None else handlers
        self._encode = Command.encode if credentials is None else credentials.encode
        self._tls = None if tls is None else tls.context()
        self._all_closed = asyncio.Event()
        self._open: dict[str, Connection] = {}
        self._opening: dict[str, asyncio.Task[Connection]] = {}
        self._answered: set[str] = set()
        """Addresses whose closed connections had answers: what is wrong there is not TLS."""
        self._peers = Peers(CALLER)
        self._sweep: asyncio.Task[None] | None = None

    async def connection(self, address: str) -> Connection:
        """Return the open connection to `address`, or open one.

        :raises ConnectionClosed: the connection cannot be opened; the message says why.
        """
        connection = self._open.get(address)
        if connection is not None and connection.is_open:
            return connection
        opening = self._opening.get(address)
        if opening is None:
            opening = asyncio.get_running_loop().create_task(self._connect(address))
            self._opening[address] = opening
            opening.add_done_callback(partial(self._opened, address))
        try:
            return await asyncio.shield(opening)
        except asyncio.CancelledError:
            caller = asyncio.current_task()
            if not opening.cancelled() or caller is None or caller.cancelling():
                raise
            # `close` ended the attempt; nobody cancelled the caller
            raise ConnectionClosed(f"cannot connect to {address}: the client was closed") from None

    def _opened(self, address: str, opening: asyncio.Task[Connection]) -> None:
        self._opening.pop(address, None)
        if not opening.cancelled():
            # read the error: if its callers were cancelled, asyncio would log it as unhandled
            opening.exception()

    async def _connect(self, address: str) -> Connection:
        try:
            host, port = split_address(address)
        except ValueError as error:
            raise ConnectionClosed(f"cannot connect: {error}") from error
        try:
            connection = await self._connected(address, host, port)
        except (OSError, UnicodeError) as error:  # UnicodeError: `host` cannot be a host name
            if self._tls is not None and isinstance(error, OSError):
                failed = handshake_error(address, error)
                if failed is not None:
                    raise failed from error
            why = connect_error(host, error, self._connect_timeout_s)
            raise ConnectionClosed(f"cannot connect to {address}: {why}") from error
        if connection.is_open:  # it may have been closed before this task ran again
            self._open[address] = connection
        if self._sweep is None:
            self._sweep = asyncio.get_running_loop().create_task(
                self._peers.sweep(self._open.values)
            )
        return connection

    async def _connected(self, address: str, host: str, port: int) -> Connection:
        connection = Connection(
            self._handlers,
            on_closed=partial(self._closed, address),
            encode=self._encode,
            peers=self._peers,
        )
        connection.calls.has_answered = address in self._answered
        try:
            async with asyncio.timeout(self._connect_timeout_s):
                await asyncio.get_running_loop().create_connection(
                    lambda: connection, host, port, ssl=self._tls
                )
        except BaseException:
            connection.is_lost()
            raise
        return connection

    def _closed(self, address: str, connection: Connection) -> None:
        if connection.calls.has_answered:
            self._answered.add(address)
        if self._open.get(address) is connection:
            del self._open[address]
        if not self._open:
            self._all_closed.set()

    async def call(self, address: str, request: Command, timeout_ms: int) -> Command:
        """Send a request to `address` and return its response, whatever its response code.

        :raises ConnectionClosed: the server is not reachable, or the connection ended first.
        :raises CallTimeout: no response within `timeout_ms`. The connection is closed then.
        """
        connection = await self.connection(address)
        try:
            return await connection.calls.call(request, timeout_ms)
        except CallTimeout:
            # The connection may be dead without a sign of it, and requests sent over it would keep
            # it from ever counting as idle. The next call opens another one.
            connection.abort()
            raise

    async def notify(self, address: str, request: Command) -> None:
        """Send a one-way request to `address`.

        :raises ConnectionClosed: the server is not reachable.
        """
        (await self.connection(address)).calls.notify(request)

    def forget_all_but(self, addresses: set[str]) -> None:
        """Close the connections to addresses that are in no route any more."""
        self._answered &= addresses
        for address, connection in list(self._open.items()):
            if address not in addresses:
                connection.end()

    async def close(self) -> None:
        if self._sweep is not None:
            self._sweep.cancel()
        for opening in list(self._opening.values()):
            opening.cancel()
        for connection in list(self._open.values()):
            connection.close()
        if self._tls is not None and self._open:
            await self._good_bye()

    async def _good_bye(self) -> None:
        self._all_closed.clear()
        try:
            async with asyncio.timeout(GOOD_BYE_S):
                await self._all_closed.wait()
        except TimeoutError:
            for connection in list(self._open.values()):
                connection.abort()
