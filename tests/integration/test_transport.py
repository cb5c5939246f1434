"""Connections on loopback: who is answered, with what, and how it ends."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import suppress
from types import MappingProxyType
from typing import Any

import pytest

from roquet.errors import CallTimeout, ConnectionClosed, PeerError, Refused
from roquet.protocol.remoting.codes import ResponseCode
from roquet.protocol.remoting.command import ONE_WAY, Command, decode
from roquet.transport import server as server_module
from roquet.transport.channels import Channels, split_address
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


@pytest.fixture
async def both() -> AsyncIterator[Both]:
    both = Both()
    await both.start()
    yield both
    await both.stop()


async def test_answers_find_their_requests_whatever_their_order(both: Both) -> None:
    client = await both.connect()

    answers = await asyncio.gather(
        *(client.calls.call(Command(ECHO, {"n": str(n)}), 5000) for n in range(100))
    )

    assert [answer.fields["n"] for answer in answers] == [str(n) for n in range(100)]


@pytest.mark.parametrize(
    ("code", "answer_code", "remark"),
    [
        (REFUSE, ResponseCode.NO_PERMISSION, "not today"),
        (MISREAD, ResponseCode.SYSTEM_ERROR, f"request {MISREAD}: no such number"),
        (FAIL, ResponseCode.SYSTEM_ERROR, "ZeroDivisionError: a bug"),
        (9999, ResponseCode.REQUEST_CODE_NOT_SUPPORTED, " request type 9999 not supported"),
    ],
)
async def test_a_handler_that_cannot_is_an_answer_with_a_code(
    both: Both, code: int, answer_code: int, remark: str
) -> None:
    client = await both.connect()

    answer = await client.calls.call(Command(code), 5000)

    assert (answer.code, answer.remark) == (answer_code, remark)
    assert (await client.calls.call(Command(ECHO), 5000)).code == 0


async def test_one_way_requests_are_never_answered(both: Both) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", both.port)
    asked = [Command(code, flag=ONE_WAY) for code in (ECHO, REFUSE, FAIL, 9999)]
    asked.append(Command(ECHO, opaque=7))
    writer.write(b"".join(request.encode() for request in asked))

    size = int.from_bytes(await reader.readexactly(4), "big")
    assert decode(await reader.readexactly(size)).opaque == 7

    writer.close()


async def test_a_server_may_ask_over_the_same_connection(both: Both) -> None:
    asked: list[int] = []

    def hear(request: Command, connection: Connection) -> None:
        asked.append(request.code)

    client = await both.connect({ECHO: hear})
    answer = await client.calls.call(Command(ASK_BACK), 5000)

    assert answer.remark == "asked back"
    assert asked == [ECHO]


async def test_a_call_without_an_answer_times_out_and_the_connection_stays(both: Both) -> None:
    client = await both.connect()

    with pytest.raises(CallTimeout, match=f"did not answer request {NEVER} within 1 ms"):
        await client.calls.call(Command(NEVER), 1)

    assert (await client.calls.call(Command(ECHO), 5000)).code == 0


async def test_a_peer_that_breaks_the_protocol_loses_its_connection_and_its_calls(
    both: Both,
) -> None:
    client = await both.connect()
    other = await both.connect()

    with pytest.raises(ConnectionClosed):
        await client.calls.call(Command(BREAK), 5000)

    await settled(lambda: not client.is_open)
    assert len(both.ended) == 1
    assert (await other.calls.call(Command(ECHO), 5000)).code == 0


async def test_bytes_that_are_no_frame_close_the_connection(both: Both) -> None:
    client = await both.connect()

    client.send(b"GET / HTTP/1.1\r\n\r\n")

    await settled(lambda: not client.is_open)


async def test_a_call_over_a_closed_connection_fails_at_once(both: Both) -> None:
    client = await both.connect()
    client.close()

    with pytest.raises(ConnectionClosed):
        await client.calls.call(Command(ECHO), 5000)


async def test_a_closed_server_has_no_connection_left(both: Both) -> None:
    client = await both.connect()
    await client.calls.call(Command(ECHO), 5000)

    await both.server.close()

    assert not both.server.connections
    assert len(both.ended) == 1


async def test_a_peer_that_reads_nothing_does_not_hold_up_the_end(
    both: Both, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server_module, "CLOSE_S", 0.01)
    reader, writer = await asyncio.open_connection("127.0.0.1", both.port, limit=1)
    await settled(lambda: bool(both.server.connections))
    (connection,) = both.server.connections
    for _ in range(64):
        connection.send(bytes(1024 * 1024))

    await both.server.close()

    await settled(lambda: not both.server.connections)
    writer.transport.abort()
    del reader


async def test_answers_to_a_large_read_begin_to_leave_before_its_end_is_handled() -> None:
    loop = asyncio.get_running_loop()
    peer = socket.socket()
    peer.setblocking(False)
    received = bytearray()
    early: list[int] = []

    def echo_and_look(request: Command, connection: Connection) -> Command:
        if request.opaque == 99:
            with suppress(BlockingIOError):
                received.extend(peer.recv(1 << 20))
            early.append(len(received))
        return echo(request, connection)

    server = Server({ECHO: echo_and_look})
    await loop.sock_connect(peer, ("127.0.0.1", await server.listen("127.0.0.1", 0)))
    await settled(lambda: bool(server.connections))
    (connection,) = server.connections
    requests = [Command(ECHO, opaque=opaque, body=bytes(2000)) for opaque in range(100)]

    connection.data_received(b"".join(request.encode() for request in requests))

    expected = b"".join(request.answer(0, None, {}, request.body).encode() for request in requests)
    while len(received) < len(expected):
        received += await loop.sock_recv(peer, 1 << 20)
    assert received == expected
    assert early[0] > 0
    peer.close()
    await server.close()


class Unreachable(asyncio.Transport):
    """What a loop gives when the peer left before the connection was looked at."""

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return default

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        pass


async def test_a_peer_that_left_at_once_is_no_error() -> None:
    connection = Connection(NO_HANDLERS)

    connection.connection_made(Unreachable())

    assert connection.peer_address == "0.0.0.0:0"


# channels


async def test_callers_share_one_connection_per_address(both: Both) -> None:
    channels = Channels()
    address = f"127.0.0.1:{both.port}"

    await asyncio.gather(*(channels.call(address, Command(ECHO), 5000) for _ in range(10)))

    assert len(both.server.connections) == 1
    await channels.close()


async def test_a_lost_connection_is_opened_again_on_demand(both: Both) -> None:
    channels = Channels()
    address = f"127.0.0.1:{both.port}"
    with pytest.raises(ConnectionClosed):
        await channels.call(address, Command(BREAK), 5000)

    assert (await channels.call(address, Command(ECHO), 5000)).code == 0
    await channels.close()


async def test_an_address_where_nobody_listens_is_named() -> None:
    channels = Channels()

    with pytest.raises(ConnectionClosed, match=r"cannot connect to 127\.0\.0\.1:1"):
        await channels.call("127.0.0.1:1", Command(ECHO), 5000)
    await channels.close()


@pytest.mark.parametrize(
    ("address", "parts"),
    [("a:1", ("a", 1)), (" 10.0.0.1:65535 ", ("10.0.0.1", 65535)), ("[::1]:9876", ("::1", 9876))],
)
def test_an_address_is_divided_at_its_last_colon(address: str, parts: tuple[str, int]) -> None:
    assert split_address(address) == parts


@pytest.mark.parametrize("address", ["", "a", "a:", ":1", "a:b", "a:0", "a:65536", "a:-1"])
def test_another_text_is_no_address(address: str) -> None:
    with pytest.raises(ValueError, match="is not host:port"):
        split_address(address)
