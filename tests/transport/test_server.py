"""Connections of a server on loopback: who is answered, with what, and how it ends."""

from __future__ import annotations

import asyncio
import socket
from contextlib import suppress
from typing import Any

import pytest

from roquet.errors import CallTimeout, ConnectionClosed
from roquet.protocol.remoting.codes import ResponseCode
from roquet.protocol.remoting.command import ONE_WAY, Command, decode
from roquet.transport import server as server_module
from roquet.transport.connection import Connection
from roquet.transport.peers import Peers
from roquet.transport.server import Server
from tests.transport.both import (
    ASK_BACK,
    BREAK,
    ECHO,
    FAIL,
    MISREAD,
    NEVER,
    NO_HANDLERS,
    REFUSE,
    Both,
    echo,
    settled,
)


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
        await asyncio.sleep(0)
        with suppress(BlockingIOError):
            received.extend(peer.recv(1 << 20))
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


# the server itself


async def test_connections_are_those_open_in_the_order_of_arrival(both: Both) -> None:
    clients = [await both.connect() for _ in range(3)]
    await settled(lambda: len(both.server.connections) == 3)
    first, second, third = both.server.connections

    clients[1].close()
    await settled(lambda: both.ended == [second])

    assert list(both.server.connections) == [first, third]


async def test_a_server_that_stops_to_accept_keeps_its_connections(both: Both) -> None:
    client = await both.connect()

    both.server.stop_accepting()

    with pytest.raises(ConnectionRefusedError):
        await both.connect()
    assert (await client.calls.call(Command(ECHO), 5000)).code == 0


async def test_a_closing_server_sends_the_answers_that_are_made(both: Both) -> None:
    """They are more than the kernel takes at once."""
    client = await both.connect()
    body = bytes(4 << 20)
    call = asyncio.create_task(client.calls.call(Command(ECHO, body=body), 5000))
    await settled(lambda: any(each.held(0)[0] for each in both.server.connections))

    await both.server.close()

    assert (await call).body == body
    await settled(lambda: len(both.ended) == 1)


async def test_a_connection_that_the_loop_reports_after_the_end_is_closed(both: Both) -> None:
    """The system accepted it before."""
    peers = [socket.create_connection(("127.0.0.1", both.port)) for _ in range(5)]

    await both.server.close()
    for _ in range(10):
        await asyncio.sleep(0)

    assert not both.server.connections
    for peer in peers:
        peer.setblocking(False)
        with peer, suppress(ConnectionResetError):
            assert await asyncio.get_running_loop().sock_recv(peer, 1) == b""


async def test_a_server_that_never_listened_can_be_closed() -> None:
    server = Server({})

    server.stop_accepting()
    await server.close()

    assert not server.connections


async def test_servers_of_one_process_share_the_limit_of_connections() -> None:
    peers = Peers(connections_max=1)
    one, other = (Server({ECHO: echo}, peers=peers) for _ in range(2))
    ports = [await one.listen("127.0.0.1", 0), await other.listen("127.0.0.1", 0)]
    first = socket.create_connection(("127.0.0.1", ports[0]))
    await settled(lambda: len(one.connections) == 1)

    second = socket.create_connection(("127.0.0.1", ports[1]))
    second.setblocking(False)
    with suppress(ConnectionResetError):
        assert await asyncio.get_running_loop().sock_recv(second, 1) == b""

    assert (len(one.connections), len(other.connections)) == (1, 0)
    for each in first, second:
        each.close()
    await asyncio.gather(one.close(), other.close())


async def test_a_server_on_port_0_says_which_port_it_has() -> None:
    server = Server({ECHO: echo})

    port = await server.listen("127.0.0.1", 0)

    assert port > 0
    socket.create_connection(("127.0.0.1", port)).close()
    with pytest.raises(OSError, match="in use"):
        await Server({}).listen("127.0.0.1", port)
    await server.close()
