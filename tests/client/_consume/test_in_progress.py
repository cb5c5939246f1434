"""Messages that the application holds for longer than the consume timeout are delivered again."""

from __future__ import annotations

import asyncio

import pytest

from tests.client.cluster import FakeBroker, FakeCluster
from tests.client.consumers import OTHER_CLIENT, consumer, fill, ordered, stored


def test_a_message_that_is_held_too_long_is_delivered_again_and_the_offset_goes_on(
    cluster: FakeCluster, broker: FakeBroker, caplog: pytest.LogCaptureFixture
) -> None:
    async def consume() -> None:
        async with consumer(cluster, consume_timeout_ms=60_000) as c:
            held = await c.get()
            async with c.batch() as others:
                assert len(others) == 2
            await asyncio.sleep(50)
            assert stored(broker) == {0: 0}, "not yet"
            again = await c.get(60_000)
            assert (again.body, again.reconsume_times) == (held.body, 1)
            held.ack()  # too late, without effect
            await asyncio.sleep(10)
            assert stored(broker) == {0: 3}
            again.ack()

    fill(broker, 3)
    cluster.run(consume)
    (line,) = [line for line in caplog.messages if "not settled in time" in line]
    assert line.startswith(
        "message was not settled in time, it is delivered again later: topic=T broker=broker-a "
        "queue=0 offset=0 msgId="
    )


def test_without_timeout_a_message_may_be_held_for_ever(
    cluster: FakeCluster, broker: FakeBroker
) -> None:
    async def consume() -> None:
        async with consumer(cluster, consume_timeout_ms=None) as c:
            held = await c.get()
            await asyncio.sleep(7200)
            assert await c.get_many(timeout_ms=100) == []
            held.ack()

    fill(broker, 1)
    cluster.run(consume, within_s=8000)
    assert stored(broker) == {0: 1}


def test_in_order_a_message_is_waited_for_and_logged_once(
    cluster: FakeCluster, broker: FakeBroker, caplog: pytest.LogCaptureFixture
) -> None:
    """Its handler may still be at work: a second delivery would be handled beside it."""

    async def consume() -> None:
        async with ordered(cluster, consume_timeout_ms=1000) as c:
            held = await c.get()
            await asyncio.sleep(600)
            assert await c.get_many(timeout_ms=100) == []
            held.ack()
            assert (await c.get()).body == b"1"

    fill(broker, 2)
    cluster.run(consume, within_s=1000)
    (line,) = [line for line in caplog.messages if "not settled in time" in line]
    assert "the next one of its queue waits for it: topic=T broker=broker-a queue=0 off" in line


def test_a_message_of_a_queue_that_went_to_another_member_is_forgotten(
    cluster: FakeCluster, broker: FakeBroker, caplog: pytest.LogCaptureFixture
) -> None:
    async def consume() -> None:
        async with consumer(cluster, consume_timeout_ms=60_000) as c:
            for _ in range(4):
                await c.get()
            cluster.sim.host(OTHER_CLIENT).boot()
            async with consumer(cluster, host=cluster.sim.host(OTHER_CLIENT)):
                await asyncio.sleep(40)
            await asyncio.sleep(100)

    fill(broker, 4, queues=2)
    cluster.run(consume)
    expired = [line for line in caplog.messages if "not settled in time" in line]
    assert len(expired) == 2, "those of the queue that stayed"
