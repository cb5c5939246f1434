"""A registration of thousands of topics, or the end of a broker that has them, lets others be
answered in between.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Final

import pytest

from roquet.common.steps import PART, finished
from roquet.protocol.bodies import compressed_registration
from roquet.protocol.bodies.sliced import encode_registration
from roquet.protocol.bodies.tables import DataVersion, Registration, TopicConfig, TopicTable
from roquet.protocol.headers.route import RouteHeader
from roquet.protocol.headers.routing import RegisterBrokerHeader
from roquet.protocol.json.dialect import dump_bytes, load
from roquet.protocol.remoting.codes import RequestCode, ResponseCode
from roquet.protocol.remoting.command import Command
from roquet.transport.channels import Channels
from tests.simulation.nodes import NAME_SERVER_PORT, NameServerNode
from tests.simulation.simulation import Simulation

ADDRESS: Final = "10.0.0.2"
SERVER: Final = f"{ADDRESS}:{NAME_SERVER_PORT}"
COUNT: Final = 60_000
TABLE: Final = TopicTable(
    {f"topic-{at}": TopicConfig(f"topic-{at}", 4, 4) for at in range(COUNT)}, DataVersion(1, 1)
)
LAST: Final = f"topic-{COUNT - 1}"
BODY: Final = finished(encode_registration(TABLE))


@pytest.fixture
def sim() -> Iterator[Simulation]:
    with Simulation(1) as sim:
        node = NameServerNode(sim.host(ADDRESS))
        node.start()
        sim.run_until(lambda: node.is_serving, 10)
        yield sim


class Peer:
    def __init__(self, sim: Simulation, host: str) -> None:
        self.host = sim.host(host)
        self.host.boot()
        self.channels = Channels()

    async def ask(self, code: RequestCode, body: bytes = b"", /, **fields: str) -> Command:
        return await self.channels.call(SERVER, Command(code, dict(fields), body), 60_000)

    async def register(self) -> Command:
        header = RegisterBrokerHeader("a", "10.0.0.9:1", "c", "10.0.0.9:2", 0, False, 0)
        return await self.ask(RequestCode.REGISTER_BROKER, BODY, **header.write())

    async def route(self, topic: str) -> int:
        return (
            await self.ask(RequestCode.GET_ROUTEINFO_BY_TOPIC, **RouteHeader(topic).write())
        ).code


def test_a_compressed_registration_is_read_in_short_steps() -> None:
    body = finished(compressed_registration.written(Registration(TABLE)))
    assert sum(1 for _ in compressed_registration.written(Registration(TABLE))) == COUNT // PART
    assert sum(1 for _ in compressed_registration.read(body)) > COUNT // PART


def test_others_are_answered_while_topics_are_taken(sim: Simulation) -> None:
    broker, client = Peer(sim, "10.0.0.9"), Peer(sim, "10.0.0.8")

    async def asked_meanwhile() -> list[int]:
        registering = asyncio.create_task(broker.register())
        codes: list[int] = []
        while not registering.done():
            codes.append(await client.route(LAST))
        assert registering.result().code == ResponseCode.SUCCESS
        return codes

    codes = broker.host.call(asked_meanwhile)
    assert codes.count(ResponseCode.TOPIC_NOT_EXIST) >= 2
    assert client.host.call(lambda: client.route(LAST)) == ResponseCode.SUCCESS


def test_a_version_is_told_once_all_topics_are_there(sim: Simulation) -> None:
    broker, client = Peer(sim, "10.0.0.9"), Peer(sim, "10.0.0.8")
    version = dump_bytes(TABLE.version.to_json())
    fields = {"brokerName": "a", "brokerAddr": "10.0.0.9:1", "clusterName": "c", "brokerId": "0"}

    async def versions() -> list[tuple[bool, bool]]:
        """Whether the name server says that it has these topics, and then whether it has."""
        registering = asyncio.create_task(broker.register())
        seen: list[tuple[bool, bool]] = []
        while not registering.done():
            answer = await client.ask(RequestCode.QUERY_DATA_VERSION, version, **fields)
            said = answer.fields["changed"] == "false"
            seen.append((said, await client.route(LAST) == ResponseCode.SUCCESS))
        return seen

    seen = broker.host.call(versions)
    assert (False, False) in seen
    assert (True, False) not in seen


def test_the_topics_of_a_broker_that_went_are_gone_at_once_and_come_again_with_it(
    sim: Simulation,
) -> None:
    broker, client = Peer(sim, "10.0.0.9"), Peer(sim, "10.0.0.8")

    async def come_and_go() -> list[int]:
        await broker.register()
        await broker.channels.close()
        codes = []
        while (code := await client.route(LAST)) == ResponseCode.SUCCESS:
            pass
        codes.append(code)
        broker.channels = Channels()
        await broker.register()
        codes.append(await client.route(LAST))
        return codes

    assert broker.host.call(come_and_go) == [ResponseCode.TOPIC_NOT_EXIST, ResponseCode.SUCCESS]
    sim.run_for(1)
    answer = client.host.call(lambda: client.ask(RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER))
    assert load(answer.body)["topicList"] == [*TABLE.topics]
