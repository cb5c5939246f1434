"""A consumer that takes the messages of each queue in their order.

See docs/protocol/consuming.md#orderly-consumption.
"""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from roquet.client.consumer import Consumer
from roquet.protocol.bodies.tables import QueueLocks, parse
from roquet.protocol.records.message import COMPRESSED, MessageQueue
from roquet.protocol.remoting.codes import RequestCode
from tests.client.cluster import CLIENT, SILENCE, FakeBroker, FakeCluster
from tests.client.consumers import OTHER_CLIENT, bodies, consumer, fill, reset, stored, within


def ordered(cluster: FakeCluster, **options: Any) -> Consumer:
    return consumer(cluster, ordered=True, **options)


OF_RETRIES = MessageQueue("%RETRY%G", "broker-a", 0)


def requested(broker: FakeBroker, code: RequestCode) -> list[set[MessageQueue]]:
    """The queues that each request to lock or unlock was about."""
    return [
        set(parse(request.body, QueueLocks.from_json).queues) for request in broker.requests[code]
    ]


def queue(number: int) -> MessageQueue:
    return MessageQueue("T", "broker-a", number)


def test_the_next_message_of_a_queue_comes_when_the_one_before_is_dealt_with(
    cluster: FakeCluster, broker: FakeBroker
) -> None:
    async def consume() -> None:
        async with ordered(cluster) as c:
            first, second = await c.get_many(9)
            assert {first.body, second.body} == {b"0", b"1"}
            first.ack()
            (third,) = await within(c, 1)
            assert int(third.body) == int(first.body) + 2
            assert await within(c, 3) == []

    fill(broker, 6, queues=2)
    cluster.run(consume)


def test_however_many_work_a_queue_keeps_its_order(
    cluster: FakeCluster, broker: FakeBroker
) -> None:
    async def consume() -> list[int]:
        done: list[int] = []

        async def work(c: Consumer, pause_s: float) -> None:
            async for message in c:
                await asyncio.sleep(pause_s)
                done.append(int(message.body))
                message.ack()

        async with ordered(cluster) as c:
            tasks = [asyncio.create_task(work(c, pause_s)) for pause_s in (0.3, 0.01, 0.1)]
            await asyncio.sleep(20)
        await asyncio.gather(*tasks)
        return done

    fill(broker, 60, queues=3)
    done = cluster.run(consume)
    for number in range(3):
        assert [body for body in done if body % 3 == number] == list(range(number, 60, 3))


def test_a_message_that_failed_comes_again_after_a_second_before_those_behind_it(
    cluster: FakeCluster, broker: FakeBroker
) -> None:
    async def consume() -> list[tuple[bytes, int, int]]:
        found = []
        async with ordered(cluster) as c:
            async for message in c:
                found.append(
                    (message.body, message.reconsume_times, round(cluster.sim.now_s - began_s))
                )
                if message.body == b"0" and message.reconsume_times < 2:
                    message.retry()
                if message.body == b"1":
                    return found
        return found

    fill(broker, 2)
    began_s = cluster.sim.now_s
    assert cluster.run(consume) == [(b"0", 0, 0), (b"0", 1, 1), (b"0", 2, 2), (b"1", 0, 2)]
    assert not broker.requests[RequestCode.CONSUMER_SEND_MSG_BACK]


@pytest.mark.parametrize(("tries_max", "level", "tries"), [(2, 0, 3), (0, 0, 1), (None, -1, 1)])
def test_one_that_failed_too_often_is_a_dead_letter_and_the_next_comes(
    cluster: FakeCluster, broker: FakeBroker, tries_max: int | None, level: int, tries: int
) -> None:
    async def consume() -> list[bytes]:
        found = []
        async with ordered(cluster, max_reconsume_times=tries_max) as c:
            async for message in c:
                found.append(message.body)
                if message.body == b"1":
                    return found
                message.retry(level)
        return found

    fill(broker, 2)
    assert cluster.run(consume) == [b"0"] * tries + [b"1"]
    (request,) = broker.requests[RequestCode.SEND_MESSAGE_V2]
    assert (request.fields["b"], int(request.fields["j"]) > int(request.fields["l"])) == (
        "%RETRY%G",
        True,
    )
    assert stored(broker)[0] >= 1


