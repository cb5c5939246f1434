"""Anybody may register anything at a name server, which tells it to all clients."""

from __future__ import annotations

import asyncio
from typing import Final

import pytest

from roquet.client._net.route_table import REFRESH_PERIOD_S, _read
from roquet.client.producer import Producer
from roquet.errors import PeerError
from roquet.protocol.bodies.tables import (
    BrokerData,
    QueueData,
    Registration,
    Route,
    TopicConfig,
    TopicTable,
)
from roquet.protocol.json.dialect import dump_bytes, dump_dialect
from roquet.protocol.remoting.codes import RequestCode
from roquet.protocol.remoting.command import Command
from roquet.transport.channels import Channels
from tests.client.served import NAME_SERVER, QUEUES, Served
from tests.simulation.simulation import Simulation

HUGE: Final = 2**31 - 1


async def register(stranger: Channels, topic: str, queues: int, name: str) -> None:
    body = dump_bytes(
        Registration(TopicTable({topic: TopicConfig(topic, queues, queues)})).to_json()
    )
    fields = {
        "brokerName": name,
        "brokerAddr": f"{name}:1",
        "clusterName": "c",
        "brokerId": "0",
        "haServerAddr": "x:1",
    }
    answer = await stranger.call(
        NAME_SERVER, Command(RequestCode.REGISTER_BROKER, fields, body), 3000
    )
    assert answer.code == 0


def test_a_topic_with_billions_of_queues_is_refused_and_routes_of_others_are_renewed(
    sim: Simulation,
) -> None:
    served = Served(sim)

    async def send() -> tuple[int, int]:
        stranger = Channels()
        await register(stranger, "bad", HUGE, "bad")
        async with Producer(NAME_SERVER, "P", runtime=served.client.runtime()) as producer:
            for topic in "T1", "T2":
                await producer.send(topic, b"body")
            await asyncio.sleep(REFRESH_PERIOD_S)
            await register(stranger, "T1", HUGE, "huge")
            await register(stranger, "T2", 3, "more")
            await asyncio.sleep(2 * REFRESH_PERIOD_S)
            await producer.send("T1", b"to the queues that are known")
            with pytest.raises(PeerError, match=f"{HUGE} queues"):
                await producer.send("bad", b"body")
            counts = len(await producer.queues("T1")), len(await producer.queues("T2"))
        await stranger.close()
        return counts

    assert served.run(send) == (QUEUES, QUEUES + 3)


def test_the_loop_turns_while_a_large_route_is_read() -> None:
    names = [f"broker-{at}" for at in range(3000)]
    brokers = tuple(BrokerData("c", name, {0: f"{name}:1", 1: f"{name}:2"}) for name in names)
    large = Route(brokers, tuple(QueueData(name, 4, 4, 6) for name in names))

    async def turns() -> int:
        reading, turns = asyncio.create_task(_read(dump_dialect(large.to_json()))), 0
        while not reading.done():
            await asyncio.sleep(0)
            turns += 1
        assert await reading == large
        return turns

    assert asyncio.run(turns()) > 5


def test_a_route_in_a_form_that_no_name_server_writes_is_refused_before_it_takes_seconds() -> None:
    with pytest.raises(ValueError, match="too many values"):
        asyncio.run(_read(b"{'brokerDatas':[" + b"{}," * 100_000 + b"{}]}"))
