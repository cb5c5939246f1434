"""Real connections between a master's server and a slave's client, and peers that are neither."""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import Callable
from contextlib import suppress

from roquet.replication import master
from roquet.replication.admission import Admission
from roquet.replication.client import HaClient
from roquet.replication.server import HaServer
from tests.replication.memory_log import MemoryLog
from tests.transport.crowd import until

FILE_SIZE = 1 << 20
LOG = bytes(range(256)) * 16
RESET = struct.pack("ii", 1, 0)
"""SO_LINGER: the end of this socket is a reset."""


class Master:
    """A server of slaves, whose rules and admission a test chooses."""

    def __init__(
        self, rules: master.Rules | None = None, admission: Admission | None = None
    ) -> None:
        self.log = MemoryLog(FILE_SIZE, LOG)
        self.acks = 0
        self.server = HaServer(self.log, rules, admission)
        self.server.acked.add(self._acked)
        self.port = 0

    def _acked(self) -> None:
        self.acks += 1

    async def __aenter__(self) -> Master:
        self.port = await self.server.listen("127.0.0.1", 0)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.server.close()

    @property
    def connections(self) -> int:
        return sum(not each.reason for each in self.server.slaves())

    def connect(self, source: str = "127.0.0.1") -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.port), source_address=(source, 0))

    async def copy_once(self) -> None:
        """A slave comes and gets the whole log."""
        copy = MemoryLog(FILE_SIZE, b"")
        client = HaClient(copy, lambda: None)
        client.set_master(f"127.0.0.1:{self.port}")
        await until(lambda: copy.end == self.log.end and self.server.replicated_to == self.log.end)
        await client.close()


class Fake:
    """Listens as a master does; `say` is what each connection gets.

    Invariant: a connection is among `connections` as soon as it is accepted, so that none outlives the
    event loop.
    """

    def __init__(self, say: Callable[[], bytes], *, closes: bool = False) -> None:
        self._say = say
        self._closes = closes
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.connections: list[socket.socket] = []
        self.port = self._listener.getsockname()[1]

    async def __aenter__(self) -> Fake:
        asyncio.get_running_loop().add_reader(self._listener, self._serve)
        return self

    def _serve(self) -> None:
        connection, _ = self._listener.accept()
        self.connections.append(connection)
        with suppress(OSError):  # the slave has been closed meanwhile
            connection.sendall(self._say())
            if self._closes:
                connection.shutdown(socket.SHUT_WR)  # closed with a report unread it would be reset

    async def __aexit__(self, *_: object) -> None:
        asyncio.get_running_loop().remove_reader(self._listener)
        for each in (self._listener, *self.connections):
            each.close()


async def ended(peer: socket.socket, seconds: float = 2.0) -> bool:
    """Whether the other side has closed the connection; closes it."""
    peer.setblocking(False)
    with peer:
        try:
            async with asyncio.timeout(seconds):
                return await asyncio.get_running_loop().sock_recv(peer, 1024) == b""
        except ConnectionResetError:
            return True
        except TimeoutError:
            return False
