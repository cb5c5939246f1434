"""One name server is asked as long as it answers, then the next."""

from __future__ import annotations

import random

import pytest

from roquet.client._net.name_servers import NameServers
from roquet.errors import CallTimeout, ConnectionClosed
from roquet.protocol.remoting.command import Command

ADDRESSES = ("a:1", "b:1", "c:1")


class Scripted:
    """Name servers, of which those in `down` do not answer. `asked` are the calls in order."""

    def __init__(self) -> None:
        self.down: dict[str, Exception] = {}
        self.asked: list[str] = []
        self.servers = NameServers(ADDRESSES, self._call, random.Random(1))

    async def _call(self, address: str, request: Command, timeout_ms: int) -> Command:
        self.asked.append(address)
        if address in self.down:
            raise self.down[address]
        return request.answer(0, address)

    async def ask(self) -> str | None:
        return (await self.servers.ask(Command(1))).remark


async def test_name_servers_that_take_their_place_are_asked() -> None:
    scripted = Scripted()
    await scripted.ask()
    known = scripted.servers.addresses

    assert scripted.servers.replace(["d:1", "e:1", "d:1"]) is True
    assert scripted.servers.replace(["e:1", "d:1"]) is False
    assert sorted(known) == ["d:1", "e:1"]
    assert await scripted.ask() in known


async def test_name_servers_may_change_while_one_is_asked() -> None:
    scripted = Scripted()

    async def ask(address: str) -> str:
        if address not in ("d:1", "e:1"):
            scripted.servers.replace(["d:1"])
            raise CallTimeout("silent")
        return address

    assert await scripted.servers.first(ask) == "d:1"


async def test_the_same_one_is_asked_until_it_does_not_answer() -> None:
    scripted = Scripted()
    first = await scripted.ask()
    assert [await scripted.ask() for _ in range(3)] == [first] * 3

    assert first is not None
    scripted.down[first] = CallTimeout("silent")
    second = await scripted.ask()
    assert second != first
    assert await scripted.ask() == second
    assert scripted.asked == [first] * 5 + [second] * 2


async def test_if_none_answers_each_was_asked_once_and_all_are_named() -> None:
    scripted = Scripted()
    scripted.down = {address: ConnectionClosed(address) for address in ADDRESSES}

    with pytest.raises(ConnectionClosed) as raised:
        await scripted.ask()
    assert sorted(scripted.asked) == [*ADDRESSES]
    (note,) = raised.value.__notes__
    assert all(address in note for address in ADDRESSES)
