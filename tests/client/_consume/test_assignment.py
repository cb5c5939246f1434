"""Queues come to a member and leave it: where each begins, what is stored, when it is unlocked."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, Final

import pytest

from roquet.allocation import Averagely
from roquet.client._consume.assignment import BUSY_S_MAX, Assignment
from roquet.client._consume.context import MemberContext
from roquet.client._consume.offsets import BrokerOffsets
from roquet.client._consume.order_locks import OrderLocks
from roquet.client._consume.prefetch import OrderedPrefetchBuffer, PrefetchBuffer
from roquet.client._consume.pull_flow import PrefetchLimits
from roquet.client._net.session import Session
from roquet.client.config import ClientConfig
from roquet.protocol.bodies.tables import Subscription
from roquet.protocol.records.message import MessageQueue
from roquet.protocol.remoting.codes import RequestCode, ResponseCode
from tests.client.cluster import CLIENT, NAME_SERVER, SILENCE, FakeBroker, FakeCluster
from tests.client.consumers import (
    OTHER_CLIENT,
    bodies,
    consumer,
    fill,
    ordered,
    queue,
    reset,
    stored,
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
                assert sorted(message.queue.queue_id for message in await one.get_many()) == [
                    0,
                    0,
                    1,
                    1,
                ]
                assert sorted(message.queue.queue_id for message in await two.get_many()) == [
                    2,
                    2,
                    3,
                    3,
                ]

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


# the assignment alone

OF_T: Final = Subscription("T", "*", 0)

Work = Callable[[Assignment, MemberContext], Coroutine[Any, Any, None]]


def run(cluster: FakeCluster, work: Work, *, is_ordered: bool = False) -> None:
    """`work` with an empty assignment of the group G, whose topic T begins with its first message."""

    async def main() -> None:
        config = ClientConfig(NAME_SERVER, client_id="me", runtime=cluster.client.runtime())
        async with Session(config) as session:
            context = MemberContext(
                session,
                "G",
                {"T": OF_T},
                BrokerOffsets(session, "G"),
                OrderedPrefetchBuffer() if is_ordered else PrefetchBuffer(),
                "earliest",
                Averagely(),
                is_ordered,
                broadcast=False,
                batch_size=32,
                limits=PrefetchLimits(),
            )
            assignment = Assignment(context, OrderLocks(session, "G") if is_ordered else None)
            await work(assignment, context)
            await assignment.close()

    cluster.run(main)


def queues(*numbers: int) -> frozenset[MessageQueue]:
    return frozenset(map(queue, numbers))


async def settle_next(context: MemberContext) -> None:
    """The application takes the next message and acknowledges it."""
    delivery = await context.prefetch.next()
    assert delivery is not None
    delivery.done()
    context.prefetch.settled(delivery)


def test_only_queues_of_the_topic_come_and_go(cluster: FakeCluster, broker: FakeBroker) -> None:
    async def work(assignment: Assignment, _: MemberContext) -> None:
        of_u = frozenset({MessageQueue("U", "broker-a", 0)})
        assert await assignment.apply(of_u, Subscription("U", "*", 0))
        assert await assignment.apply(queues(0, 1), OF_T)
        assert await assignment.apply(queues(1, 2), OF_T)
        assert assignment.queues() == of_u | queues(1, 2)
        assert assignment.queues("T") == assignment.states().keys() - of_u == queues(1, 2)
        await asyncio.sleep(1)

    fill(broker, 0, "U")
    fill(broker, 0, queues=3)
    run(cluster, work)
    pulled = {
        (request.fields["topic"], request.fields["queueId"])
        for request in broker.requests[RequestCode.PULL_MESSAGE]
    }
    assert pulled >= {("U", "0"), ("T", "1"), ("T", "2")}


def test_a_queue_that_is_taken_away_is_not_pulled_and_its_offset_is_stored(
    cluster: FakeCluster, broker: FakeBroker
) -> None:
    async def work(assignment: Assignment, context: MemberContext) -> None:
        await assignment.apply(queues(0), OF_T)
        await settle_next(context)
        await assignment.apply(frozenset(), OF_T)
        assert stored(broker) == {0: 1}
        pulls = len(broker.requests[RequestCode.PULL_MESSAGE])
        broker.store("T", 0, b"later")
        await asyncio.sleep(40)
        assert len(broker.requests[RequestCode.PULL_MESSAGE]) == pulls
        assert context.prefetch.take() is None, "nor is handed over what was pulled before"

    fill(broker, 3)
    run(cluster, work)


def test_an_offset_is_not_stored_while_an_administrator_resets_it(
    cluster: FakeCluster, broker: FakeBroker
) -> None:
    async def work(assignment: Assignment, context: MemberContext) -> None:
        await assignment.apply(queues(0), OF_T)
        await settle_next(context)
        await assignment.drop(queues(0), stores=False)
        assert assignment.queues() == frozenset()

    fill(broker, 3)
    run(cluster, work)
    assert stored(broker) == {}


def test_an_offset_that_a_broker_refuses_keeps_no_other_from_being_stored(
    cluster: FakeCluster, broker: FakeBroker
) -> None:
    async def work(assignment: Assignment, context: MemberContext) -> None:
        await assignment.apply(queues(0, 1), OF_T)
        for _ in range(2):
            await settle_next(context)
        broker.script[RequestCode.UPDATE_CONSUMER_OFFSET] = [ResponseCode.SYSTEM_ERROR]
        await assignment.store_offsets()
        assert len(stored(broker)) == 1
        await assignment.store_offsets()
        assert stored(broker) == {0: 1, 1: 1}

    fill(broker, 2, queues=2)
    run(cluster, work)


def test_a_queue_whose_start_is_not_known_is_unlocked_for_the_others(
    cluster: FakeCluster, broker: FakeBroker
) -> None:
    async def work(assignment: Assignment, _: MemberContext) -> None:
        broker.script[RequestCode.QUERY_CONSUMER_OFFSET] = [ResponseCode.SYSTEM_ERROR]
        await assignment.apply(queues(0), OF_T)
        assert assignment.queues() == frozenset()
        assert broker.locks == {}
        assert await assignment.apply(queues(0), OF_T)
        assert broker.locks == {queue(0): "me"}

    fill(broker, 0)
    run(cluster, work, is_ordered=True)


def test_a_queue_is_unlocked_after_twenty_seconds_but_not_taken_back_before_it_is_idle(
    cluster: FakeCluster, broker: FakeBroker, caplog: pytest.LogCaptureFixture
) -> None:
    """The application still works on a message of it."""

    async def work(assignment: Assignment, context: MemberContext) -> None:
        await assignment.apply(queues(0), OF_T)
        delivery = await context.prefetch.next()
        assert delivery is not None
        await assignment.drop(queues(0))
        await asyncio.sleep(BUSY_S_MAX - 1)
        assert broker.locks == {queue(0): "me"}
        assert not await assignment.apply(queues(0), OF_T)
        await asyncio.sleep(2)
        assert broker.locks == {}
        assert not await assignment.apply(queues(0), OF_T)
        assert broker.locks == {}
        delivery.done()
        context.prefetch.settled(delivery)
        await asyncio.sleep(1)
        assert await assignment.apply(queues(0), OF_T)
        assert assignment.queues() == queues(0)

    fill(broker, 2)
    run(cluster, work, is_ordered=True)
    assert "queue released before its message was settled" in caplog.text


@pytest.mark.parametrize("code", [SILENCE, ResponseCode.SYSTEM_ERROR])
def test_closing_unlocks_although_no_offset_can_be_stored(
    cluster: FakeCluster, broker: FakeBroker, code: int
) -> None:
    async def work(assignment: Assignment, context: MemberContext) -> None:
        await assignment.apply(queues(0, 1), OF_T)
        await settle_next(context)
        broker.script[RequestCode.UPDATE_CONSUMER_OFFSET] = [code] * 99

    fill(broker, 4, queues=2)
    run(cluster, work, is_ordered=True)
    assert broker.locks == {}


def test_an_offset_is_stored_although_the_rebalance_is_cancelled(
    cluster: FakeCluster, broker: FakeBroker
) -> None:
    """The application leaves the group just when another member comes."""

    async def work(assignment: Assignment, context: MemberContext) -> None:
        await assignment.apply(queues(0), OF_T)
        await settle_next(context)
        rebalance = asyncio.create_task(assignment.apply(frozenset(), OF_T))
        await asyncio.sleep(0)
        rebalance.cancel()
        await asyncio.wait([rebalance])

    fill(broker, 3)
    run(cluster, work)
    assert stored(broker) == {0: 1}


def test_the_offset_of_a_message_that_is_settled_just_before_closing_is_stored(
    cluster: FakeCluster, broker: FakeBroker
) -> None:
    """Its queue was taken away while it was consumed; whether it is settled is asked each 0.1 s."""

    async def work(assignment: Assignment, context: MemberContext) -> None:
        await assignment.apply(queues(0), OF_T)
        delivery = await context.prefetch.next()
        assert delivery is not None
        await assignment.drop(queues(0))
        await asyncio.sleep(1)
        delivery.done()
        context.prefetch.settled(delivery)

    fill(broker, 3)
    run(cluster, work, is_ordered=True)
    assert (stored(broker), broker.locks) == ({0: 1}, {})
