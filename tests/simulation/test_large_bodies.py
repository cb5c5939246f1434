"""Messages that become far larger when they are decompressed: no consumer takes more than it
allows, nor stops.
"""

from __future__ import annotations

import random
import zlib
from typing import Final

import pytest

from roquet.client.consumer import Consumer
from roquet.protocol.records.message import COMPRESSED
from roquet.protocol.remoting.codes import RequestCode
from roquet.protocol.remoting.command import Command
from roquet.transport.channels import Channels
from tests.simulation.cluster import Cluster
from tests.simulation.nodes import NAME_SERVER_PORT
from tests.simulation.simulation import Host

TOPIC: Final = "Compressed"
ALLOWED: Final = 50_000
SIZES: Final = (10, 1_000, ALLOWED, ALLOWED + 1, 300_000, 3_000_000)
MESSAGES: Final = 40
WITHIN_S: Final = 120.0


class Reader:
    """Invariant: `received` are the sizes of the bodies that the application got."""

    def __init__(self, host: Host, server: str) -> None:
        self.received: list[int] = []
        self._host = host
        self._server = server
        host.start(self._read)

    async def _read(self) -> None:
        runtime = self._host.runtime()
        async with Consumer(
            self._server,
            "readers",
            TOPIC,
            "earliest",
            client_id="reader",
            runtime=runtime,
            uncompressed_max=ALLOWED,
        ) as consumer:
            async for message in consumer:
                self.received.append(len(message.body))


async def send(address: str, chance: random.Random) -> list[int]:
    """The sizes of bodies that a broker has acknowledged."""
    channels, acknowledged = Channels(), []
    try:
        for _ in range(MESSAGES):
            size = chance.choice(SIZES)
            fields = {
                "producerGroup": "strangers", "topic": TOPIC, "defaultTopic": "TBW102", "defaultTopicQueueNums": "1",
                "queueId": "0", "sysFlag": str(COMPRESSED), "bornTimestamp": "1", "flag": "0", "properties": "",
                "unitMode": "false",
            }  # fmt: skip
            request = Command(RequestCode.SEND_MESSAGE, fields, zlib.compress(bytes(size)))
            if (await channels.call(address, request, 3_000)).code == 0:
                acknowledged.append(size)
    finally:
        await channels.close()
    return acknowledged


@pytest.mark.shares_histories(50, 60)
def test_a_consumer_gets_all_that_it_allows_and_nothing_larger(seed: int) -> None:
    with Cluster(seed, "async-master") as cluster:
        chance = cluster.sim.chance("bodies")
        sender = cluster.sim.host("10.0.5.1")
        sent = sender.call(lambda: send(cluster.master.address, chance))
        reader = Reader(
            cluster.sim.host("10.0.5.2"), f"{cluster.name_server.host.address}:{NAME_SERVER_PORT}"
        )
        due = sorted(size for size in sent if size <= ALLOWED)
        assert len(sent) > len(due) > 0
        cluster.sim.run_until(
            lambda: sorted(reader.received) == due or max(reader.received, default=0) > ALLOWED,
            WITHIN_S,
        )
        assert sorted(reader.received) == due
