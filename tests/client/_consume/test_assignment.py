"""Queues come to a member and leave it: where each begins, what is stored, when it is unlocked."""

from __future__ import annotations

import asyncio

from roquet.protocol.remoting.codes import RequestCode
from tests.client.cluster import CLIENT, SILENCE, FakeBroker, FakeCluster
from tests.client.consumers import (
    OTHER_CLIENT,
    bodies,
    consumer,
    fill,
    ordered,
    queue,
    reset,
    within,
)


def test_a_queue_s_new_owner_goes_on_where_the_old_one_was(
    cluster: FakeCluster, broker: FakeBroker
) -> None:
    async def consume() -> None:
        async with consumer(cluster) as one:
            await bodies(one, 8)
            await asyncio.sleep(6)
            cluster.sim.host(OTHER_CLIENT).boot()
            async with consumer(cluster, host=cluster.sim.host(OTHER_CLIENT)) as two:
                await asyncio.sleep(1)
                fill(broker, 8, queues=4)
                await asyncio.sleep(1)
                assert [message.queue.queue_id for message in await one.get_many()] == [0, 0, 1, 1]
                assert [message.queue.queue_id for message in await two.get_many()] == [2, 2, 3, 3]

    fill(broker, 8, queues=4)
    cluster.run(consume)


def test_a_queue_whose_start_cannot_be_found_is_tried_again_with_the_next_division(
    cluster: FakeCluster, broker: FakeBroker
) -> None:
    async def consume() -> list[bytes]:
        async with consumer(cluster) as c:
            return await bodies(c, 1)

    fill(broker, 1)
    broker.script[RequestCode.QUERY_CONSUMER_OFFSET] = [1] * 9
    assert cluster.run(consume) == [b"0"]


# locks


def test_a_queue_is_not_consumed_before_it_is_locked(
    cluster: FakeCluster, broker: FakeBroker
) -> None:
    async def consume() -> list[bytes]:
        async with ordered(cluster) as c:
            assert sorted(await bodies(c, 2)) == [b"1", b"3"]
            assert await within(c, 5) == []
            del broker.locks[queue(0)]
            return await bodies(c, 2)

    fill(broker, 4, queues=2)
    broker.locks[queue(0)] = "somebody"
    assert cluster.run(consume) == [b"0", b"2"]


def test_a_queue_whose_lock_is_lost_is_let_go(cluster: FakeCluster, broker: FakeBroker) -> None:
    async def consume() -> None:
        async with ordered(cluster) as c:
            broker.locks[queue(0)] = "somebody"
            await asyncio.sleep(21)
            assert queue(0) not in c.assigned()
            assert queue(1) in c.assigned()

    fill(broker, 2, queues=2)
    cluster.run(consume)


def test_a_lock_that_is_lost_before_its_queue_s_start_is_known_is_none(
    cluster: FakeCluster, broker: FakeBroker
) -> None:
    """The master restarts and gives it to another member while the slave is asked where the group
    is.
    """
    cluster.broker("10.0.1.2:10911", broker_id=1, log=broker.log)

    async def consume() -> None:
        async with ordered(cluster) as c:
            assert queue(0) not in c.assigned()
            broker.script[RequestCode.QUERY_CONSUMER_OFFSET] = [SILENCE] * 9
            del broker.locks[queue(0)]
            broker.tell_members("G")
            await asyncio.sleep(1)
            assert broker.locks[queue(0)] == f"{CLIENT}@test"
            broker.locks[queue(0)] = "somebody"
            broker.tell_members("G")
            await asyncio.sleep(15)
            assert queue(0) not in c.assigned()
            assert await within(c, 1) == []
            del broker.locks[queue(0)]
            assert await bodies(c, 1) == [b"0"]

    fill(broker, 1)
    broker.locks[queue(0)] = "somebody"
    cluster.run(consume)


def test_a_queue_changes_hands_after_its_message_is_dealt_with(
    cluster: FakeCluster, broker: FakeBroker
) -> None:
    """Two members share two queues; the one that had both works on a message of each meanwhile."""

    async def first() -> None:
        async with ordered(cluster) as c:
            working = await c.get_many(2)
            other.start(second)
            await asyncio.sleep(5)
            assert got == [], "the queue is still locked"
            for message in working:
                message.ack()
            await asyncio.sleep(10)

    async def second() -> None:
        async with ordered(cluster, host=other) as c:
            while True:
                got.extend([message.body for message in await c.get_many()])

    got: list[bytes] = []
    other = cluster.sim.host(OTHER_CLIENT)
    fill(broker, 4, queues=2)
    cluster.run(first)
    assert got in ([b"2"], [b"3"]), (
        "what was acknowledged before the lock was given back does not come again"
    )


def test_a_queue_that_is_back_waits_until_the_message_that_was_under_way_is_dealt_with(
    cluster: FakeCluster, broker: FakeBroker
) -> None:
    """Set back to its start by an administrator while a task works on its first message."""

    async def consume() -> None:
        async with ordered(cluster) as c:
            (working,) = await c.get_many(1)
            reset(broker, {queue(0): 0})
            assert await within(c, 30) == []
            assert queue(0) in broker.locks or not c.assigned() & {queue(0)}
            working.ack()
            assert await bodies(c, 2) == [b"0", b"1"]
            assert broker.locks[queue(0)]

    fill(broker, 2)
    cluster.run(consume)


def test_a_reset_holds_although_a_message_was_under_way(
    cluster: FakeCluster, broker: FakeBroker
) -> None:
    """That the message is dealt with counts for nothing: the queue goes on where the administrator
    wants it to.
    """

    async def consume() -> list[bytes]:
        async with ordered(cluster) as c:
            (working,) = await c.get_many(1)
            reset(broker, {queue(0): 0})
            await asyncio.sleep(5)
            working.ack()
            return await bodies(c, 3)

    fill(broker, 3)
    assert cluster.run(consume) == [b"0", b"1", b"2"]
