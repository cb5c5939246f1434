"""Consumers of the group G, and what they are given."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from roquet.client.consumer import Consumer
from roquet.client.received import ReceivedMessage
from roquet.protocol.bodies.tables import queue_to_json
from roquet.protocol.json.dialect import dump_bytes
from roquet.protocol.records.message import MessageQueue
from roquet.protocol.remoting.codes import RequestCode
from roquet.protocol.remoting.command import Command
from tests.client.cluster import NAME_SERVER, FakeBroker, FakeCluster
from tests.simulation.simulation import Host

OTHER_CLIENT = "10.0.9.2"


def consumer(
    cluster: FakeCluster, topics: Any = "T", host: Host | None = None, **options: Any
) -> Consumer:
    at = host or cluster.client
    options.setdefault("start", "earliest")
    return Consumer(
        NAME_SERVER, "G", topics, client_id=f"{at.address}@test", runtime=at.runtime(), **options
    )


def ordered(cluster: FakeCluster, **options: Any) -> Consumer:
    return consumer(cluster, ordered=True, **options)


def queue(number: int) -> MessageQueue:
    return MessageQueue("T", "broker-a", number)


def fill(
    broker: FakeBroker, count: int, topic: str = "T", queues: int = 1, properties: str = ""
) -> None:
    """Messages b"0", b"1", ... in turn over the queues."""
    broker.create(topic, queues)
    for number in range(count):
        broker.store(topic, number % queues, b"%d" % number, properties)


async def bodies(c: Consumer, count: int) -> list[bytes]:
    """Of the next so many messages, each acknowledged."""
    found: list[bytes] = []
    async for message in c:
        async with message:
            found.append(message.body)
        if len(found) == count:
            return found
    return found


async def within(c: Consumer, seconds: float) -> list[ReceivedMessage]:
    """The messages that come within `seconds`. None is acknowledged, nor are earlier ones."""
    found: list[ReceivedMessage] = []
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            while True:
                found.append(await anext(aiter(c)))
    return found


def reset(broker: FakeBroker, offsets: Mapping[MessageQueue, int]) -> None:
    """An administrator resets offsets of the group: the broker tells its members."""
    table = [{**queue_to_json(queue), "offset": offset} for queue, offset in offsets.items()]
    for connection in broker.members["G"].values():
        request = Command(RequestCode.RESET_CONSUMER_CLIENT_OFFSET, {"topic": "T", "group": "G"})
        request.body = dump_bytes({"offsetTable": table})
        connection.calls.notify(request)


def stored(broker: FakeBroker, topic: str = "T") -> dict[int, int]:
    """The offsets of the group that the broker has, by queue."""
    return {
        queue_id: at
        for (group, of, queue_id), at in broker.offsets.items()
        if (group, of) == ("G", topic)
    }
