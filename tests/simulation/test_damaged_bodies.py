"""A body that a drive changes after its message was stored: no application gets it, and it holds up
nobody.
"""

from __future__ import annotations

import random
from pathlib import Path
from typing import Final

import pytest

from roquet.client.consumer import Consumer
from roquet.client.producer import Producer
from roquet.protocol.records.message import DEAD_LETTER_PREFIX, Message
from tests.simulation.cluster import Cluster
from tests.simulation.nodes import NAME_SERVER_PORT, STORE
from tests.simulation.simulation import Host

MASTER, TOPIC, GROUP = "async-master", "Damaged", "readers"
MESSAGES: Final = 20
WITHIN_S: Final = 120.0
RETRIES_S: Final = 60.0
"""A retry would come after 10 s and after 30 s more."""


class Reader:
    """Invariant: `received` are the bodies that the application got."""

    def __init__(self, host: Host, server: str) -> None:
        self.received: list[bytes] = []
        self._host = host
        self._server = server
        host.start(self._read)

    async def _read(self) -> None:
        runtime = self._host.runtime()
        async with Consumer(
            self._server, GROUP, TOPIC, "earliest", client_id="reader", runtime=runtime
        ) as consumer:
            async for message in consumer:
                self.received.append(message.body)


async def send(server: str, host: Host) -> list[bytes]:
    bodies = [b"message %02d" % number for number in range(MESSAGES)]
    async with Producer(server, "senders", client_id="sender", runtime=host.runtime()) as producer:
        for body in bodies:
            await producer.send(Message(TOPIC, body))
    return bodies


def damage(cluster: Cluster, body: bytes, chance: random.Random) -> None:
    """Another bit in one byte of a stored body, as a drive may give it back."""
    drive, log = cluster.brokers[MASTER].host.drive, cluster.broker(MASTER).store.log
    (place,) = (
        at + bytes(data).index(body) for at, data in log.walk(log.start) if body in bytes(data)
    )
    start = place - place % log.file_size
    file = drive.names.files[Path(STORE, "commitlog", f"{start:020d}")]
    file.cached[place - start + chance.randrange(len(body))] ^= 1 << chance.randrange(8)


@pytest.mark.shares_histories(20, 60)
def test_an_application_gets_no_body_that_a_drive_has_changed(seed: int) -> None:
    with Cluster(seed, MASTER) as cluster:
        chance = cluster.sim.chance("damage")
        server = f"{cluster.name_server.host.address}:{NAME_SERVER_PORT}"
        sender = cluster.sim.host("10.0.5.1")
        sent = sender.call(lambda: send(server, sender))
        damaged = chance.sample(sent, 2)
        for body in damaged:
            damage(cluster, body, chance)
        reader = Reader(cluster.sim.host("10.0.5.2"), server)
        due = sorted(set(sent) - set(damaged))
        store = cluster.broker(MASTER).store
        dead = store.queue(DEAD_LETTER_PREFIX + GROUP, 0)
        cluster.sim.run_until(
            lambda: len(reader.received) >= len(due) and dead.max_offset == 2, WITHIN_S
        )
        cluster.run_for(RETRIES_S)
        assert sorted(reader.received) == due
        assert dead.max_offset == 2
