"""Long work leaves the loop to others after each slice, and a connection has a bounded amount of it
under way.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from roquet.common.steps import Steps
from roquet.protocol.remoting.codes import ResponseCode
from roquet.protocol.remoting.command import RESPONSE, Command
from roquet.transport.channels import Channels
from roquet.transport.connection import Connection
from roquet.transport.server import Server
from roquet.transport.slices import AT_ONCE, STEPS_MAX, WAITING_MAX, Slices
from tests.simulation.simulation import Simulation

SERVER = "10.0.0.1"
LONG, SHORT = 1, 2


@pytest.fixture
def sim() -> Iterator[Simulation]:
    """Its clock stands still while work is done, so that steps are counted."""
    with Simulation("slices") as sim:
        yield sim


def counting(seen: list[str], name: str, steps: int) -> Steps[str]:
    for _ in range(steps):
        seen.append(name)
        yield
    return name


def test_work_that_is_done_in_one_slice_takes_one(sim: Simulation) -> None:
    host = sim.host(SERVER)
    slices, seen = Slices(), list[str]()
    host.boot()
    assert host.call(lambda: slices.run(counting(seen, "a", STEPS_MAX - 1))) == "a"
    assert (slices.count, len(seen)) == (1, STEPS_MAX - 1)


def test_there_is_one_slice_in_a_turn_of_the_loop_and_works_take_turns(sim: Simulation) -> None:
    host = sim.host(SERVER)
    host.boot()
    slices, seen = Slices(), list[str]()

    async def turns() -> int:
        most, done = (
            0,
            asyncio.gather(*(slices.run(counting(seen, name, 3 * STEPS_MAX)) for name in "ab")),
        )
        while not done.done():
            before = len(seen)
            await asyncio.sleep(0)
            most = max(most, len(seen) - before)
        return most

    assert host.call(turns) == STEPS_MAX
    assert [seen[at] for at in range(0, 6 * STEPS_MAX, STEPS_MAX)] == ["a", "b"] * 3
    assert slices.count == 8


def test_an_error_of_the_work_is_the_askers_and_others_go_on(sim: Simulation) -> None:
    host = sim.host(SERVER)
    host.boot()
    slices, seen = Slices(), list[str]()

    def wrong() -> Steps[None]:
        yield
        raise ValueError("wrong")

    with pytest.raises(ValueError, match="wrong"):
        host.call(lambda: slices.run(wrong()))
    assert host.call(lambda: slices.run(counting(seen, "a", 1))) == "a"


class Served:
    """A server with one long and one short request; `done` are those that it answered, in that
    order.
    """

    def __init__(self, sim: Simulation) -> None:
        self.slices, self.done = Slices(), list[int]()
        host = sim.host(SERVER)
        host.boot()
        server = Server({LONG: self.slices.handler(self._long), SHORT: self._short})
        host.call(lambda: server.listen("0.0.0.0", 80))
        self.client = sim.host("10.0.0.9")
        self.client.boot()
        self.channels = Channels()

    def _long(self, request: Command) -> Steps[Command]:
        for _ in range(3 * STEPS_MAX):
            yield
        self.done.append(request.code)
        return request.answer(ResponseCode.SUCCESS)

    def _short(self, request: Command, connection: Connection) -> Command:
        self.done.append(request.code)
        return request.answer(ResponseCode.SUCCESS)

    def call(self, *codes: int) -> list[int]:
        """The codes of the answers to requests that come by one read."""
        return self.client.call(lambda: self.calling(self.channels, *codes))

    async def calling(self, channels: Channels, *codes: int) -> list[int]:
        connection = await channels.connection(f"{SERVER}:80")
        answers = await connection.calls.call_all([Command(code) for code in codes], 5000)
        return [answer.code for answer in answers]


def test_another_request_of_the_same_read_is_answered_before_a_long_one_that_came_first(
    sim: Simulation,
) -> None:
    served = Served(sim)
    assert served.call(LONG, SHORT, SHORT) == [0, 0, 0]
    assert served.done == [SHORT, SHORT, LONG]


def test_a_connection_with_much_long_work_under_way_is_told_that_it_is_too_much(
    sim: Simulation,
) -> None:
    served = Served(sim)
    assert (
        served.call(*[LONG] * (WAITING_MAX + 3))
        == [0] * WAITING_MAX + [ResponseCode.SYSTEM_BUSY] * 3
    )
    assert served.call(LONG) == [0]


def test_of_all_connections_a_few_long_answers_are_made_at_a_time() -> None:
    """What is made of each is kept: of 500 connections with 32 requests for megabytes it would be
    all memory.
    """
    slices, begun, most = Slices(), 0, 0

    def long(request: Command) -> Steps[Command]:
        nonlocal begun, most
        begun += 1
        most = max(most, begun)
        for _ in range(20 * STEPS_MAX):
            yield
        begun -= 1
        return request.answer(ResponseCode.SUCCESS)

    async def ask(count: int) -> int:
        """The most that were begun at a time, of two requests by each of so many connections."""
        nonlocal most
        most = 0
        server = Server({LONG: slices.handler(long)})
        port = await server.listen("127.0.0.1", 0)
        clients = [Channels() for _ in range(count)]
        connections = [await each.connection(f"127.0.0.1:{port}") for each in clients]
        twice = (
            each.calls.call_all([Command(LONG), Command(LONG)], 10_000) for each in connections
        )
        answers = await asyncio.gather(*twice)
        assert [answer.code for both in answers for answer in both] == [0] * 2 * count
        for each in clients:
            await each.close()
        await server.close()
        return most

    async def both() -> tuple[int, int]:
        return await ask(1), await ask(2 * AT_ONCE)

    assert asyncio.run(both()) == (1, AT_ONCE)


def test_a_long_answer_goes_into_its_frame_in_another_turn_than_it_is_made() -> None:
    turn, made, framed = 0, list[int](), list[int]()

    class Noted(Command):
        def encode(self) -> bytes:
            framed.append(turn)
            return super().encode()

    def long(request: Command) -> Steps[Command]:
        yield
        made.append(turn)
        return Noted(ResponseCode.SUCCESS, opaque=request.opaque, flag=RESPONSE)

    async def turns() -> None:
        nonlocal turn
        while True:
            turn += 1
            await asyncio.sleep(0)

    async def ask() -> None:
        server, channels = Server({LONG: Slices().handler(long)}), Channels()
        port = await server.listen("127.0.0.1", 0)
        counting_them = asyncio.create_task(turns())
        await channels.call(f"127.0.0.1:{port}", Command(LONG), 10_000)
        counting_them.cancel()
        await channels.close()
        await server.close()

    asyncio.run(ask())
    assert framed[0] > made[0]