def test_without_a_maximum_a_message_is_never_given_up(
    cluster: FakeCluster, broker: FakeBroker
) -> None:
    async def consume() -> int:
        async with ordered(cluster) as c:
            async for message in c:
                if message.reconsume_times == 40:
                    return message.reconsume_times
                message.retry()
        return 0

    fill(broker, 2)
    assert cluster.run(consume) == 40


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


def test_locks_are_taken_renewed_and_given_back_with_one_request_a_broker(
    cluster: FakeCluster, broker: FakeBroker
) -> None:
    async def consume() -> None:
        async with ordered(cluster):
            assert requested(broker, RequestCode.LOCK_BATCH_MQ)[0] == {queue(0), queue(1)}
            await asyncio.sleep(1)
            before = len(requested(broker, RequestCode.LOCK_BATCH_MQ))
            await asyncio.sleep(41)
            renewals = requested(broker, RequestCode.LOCK_BATCH_MQ)[before:]
            assert renewals == [{queue(0), queue(1), OF_RETRIES}] * 2

    fill(broker, 2, queues=2)
    cluster.run(consume)
    assert broker.locks == {}


def test_a_broker_that_was_away_is_asked_for_the_locks_as_soon_as_it_is_back(
    cluster: FakeCluster, broker: FakeBroker
) -> None:
    async def consume() -> None:
        async with ordered(cluster):
            await asyncio.sleep(5)
            broker.host.kill()
            broker.locks.clear()
            await asyncio.sleep(2)
            cluster.restart(broker)
            await asyncio.sleep(5)
            assert set(broker.locks) == {queue(0), OF_RETRIES}

    fill(broker, 1)
    cluster.run(consume)


def test_a_queue_whose_lock_is_lost_is_let_go(cluster: FakeCluster, broker: FakeBroker) -> None:
    async def consume() -> None:
        async with ordered(cluster) as c:
            broker.locks[queue(0)] = "somebody"
            await asyncio.sleep(21)
            assert queue(0) not in c.assigned()
            assert queue(1) in c.assigned()

    fill(broker, 2, queues=2)
    cluster.run(consume)


def test_a_lock_that_cannot_be_renewed_counts_for_half_a_minute(
    cluster: FakeCluster, broker: FakeBroker
) -> None:
    async def consume() -> None:
        async with ordered(cluster) as c:
            await asyncio.sleep(1)
            (first,) = await c.get_many()
            broker.script[RequestCode.LOCK_BATCH_MQ] = [SILENCE] * 99
            await asyncio.sleep(25)
            assert queue(0) in c.assigned()
            await asyncio.sleep(8)
            assert queue(0) not in c.assigned()
            first.ack()
            assert await within(c, 5) == []
            broker.script.clear()
            assert await bodies(c, 2) == [b"0", b"1"], (
                "what is acknowledged without the lock does not count"
            )

    fill(broker, 2)
    cluster.run(consume)


def test_a_renewal_that_fails_is_tried_again_before_the_lock_ends(
    cluster: FakeCluster, broker: FakeBroker
) -> None:
    async def consume() -> None:
        async with ordered(cluster) as c:
            await asyncio.sleep(1)
            broker.script[RequestCode.LOCK_BATCH_MQ] = [SILENCE, SILENCE]
            for _ in range(60):
                await asyncio.sleep(1)
                assert queue(0) in c.assigned()

    fill(broker, 1)
    cluster.run(consume)


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


def test_one_that_cannot_be_opened_is_a_dead_letter_and_the_next_comes(
    cluster: FakeCluster, broker: FakeBroker
) -> None:
    async def consume() -> list[bytes]:
        async with ordered(cluster) as c:
            return await bodies(c, 1)

    fill(broker, 0)
    broker.store("T", 0, b"no zlib", sys_flag=COMPRESSED)
    broker.store("T", 0, b"next")
    assert cluster.run(consume) == [b"next"]
    assert len(broker.requests[RequestCode.SEND_MESSAGE_V2]) == 1


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
