"""Anybody may register anything at a name server, which tells it to all clients."""

from __future__ import annotations

import asyncio
from typing import Final

import pytest

from roquet.client.config import POLL_NAME_SERVER_MS
from roquet.client.producer import Producer
from roquet.errors import PeerError
from roquet.protocol.bodies.tables import Registration, TopicConfig, TopicTable
from roquet.protocol.json.dialect import dump_bytes
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
            await asyncio.sleep(POLL_NAME_SERVER_MS / 1000)
            await register(stranger, "T1", HUGE, "huge")
            await register(stranger, "T2", 3, "more")
            await asyncio.sleep(2 * POLL_NAME_SERVER_MS / 1000)
            await producer.send("T1", b"to the queues that are known")
            with pytest.raises(PeerError, match=f"{HUGE} queues"):
                await producer.send("bad", b"body")
            counts = len(await producer.queues("T1")), len(await producer.queues("T2"))
        await stranger.close()
        return counts

    assert served.run(send) == (QUEUES, QUEUES + 3)
