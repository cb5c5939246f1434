"""Connections by address, on a simulated network; tests/integration has the same on a real one."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest
import uvloop

from roquet.errors import ConnectionClosed
from roquet.transport.channels import CONNECT_TIMEOUT_S, Channels
from roquet.transport.server import Server
from tests.simulation.simulation import Simulation

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
