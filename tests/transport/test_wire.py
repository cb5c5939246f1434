"""A peer that does not read is noticed, and its memory is bounded."""

from __future__ import annotations

import asyncio
from contextlib import suppress

import pytest

from roquet.errors import CallTimeout, ConnectionClosed
from roquet.protocol.remoting.codes import ResponseCode
from roquet.protocol.remoting.command import Command
from roquet.transport.channels import Channels
from roquet.transport.connection import Connection
from roquet.transport.limits import CALLER
from tests.transport.stub_transport import StubTransport

ASK, LEARN = 2, 1
UNREAD = 1 << 30


def unread(*, is_server: bool = True) -> tuple[Connection, StubTransport]:
    connection = Connection({}, is_server=is_server)
    return connection, StubTransport(connection, UNREAD)


async def test_only_a_server_stops_reading_from_a_peer_that_does_not_read() -> None:
    for is_server in (True, False):
        connection, transport = unread(is_server=is_server)
        assert (connection.is_writable, connection.is_reading) == (False, not is_server)
        transport.read_all()
        assert (connection.is_writable, connection.is_reading) == (True, True)


async def test_who_waits_until_a_peer_reads_is_told_once() -> None:
    connection, transport = unread()
    told: list[str] = []
    connection.when_writable(lambda: told.append("first"))
    connection.when_writable(lambda: told.append("second"))
    transport.read_all()
    connection.pause_writing()
    connection.resume_writing()
    assert told == ["second"]


async def test_room_is_waited_for_until_the_peer_reads_or_is_gone() -> None:
    connection, transport = unread()
    with pytest.raises(CallTimeout, match=f"10.0.0.9:50000 does not read: {UNREAD} bytes wait"):
        await connection.room(1)
    waiting = asyncio.ensure_future(connection.room(10_000))
    await asyncio.sleep(0)
    transport.read_all()
    await waiting
    await connection.room(1)

    connection, transport = unread()
    waiting = asyncio.ensure_future(connection.room(10_000))
    await asyncio.sleep(0)
    transport.lose()
    await waiting


async def test_what_is_sent_over_a_closed_connection_is_dropped() -> None:
    connection, transport = unread()
    connection.send(b"")
    connection.close()
    connection.send(b"frame")
    transport.lose()
    connection.send(b"frame")
    assert transport.writes == []


def test_a_broker_that_asks_on_and_reads_no_answer_is_left() -> None:
    """Its client kept all answers: some MB more each second, for two minutes."""
    most = 0

    async def ask_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError):
            while not writer.is_closing():
                writer.write(Command(ASK).encode())
                await writer.drain()
                await asyncio.sleep(0)

    async def be_asked() -> None:
        nonlocal most

        def answer(request: Command, connection: Connection) -> Command:
            nonlocal most
            most = max(most, connection.unread)
            return request.answer(ResponseCode.SUCCESS, body=bytes(65536))

        server, channels = (
            await asyncio.start_server(ask_on, "127.0.0.1", 0),
            Channels({ASK: answer}),
        )
        connection = await channels.connection(f"127.0.0.1:{server.sockets[0].getsockname()[1]}")
        try:
            with pytest.raises(ConnectionClosed):
                await connection.calls.call(Command(LEARN), 10_000)
        finally:
            await channels.close()
            server.close()

    asyncio.run(be_asked())
    bound = CALLER.answer_bytes_per_connection_max
    assert bound < most <= 2 * bound + 2 * 65536
