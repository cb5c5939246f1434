"""Peers of every kind at a real server on loopback: raw sockets that ask, send half, and do not
read.
"""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import Callable

from roquet.protocol.remoting.command import Command
from roquet.transport.connection import Connection
from roquet.transport.handling import Answer
from roquet.transport.limits import PeerLimits
from roquet.transport.peers import Peers
from roquet.transport.server import Server

ECHO, GIVE, LATER = 1, 2, 3
MIB = 1024 * 1024
KERNEL = 8 * MIB
"""More than the kernel takes of one connection that nobody reads."""


class Crowd:
    """A server with small limits, and its peers."""

    def __init__(self, limits: PeerLimits, connections_max: int = 0) -> None:
        self.peers = Peers(limits, connections_max)
        self.ended: list[Connection] = []
        self.later: asyncio.Event = asyncio.Event()
        handlers = {ECHO: _echo, GIVE: _give, LATER: self._answer_later}
        self.server = Server(handlers, self.ended.append, self.peers)
        self.port = 0
        self.sockets: list[socket.socket] = []

    async def start(self) -> None:
        self.port = await self.server.listen("127.0.0.1", 0)

    async def stop(self) -> None:
        for each in self.sockets:
            each.close()
        await self.server.close()

    async def join(self, receive_buffer: int = 4096, source: str = "127.0.0.1") -> socket.socket:
        peer = socket.socket()
        peer.bind((source, 0))
        peer.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        peer.setblocking(False)
        await asyncio.get_running_loop().sock_connect(peer, ("127.0.0.1", self.port))
        self.sockets.append(peer)
        return peer

    async def say(self, peer: socket.socket, data: bytes) -> None:
        await asyncio.get_running_loop().sock_sendall(peer, data)

    async def answer(self, peer: socket.socket) -> bytes:
        """The next frame."""
        head = await self._read(peer, 4)
        return await self._read(peer, int.from_bytes(head, "big"))

    async def _read(self, peer: socket.socket, size: int) -> bytes:
        data = b""
        while len(data) < size:
            more = await asyncio.get_running_loop().sock_recv(peer, size - len(data))
            assert more, "the server closed"
            data += more
        return data

    def _answer_later(self, request: Command, connection: Connection) -> None:
        async def work() -> Answer:
            await self.later.wait()
            return request.answer(0)

        connection.later.answer(request, work())

    @property
    def held(self) -> list[tuple[int, int]]:
        """Bytes of answers and of requests, of each connection."""
        now = asyncio.get_running_loop().time()
        return [each.held(now) for each in self.server.connections]


def _echo(request: Command, connection: Connection) -> Answer:
    return request.answer(0, None, {}, request.body)


def _give(request: Command, connection: Connection) -> Answer:
    """As many bytes as the request says."""
    return request.answer(0, None, {}, bytes(int(request.fields["size"])))


def asks(size: int, times: int = 1) -> bytes:
    """Requests for answers of so many bytes."""
    return b"".join(
        Command(GIVE, {"size": str(size)}, opaque=opaque).encode() for opaque in range(times)
    )


def half_frame(announced: int, size: int) -> bytes:
    return struct.pack(">i", announced) + bytes(size)


async def until(is_so: Callable[[], bool], seconds: float = 10.0) -> None:
    async with asyncio.timeout(seconds):
        while not is_so():
            await asyncio.sleep(0.002)
