"""Connections by address, on a simulated network and on loopback."""

from __future__ import annotations

import asyncio
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


@pytest.mark.parametrize("address", ["no address", "host:0", "a..b:80", f"{'x' * 64}:80"])
async def test_what_cannot_be_an_address_is_not_reachable_as_others_are_not(address: str) -> None:
    with pytest.raises(ConnectionClosed, match=f"cannot connect to {address}: "):
        await Channels().connection(address)


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
