"""A server: accepts connections and passes their requests to handlers by request code."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping

from roquet.transport.connection import Connection, Handler
from roquet.transport.handling import FastPathMakers
from roquet.transport.peers import Peers

BACKLOG = 1024
CLOSE_S = 1.0
"""Seconds that peers have to read their last answers when the server closes."""


class Server:
    """One listening port and its connections.

    Invariant: `connections` are those accepted and not yet closed, in the order of arrival.

    :param handlers: request code -> handler; any other code is answered with "not supported".
    :param on_closed: called with each connection that ended.
    :param peers: limits and counts that the ports of one process share; None: limits of its own.
    :param fast_paths: makes the fast paths of a connection; None: it has none.
    """

    def __init__(
        self,
        handlers: Mapping[int, Handler],
        on_closed: Callable[[Connection], None] | None = None,
        peers: Peers | None = None,
        fast_paths: FastPathMakers[Connection] | None = None,
    ) -> None:
        self._handlers = handlers
        self._fast_paths = fast_paths
        self._on_closed = on_closed
        self._peers = Peers() if peers is None else peers
        self._listener: asyncio.Server | None = None
        self._sweep: asyncio.Task[None] | None = None
        self._one_less = asyncio.Event()
        self._is_closed = False
        self.connections: dict[Connection, None] = {}

    async def listen(self, host: str, port: int) -> int:
        """Start to accept connections.

        :returns: the port; for `port` 0 the one that the system chose.
        """
        loop = asyncio.get_running_loop()
        self._listener = await loop.create_server(self._accept, host, port, backlog=BACKLOG)
        self._sweep = loop.create_task(
            self._peers.sweep(lambda: self.connections, self._peers.descriptors.look)
        )
        return int(self._listener.sockets[0].getsockname()[1])

    def _accept(self) -> Connection:
        return Connection(
            self._handlers,
            self._opened,
            self._closed,
            is_server=True,
            peers=self._peers,
            fast_paths=self._fast_paths,
        )

    def _opened(self, connection: Connection) -> None:
        self.connections[connection] = None
        if self._is_closed:
            connection.abort()

    def _closed(self, connection: Connection) -> None:
        self.connections.pop(connection, None)
        self._one_less.set()
        if self._on_closed is not None:
            self._on_closed(connection)

    def stop_accepting(self) -> None:
        """Accept no new connections; open ones stay open."""
        if self._listener is not None:
            self._listener.close()

    async def close(self) -> None:
        """Close all connections. Answers already made are sent if peers read them within `CLOSE_S`.

        A connection that the system accepted before, but reports later, is aborted by `_opened`.
        """
        self._is_closed = True
        if self._sweep is not None:
            self._sweep.cancel()
        self.stop_accepting()
        for connection in list(self.connections):
            connection.close()
        try:
            async with asyncio.timeout(CLOSE_S):
                while self.connections:
                    self._one_less.clear()
                    await self._one_less.wait()
        except TimeoutError:
            for connection in list(self.connections):
                connection.abort()
