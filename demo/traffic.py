"""The demo's traffic: a producer of flights, ordered per aircraft, and a consumer group."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from demo.flights import TOPIC, Flight
from roquet import Consumer, Producer, SendStatus
from roquet.client.pull_consumer import PullConsumer
from roquet.errors import RoquetError
from roquet.protocol.records.message import KEYS

LANES: Final = 64
"""Concurrent sends. One lane sends all flights of an aircraft, one after the other."""
RETRY_S: Final = 0.1
GROUP: Final = "followers"
MEMBERS: Final = 2


@dataclass
class Replay:
    """The producer, and the answers that it got.

    Invariant: a key is in `acknowledged` once a broker has said that it stored the flight; in
    `replicated` once it has said that a slave has it, too.
    """

    acknowledged: set[str] = field(default_factory=set)
    replicated: set[str] = field(default_factory=set)
    tries_failed: int = 0
    last_ms: float = 0.0
    longest_gap_ms: float = 0.0

    async def run(self, name_server: str, flights: Iterable[Flight]) -> None:
        """Send every flight until it is acknowledged, however often that fails."""
        lanes: list[list[Flight]] = [[] for _ in range(LANES)]
        for flight in flights:
            lanes[hash(flight.sharding_key) % LANES].append(flight)
        self.last_ms = _now_ms()
        async with Producer(name_server, "replay") as producer, asyncio.TaskGroup() as group:
            for lane in lanes:
                group.create_task(self._send(producer, lane))

    async def _send(self, producer: Producer, lane: list[Flight]) -> None:
        for flight in lane:
            while not await self._sent(producer, flight):
                await asyncio.sleep(RETRY_S)

    async def _sent(self, producer: Producer, flight: Flight) -> bool:
        try:
            result = await producer.send(flight.message(), sharding_key=flight.sharding_key)
        except RoquetError:
            self.tries_failed += 1
            return False
        self.acknowledged.add(flight.key)
        if result.status is SendStatus.SEND_OK:
            self.replicated.add(flight.key)
        now_ms = _now_ms()
        self.longest_gap_ms = max(self.longest_gap_ms, now_ms - self.last_ms)
        self.last_ms = now_ms
        return True


@dataclass
class Followers:
    """The consumer group, and what its members got."""

    received: Counter[str] = field(default_factory=Counter)
    last_departure: dict[str, str] = field(default_factory=dict)
    out_of_order: int = 0

    async def run(self, name_server: str) -> None:
        """Consume for ever."""
        async with asyncio.TaskGroup() as group:
            for _ in range(MEMBERS):
                group.create_task(self._follow(name_server))

    async def _follow(self, name_server: str) -> None:
        async with Consumer(name_server, GROUP, TOPIC, "earliest") as consumer:
            async for message in consumer:
                self.received.update(message.keys)

    @property
    def doubled(self) -> int:
        """How many messages came more than once, counted once for each time too many."""
        return self.received.total() - len(self.received)


async def keys_on(name_server: str, read_from: str) -> Counter[str]:
    """How often each key stands in the topic, read from the master or from the slave only."""
    keys: Counter[str] = Counter()
    async with PullConsumer(
        name_server, read_from="slave" if read_from == "slave" else "master"
    ) as consumer:
        for queue in await consumer.queues(TOPIC):
            offset, end = await consumer.min_offset(queue), await consumer.max_offset(queue)
            while offset < end:
                pulled = await consumer.pull(queue, offset)
                keys.update(message.properties[KEYS] for message in pulled.messages)
                offset = pulled.next_offset
    return keys


def _now_ms() -> float:
    return time.monotonic() * 1000
