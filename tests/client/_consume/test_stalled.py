"""A member that is stuck holds no more and more messages, however long others send."""

from __future__ import annotations

import asyncio
import gc
from typing import Any, Final

import pytest

from roquet.client._consume.prefetch import Delivery
from roquet.client._consume.pull_flow import PrefetchLimits
from roquet.client.received import ReceivedMessage
from roquet.protocol.records.message import Message
from tests.client.cluster import FakeCluster
from tests.client.consumers import consumer
from tests.client.producers import producer
from tests.simulation.simulation import Host, Simulation

MINUTES: Final = 8
CONSUME_TIMEOUT_MS: Final = 5 * 60 * 1000
QUEUES: Final = 2
SENT_EACH_S: Final = 5
BODY: Final = bytes(100)
BATCH_SIZE: Final = 8
STUCK: Final = 3
"""So many handlers hang."""
BY_COUNT = PrefetchLimits(count_max=50)
BY_SIZE = PrefetchLimits(size_max=50 * len(BODY))
BY_TOTAL = PrefetchLimits(total_count_max=100)
BY_TOTAL_SIZE = PrefetchLimits(total_size_max=100 * len(BODY))
BY_SPAN = PrefetchLimits(span_max=50)
HELD_MAX: Final = (50 + 1 + BATCH_SIZE) * QUEUES + STUCK * QUEUES


async def hang(_: ReceivedMessage) -> None:
    await asyncio.Event().wait()


async def stuck(cluster: FakeCluster, host: Host, hangs: bool, options: dict[str, Any]) -> None:
    """A member whose handlers hang, or who never asks."""
    async with consumer(cluster, host=host, batch_size=BATCH_SIZE, **options) as c:
        if hangs:
            await c.run(hang, concurrency=STUCK)
        await asyncio.Event().wait()


async def send(cluster: FakeCluster) -> None:
    async with producer(cluster) as p:
        for _ in range(MINUTES * 60):
            await p.send_batch([Message("T", BODY) for _ in range(SENT_EACH_S)])
            await asyncio.sleep(1)


def deliveries() -> int:
    """How many messages wait for an application in this process, or are in its hands."""
    gc.collect()
    return sum(type(each) is Delivery for each in gc.get_objects())


@pytest.mark.parametrize(
    ("hangs", "options"),
    [
        (True, {"limits": BY_COUNT, "consume_timeout_ms": CONSUME_TIMEOUT_MS}),
        (True, {"limits": BY_COUNT, "ordered": True}),
        (True, {"limits": BY_SPAN, "consume_timeout_ms": None}),
        (False, {"limits": BY_SIZE}),
        (False, {"limits": BY_TOTAL}),
        (False, {"limits": BY_TOTAL_SIZE, "ordered": True}),
    ],
    ids=["count", "ordered", "span", "size", "total", "total size"],
)
def test_a_member_that_is_stuck_for_minutes_holds_no_more_and_more(
    hangs: bool, options: dict[str, Any]
) -> None:
    with Simulation("stalled", seconds_max=2 * MINUTES * 60) as sim:
        before = deliveries()
        held = []
        cluster = FakeCluster(sim)
        cluster.broker().create("T", QUEUES)
        host = sim.host("10.0.9.3")
        host.start(lambda: stuck(cluster, host, hangs, options))
        sending = cluster.client.start(lambda: send(cluster))
        while not sending.done():
            sim.run_for(60)
            held.append(deliveries() - before)
        assert len(cluster.brokers[0].log.queues["T", 0]) > MINUTES * 60
        assert min(held) >= 50
        assert max(held) <= HELD_MAX
