"""Connections by address, on a simulated network and on loopback."""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import Callable

import pytest
import uvloop

from roquet.errors import ConnectionClosed
from roquet.protocol.remoting.command import Command
from roquet.transport.channels import CONNECT_TIMEOUT_S, Channels, split_address
from roquet.transport.server import Server
from tests.simulation.simulation import Simulation
from tests.transport.both import BREAK, ECHO, Both

NOBODY = "10.0.0.2:7000"


def test_a_connect_that_fails_after_its_caller_gave_up_is_nobodys_loss() -> None:
    """The simulation would fail with a task whose exception nobody took, as asyncio would complain
    about it.
    """

    async def give_up() -> None:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(CONNECT_TIMEOUT_S / 2):
                await Channels().connection(NOBODY)

    with Simulation(1) as sim:
        sim.host("10.0.0.1").call(give_up)
        sim.run_for(2 * CONNECT_TIMEOUT_S)


def test_a_host_that_does_not_answer_is_said_to_be_silent() -> None:
    async def connect() -> None:
        with pytest.raises(ConnectionClosed, match=f"cannot connect to {NOBODY}: no answer"):
            await Channels().connection(NOBODY)

    with Simulation(1) as sim:
        sim.host("10.0.0.1").call(connect)


LONG = "x" * 64


@pytest.mark.parametrize(
    ("address", "text"),
    [
        ("no address", "cannot connect: address 'no address' is not host:port"),
        ("host:0", "cannot connect: address 'host:0' is not host:port"),
        ("a..b:80", "cannot connect to a..b:80: 'a..b' is not a host name"),
        (f"{LONG}:80", f"cannot connect to {LONG}:80: '{LONG}' is not a host name"),
    ],
)
async def test_what_cannot_be_an_address_is_not_reachable_as_others_are_not(
    address: str, text: str
) -> None:
    with pytest.raises(ConnectionClosed) as refused:
        await Channels().connection(address)
    assert str(refused.value) == text


@pytest.mark.parametrize("loop", [asyncio.new_event_loop, uvloop.new_event_loop])
def test_a_connect_that_is_given_up_in_whatever_turn_leaves_nothing(
    loop: Callable[[], asyncio.AbstractEventLoop],
) -> None:
    """uvloop does not say that a connection is lost which stands in the turn in which its attempt
    is cancelled.
    """

    async def give_up_after(turns: int, address: str) -> tuple[int, int]:
        channels = Channels()
        waiting = asyncio.ensure_future(channels.connection(address))
        for _ in range(turns):
            await asyncio.sleep(0)
        await channels.close()
        await asyncio.gather(waiting, return_exceptions=True)
        for _ in range(10):
            await asyncio.sleep(0)
        return len(channels._peers.connections), len(channels._open)

    async def run() -> None:
        server = Server({})
        address = f"127.0.0.1:{await server.listen('127.0.0.1', 0)}"
        left = [await give_up_after(turns, address) for turns in range(1, 20)]
        await server.close()
        assert left == [(0, 0)] * 19

    with asyncio.Runner(loop_factory=loop) as runner:
        runner.run(run())


# on loopback


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


async def test_who_waits_for_a_connection_when_its_client_is_closed_is_told() -> None:
    channels = Channels()
    waiting = asyncio.create_task(channels.connection("127.0.0.1:1"))
    await asyncio.sleep(0)
    await channels.close()
    with pytest.raises(ConnectionClosed, match="the client was closed"):
        await waiting


async def test_an_address_where_nobody_listens_is_named() -> None:
    channels = Channels()

    with pytest.raises(ConnectionClosed) as refused:
        await channels.call("127.0.0.1:1", Command(ECHO), 5000)
    assert str(refused.value) == "cannot connect to 127.0.0.1:1: Connection refused"
    await channels.close()


async def closing_server(is_reset: bool = False) -> asyncio.Server:
    """Closes each connection when it has read something; with `is_reset` as the end of a process does
    that has not read everything.
    """

    async def close(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        if is_reset:
            linger = struct.pack("ii", 1, 0)
            writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
        writer.close()

    return await asyncio.start_server(close, "127.0.0.1", 0)


def port_of(server: asyncio.Server) -> int:
    port: int = server.sockets[0].getsockname()[1]
    return port


async def test_a_server_that_never_answers_and_closes_may_take_tls_only() -> None:
    server = await closing_server()
    address = f"127.0.0.1:{port_of(server)}"
    with pytest.raises(ConnectionClosed) as closed:
        await Channels().call(address, Command(ECHO), 5000)
    assert str(closed.value) == (
        f"{address} closed the connection before it answered anything: "
        "it may take TLS only (give tls, or useTLS)"
    )
    server.close()


async def test_a_reset_connection_is_no_matter_of_tls() -> None:
    server = await closing_server(is_reset=True)
    address = f"127.0.0.1:{port_of(server)}"
    with pytest.raises(ConnectionClosed) as closed:
        await Channels().call(address, Command(ECHO), 5000)
    assert str(closed.value) == f"{address} closed the connection before it answered anything"
    server.close()


async def test_a_server_that_answered_earlier_takes_no_tls(both: Both) -> None:
    """It stops: the listening socket still accepts, and nothing is answered any more."""
    channels = Channels()
    address = f"127.0.0.1:{both.port}"
    await channels.call(address, Command(ECHO), 5000)

    for _ in range(2):
        with pytest.raises(ConnectionClosed) as closed:
            await channels.call(address, Command(BREAK), 5000)
        assert str(closed.value) == f"{address} closed the connection"
    await channels.close()


async def test_a_server_that_closes_before_it_is_asked_is_no_matter_of_tls(both: Both) -> None:
    channels = Channels()
    address = f"127.0.0.1:{both.port}"
    connection = await channels.connection(address)
    while not both.server.connections:
        await asyncio.sleep(0)
    for accepted in both.server.connections:
        accepted.abort()
    while connection.is_open:
        await asyncio.sleep(0)

    with pytest.raises(ConnectionClosed) as closed:
        await connection.calls.call(Command(ECHO), 5000)
    assert str(closed.value) == f"{address} closed the connection before it answered anything"
    await channels.close()


@pytest.mark.parametrize(
    ("address", "parts"),
    [("a:1", ("a", 1)), (" 10.0.0.1:65535 ", ("10.0.0.1", 65535)), ("[::1]:9876", ("::1", 9876))],
)
def test_an_address_is_divided_at_its_last_colon(address: str, parts: tuple[str, int]) -> None:
    assert split_address(address) == parts


@pytest.mark.parametrize(
    "address", ["", "a", "a:", ":1", "a:b", "a:0", "a:65536", "a:-1", "http://a:1", "a b:1"]
)
def test_another_text_is_no_address(address: str) -> None:
    with pytest.raises(ValueError, match="is not host:port"):
        split_address(address)
