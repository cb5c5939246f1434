"""Frames leave in order, a peer that does not read is noticed, and its memory is bounded."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress

import pytest

from roquet.errors import CallTimeout, ConnectionClosed
from roquet.protocol.remoting.codes import ResponseCode
from roquet.protocol.remoting.command import Command
from roquet.transport.channels import Channels
from roquet.transport.connection import Connection
from roquet.transport.limits import CALLER
from roquet.transport.wire import GATHERED_MAX
from tests.transport.stub_transport import StubTransport

ASK, LEARN = 2, 1
UNREAD = 1 << 30


def unread(*, is_server: bool = True) -> tuple[Connection, StubTransport]:
    connection = Connection({}, is_server=is_server)
    return connection, StubTransport(connection, UNREAD)


def reading() -> tuple[Connection, StubTransport]:
    connection = Connection({})
    return connection, StubTransport(connection)


async def test_only_a_server_stops_reading_from_a_peer_that_does_not_read() -> None:
    for is_server in (True, False):
        connection, transport = unread(is_server=is_server)
        assert (connection.is_writable, connection.is_reading) == (False, not is_server)
        transport.read_all()
        assert (connection.is_writable, connection.is_reading) == (True, True)


async def test_who_waits_until_a_peer_reads_is_told_once() -> None:
    connection, transport = unread()
    told: list[str] = []
    connection.when_writable(lambda: told.append("earliest"))
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


# frames of one turn


async def test_frames_of_one_turn_leave_in_one_write_and_in_order() -> None:
    connection, transport = reading()
    for frame in (b"a", b"", b"b"):
        connection.send_soon(frame)
    assert transport.writes == []
    assert connection.unread == 2
    await asyncio.sleep(0)
    assert transport.writes == [b"ab"]
    assert connection.unread == 0
    connection.send_soon(b"c")
    await asyncio.sleep(0)
    assert transport.writes == [b"ab", b"c"]


async def test_what_is_sent_at_once_does_not_overtake_gathered_frames() -> None:
    connection, transport = reading()
    connection.send_soon(b"a")
    connection.send(b"b")
    connection.send_soon(b"c")
    assert transport.writes == [b"a", b"b"]
    await asyncio.sleep(0)
    assert transport.writes == [b"a", b"b", b"c"]


async def test_many_bytes_and_large_frames_do_not_wait_for_the_end_of_the_turn() -> None:
    connection, transport = reading()
    half, large = bytes(GATHERED_MAX // 2), bytes(GATHERED_MAX)
    connection.send_soon(half)
    assert transport.writes == []
    connection.send_soon(half)
    assert transport.writes == [half + half]
    connection.send_soon(b"a")
    connection.send_soon(large)
    assert transport.writes == [half + half, b"a", large]
    connection.send_soon(b"b")
    await asyncio.sleep(0)
    assert transport.writes == [half + half, b"a", large, b"b"]


@pytest.mark.parametrize("close", [Connection.close, Connection.end, Connection.eof_received])
async def test_gathered_frames_are_written_before_the_connection_closes(
    close: Callable[[Connection], None],
) -> None:
    connection, transport = reading()
    connection.send_soon(b"a")
    connection.send_soon(b"b")
    close(connection)
    assert transport.writes == [b"ab"]
    transport.close()
    connection.send_soon(b"c")
    await asyncio.sleep(0)
    assert transport.writes == [b"ab"]


@pytest.mark.parametrize("end", [StubTransport.abort, StubTransport.lose])
async def test_gathered_frames_are_dropped_when_the_connection_is_aborted_or_lost(
    end: Callable[[StubTransport], None],
) -> None:
    connection, transport = reading()
    connection.send_soon(b"a")
    end(transport)
    await asyncio.sleep(0)
    assert transport.writes == []
    assert connection.unread == 0
    connection.send_soon(b"b")
    await asyncio.sleep(0)
    assert transport.writes == []


async def test_who_sends_without_a_pause_is_stopped_when_the_peer_does_not_read() -> None:
    """The bytes of a turn count although none was written before its end."""
    is_read, everything = asyncio.Event(), bytearray()

    async def read_late(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await is_read.wait()
        everything.extend(await reader.read(-1))
        writer.close()

    server = await asyncio.start_server(read_late, "127.0.0.1", 0, limit=1)
    channels = Channels()
    connection = await channels.connection(f"127.0.0.1:{server.sockets[0].getsockname()[1]}")
    sent = 0
    while connection.is_writable:
        connection.send_soon(sent.to_bytes(8, "big") * 125)
        sent += 1
    bound = CALLER.answer_bytes_per_connection_max
    assert bound < connection.unread <= bound + GATHERED_MAX
    with pytest.raises(CallTimeout, match="does not read"):
        await connection.room(1)
    connection.send_soon(b"last")
    is_read.set()
    await connection.room(10_000)
    assert connection.is_writable
    await channels.close()
    async with asyncio.timeout(10):
        while not everything.endswith(b"last"):
            await asyncio.sleep(0)
    server.close()
    assert everything == b"".join(each.to_bytes(8, "big") * 125 for each in range(sent)) + b"last"


# a client


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
