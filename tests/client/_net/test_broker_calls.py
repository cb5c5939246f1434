"""The processes of a broker are asked one after the other until one answers."""

from __future__ import annotations

import pytest

from roquet.client._net.broker_calls import AVOID_S, BrokerCalls
from roquet.client._net.name_servers import NameServers
from roquet.client._net.route_table import RouteTable
from roquet.client._net.routes import BrokerAddress
from roquet.client._net.tasks import Tasks
from roquet.common.runtime import Runtime
from roquet.errors import CallTimeout, ConnectionClosed, ResponseError
from roquet.protocol.bodies.tables import BrokerData, QueueData, Route
from roquet.protocol.json.dialect import dump_ascii
from roquet.protocol.records.message import MessageQueue
from roquet.protocol.remoting.command import Command

QUEUE = MessageQueue("T", "broker-a", 0)


class Processes:
    """A name server that lists `addresses` of one broker, and these processes.

    `failures` has what a call to an address raises; `asked` the addresses in the order of calls.
    """

    def __init__(self, addresses: dict[int, str]) -> None:
        self.addresses = addresses
        self.failures: dict[str, Exception] = {}
        self.asked: list[str] = []
        self._tasks = Tasks()
        names = NameServers(["names:1"], self._route, Runtime().random)
        routes = RouteTable(names, self._tasks)
        self.calls = BrokerCalls(self._call, self._call_all, routes)

    async def _route(self, address: str, request: Command, timeout_ms: int) -> Command:
        broker = BrokerData("C", "broker-a", dict(self.addresses))
        route = Route((broker,), (QueueData("broker-a", 1, 1, 6),))
        return request.answer(0, body=dump_ascii(route.to_json()))

    async def _call(self, address: str, request: Command, timeout_ms: int) -> Command:
        self.asked.append(address)
        if address in self.failures:
            raise self.failures[address]
        return request.answer(0, address)

    async def _call_all(self, address: str, requests: object, timeout_ms: int) -> list[Command]:
        return [await self._call(address, Command(1), timeout_ms)]

    async def ask(self) -> BrokerAddress:
        at, response = await self.calls.call(QUEUE, Command(1), 1000)
        assert response.remark == at.address
        return at

    async def close(self) -> None:
        await self._tasks.close()


async def test_a_process_that_failed_is_asked_last_for_a_while() -> None:
    processes = Processes({0: "master:1", 1: "slave:1"})
    processes.failures["master:1"] = ConnectionClosed("down")

    assert await processes.ask() == BrokerAddress(1, "slave:1")
    del processes.failures["master:1"]
    assert await processes.ask() == BrokerAddress(1, "slave:1")
    assert processes.asked == ["master:1", "slave:1", "slave:1"]
    assert AVOID_S > 1, "the second call came before the time was over"
    await processes.close()


async def test_when_all_fail_the_new_ones_of_a_refreshed_route_are_asked() -> None:
    processes = Processes({0: "master:1"})
    await processes.ask()
    processes.failures["master:1"] = CallTimeout("silent")
    processes.addresses[0] = "master:2"

    assert await processes.ask() == BrokerAddress(0, "master:2")
    assert processes.asked == ["master:1", "master:1", "master:2"]
    await processes.close()


async def test_the_last_failure_is_raised() -> None:
    processes = Processes({0: "master:1", 1: "slave:1"})
    processes.failures["master:1"] = ConnectionClosed("down")
    processes.failures["slave:1"] = CallTimeout("silent")

    with pytest.raises(CallTimeout, match="silent"):
        await processes.ask()
    assert processes.asked == ["master:1", "slave:1"]
    await processes.close()


async def test_a_refusal_is_raised_at_once() -> None:
    processes = Processes({0: "master:1", 1: "slave:1"})
    processes.failures["master:1"] = ResponseError(1, "no", "master:1")

    with pytest.raises(ResponseError):
        await processes.calls.call_all(QUEUE, [Command(1)], 1000)
    assert processes.asked == ["master:1"]
    await processes.close()
