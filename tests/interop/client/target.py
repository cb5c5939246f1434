"""What a scenario of the acceptance suite has at hand: a name server and a broker, and clients of
ours that reach them.
"""

from __future__ import annotations

import asyncio
import re
import uuid
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final, Unpack

import roquet
from roquet import Client, Consumer, Producer, PullConsumer, ReceivedMessage
from roquet.client._consume.offsets import Start
from roquet.client._consume.topic_patterns import Topics
from roquet.client.config import ClientOptions
from roquet.client.consumer import ConsumerOptions
from roquet.client.producer import ProducerOptions
from tests.interop import wire
from tests.interop.ground import Ground
from tests.interop.roquet_cluster import create_topic
from tests.interop.taken import CONSUME_SECONDS, all_messages, until

TIMEOUT_MS: Final = 30_000
"""A broker that has just started on a busy machine is slow."""
QUIET_MS: Final = 1000
"""As long as something is waited for that is expected not to come."""
RETRY_SECONDS: Final = 1.0
"""The delay of a first retry (`ground.QUICK`)."""
WRITE, READ = 2, 4
READERS: Final = "R"
"""The group of readers that need none of their own."""
UPDATE_GROUP: Final = 200


class Target:
    """A cluster that is to be the same to our client, whoever wrote it."""

    def __init__(self, ground: Ground) -> None:
        self._ground = ground

    @property
    def namesrv(self) -> str:
        return self._ground.namesrv

    @property
    def broker(self) -> str:
        """The broker's address."""
        return self._ground.broker.address

    @property
    def is_apache(self) -> bool:
        """Ask this only where a difference is documented, and name the place."""
        return self._ground.is_apache

    def make_topic(self, name: str, queues: int = 1, perm: int = READ | WRITE) -> str:
        """Returns when the name server has a route for it."""
        create_topic(self._ground.broker, name, queues, perm)
        return name

    def make_group(self, name: str, **settings: object) -> str:
        """A group with other settings than one that comes to be by itself."""
        config = {"groupName": name, "consumeEnable": True, "consumeFromMinEnable": True}
        config |= {"consumeBroadcastEnable": True, "retryQueueNums": 1, "retryMaxTimes": 16}
        config |= {"brokerId": 0, "whichBrokerWhenConsumeSlowly": 1}
        config |= {"notifyConsumerIdsChangedEnable": True, **settings}
        assert self.ask(UPDATE_GROUP, body=wire.json_body(config)).code == 0
        return name

    def ask(
        self, code: int, fields: Mapping[str, object] | None = None, body: bytes = b""
    ) -> wire.Answer:
        """One request to the broker over a connection of its own."""
        texts = {name: str(value) for name, value in (fields or {}).items()}
        return wire.ask(self.broker, code, texts, body)

    # clients, not started yet

    def producer(self, group: str = "P", **options: Unpack[ProducerOptions]) -> Producer:
        return Producer(self.namesrv, group, **({"timeout_ms": TIMEOUT_MS} | options))

    def consumer(
        self,
        group: str,
        topics: Topics,
        start: Start = "earliest",
        **options: Unpack[ConsumerOptions],
    ) -> Consumer:
        """A member that begins at the earliest messages unless it is told otherwise."""
        return Consumer(self.namesrv, group, topics, start, **options)

    def broadcasting(
        self,
        group: str,
        topics: Topics,
        folder: Path,
        start: Start = "earliest",
        **options: Unpack[ConsumerOptions],
    ) -> Consumer:
        """A broadcasting member; `client_id` tells it from others."""
        own: ConsumerOptions = {
            "broadcast": True,
            "offsets_folder": folder,
            "client_id": f"127.0.0.1@{group}",
        }
        return self.consumer(group, topics, start, **(own | options))

    def reader(self, group: str = READERS) -> PullConsumer:
        return PullConsumer(self.namesrv, group=group, timeout_ms=TIMEOUT_MS)

    def connect(self, **options: Unpack[ClientOptions]) -> Client:
        return roquet.connect(self.namesrv, **options)

    # what the cluster has

    async def stored(self, topic: str, count: int) -> list[ReceivedMessage]:
        """The messages of a topic as soon as they are so many, sorted by queue and offset.

        A broker puts what it has stored into queues a little later.
        """
        async with self.reader() as reader, asyncio.timeout(CONSUME_SECONDS):
            while True:
                found = [message async for message in all_messages(reader, topic)]
                if len(found) >= count:
                    return found
                await asyncio.sleep(0.02)

    async def routed(self, topic: str) -> None:
        """Wait until the name server knows a topic that the broker has made by itself."""
        await until(lambda: wire.has_topic(self.namesrv, topic))

    async def dead_letter(self, group: str) -> ReceivedMessage:
        """The only dead letter of a group, when it is there."""
        await self.routed(f"%DLQ%{group}")
        (dead,) = await self.stored(f"%DLQ%{group}", 1)
        return dead

    async def committed(self, group: str, topic: str, offset: int) -> None:
        """Wait until that is the group's offset in a topic of one queue."""
        async with self.reader() as reader, asyncio.timeout(CONSUME_SECONDS):
            (queue,) = await reader.queues(topic)
            while await reader.committed(group, queue) != offset:
                await asyncio.sleep(0.05)


def bodies(messages: Iterable[ReceivedMessage]) -> list[bytes]:
    return [message.body for message in messages]


def numbers(count: int, start: int = 0) -> list[bytes]:
    """The bodies 0, 1, 2, ..."""
    return [b"%d" % number for number in range(start, start + count)]


@asynccontextmanager
async def consuming(consumer: Consumer, into: list[ReceivedMessage]) -> AsyncIterator[None]:
    """A task that acknowledges what comes, for the time of a block."""

    async def take_all() -> None:
        async for message in consumer:
            into.append(message)
            message.ack()

    task = asyncio.create_task(take_all())
    try:
        yield
    finally:
        task.cancel()
        await asyncio.wait([task])


def unique(title: str) -> str:
    """A name for a topic or a group that tells whose it is."""
    readable = re.sub(r"[^A-Za-z0-9]+", "-", title.removeprefix("test_"))[:70].strip("-")
    return f"{readable}-{uuid.uuid4().hex[:8]}"
