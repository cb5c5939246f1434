"""A server of many kinds of handlers on loopback, and the clients connected to it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from types import MappingProxyType

from roquet.errors import PeerError, Refused
from roquet.protocol.remoting.codes import ResponseCode
from roquet.protocol.remoting.command import Command
from roquet.transport.connection import Connection, Handler
from roquet.transport.server import Server

ECHO, REFUSE, MISREAD, FAIL, NEVER, BREAK, ASK_BACK = range(1000, 1007)
NO_HANDLERS: Mapping[int, Handler] = MappingProxyType({})


def echo(request: Command, connection: Connection) -> Command:
    return request.answer(0, None, request.fields, request.body)


def refuse(request: Command, connection: Connection) -> Command:
    raise Refused(ResponseCode.NO_PERMISSION, "not today")


def misread(request: Command, connection: Connection) -> Command:
    raise ValueError("no such number")


def fail(request: Command, connection: Connection) -> Command:
    raise ZeroDivisionError("a bug")


def never(request: Command, connection: Connection) -> None:
    return None


def break_rules(request: Command, connection: Connection) -> Command:
    raise PeerError("that makes no sense")


def ask_back(request: Command, connection: Connection) -> bytes:
    connection.calls.notify(Command(ECHO))
    return request.answer(0, "asked back").encode()


HANDLERS: Mapping[int, Handler] = {
    ECHO: echo,
    REFUSE: refuse,
    MISREAD: misread,
    FAIL: fail,
    NEVER: never,
    BREAK: break_rules,
    ASK_BACK: ask_back,
}


class Both:
    """A server and the clients connected to it."""

    def __init__(self) -> None:
        self.ended: list[Connection] = []
        self.server = Server(HANDLERS, self.ended.append)
        self.clients: list[Connection] = []
        self.port = 0

    async def start(self) -> None:
        self.port = await self.server.listen("127.0.0.1", 0)

    async def connect(self, handlers: Mapping[int, Handler] = NO_HANDLERS) -> Connection:
        _, connection = await asyncio.get_running_loop().create_connection(
            lambda: Connection(handlers), "127.0.0.1", self.port
        )
        self.clients.append(connection)
        return connection

    async def stop(self) -> None:
        for connection in self.clients:
            connection.close()
        await self.server.close()
        await settled(lambda: not any(connection.is_open for connection in self.clients))


async def settled(is_so: Callable[[], bool]) -> None:
    """Wait for what comes within a few turns of the loop."""
    async with asyncio.timeout(5):
        while not is_so():
            await asyncio.sleep(0)
