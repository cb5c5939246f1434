"""A consumer that takes the messages of each queue in their order.

See docs/protocol/consuming.md#orderly-consumption.
"""

from __future__ import annotations

import asyncio

import pytest

from roquet.client.consumer import Consumer
from roquet.protocol.bodies.tables import QueueLocks, parse
from roquet.protocol.records.message import COMPRESSED, MessageQueue
from roquet.protocol.remoting.codes import RequestCode
from tests.client.cluster import SILENCE, FakeBroker, FakeCluster
from tests.client.consumers import (
    bodies,
    fill,
    ordered,
    queue,
    stored,
    within,
)

OF_RETRIES = MessageQueue("%RETRY%G", "broker-a", 0)


def requested(broker: FakeBroker, code: RequestCode) -> list[set[MessageQueue]]:
    """The queues that each request to lock or unlock was about."""
    return [
        set(parse(request.body, QueueLocks.from_json).queues) for request in broker.requests[code]
    ]


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


@pytest.mark.parametrize(("options", "pause_s"), [({}, 1), ({"suspend_ms": 20_000}, 20)])
def test_a_message_that_failed_comes_again_after_a_pause_before_those_behind_it(
    cluster: FakeCluster, broker: FakeBroker, options: dict[str, int], pause_s: int
) -> None:
    async def consume() -> list[tuple[bytes, int, int]]:
        found = []
        async with ordered(cluster, **options) as c:
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
    assert cluster.run(consume) == [
        (b"0", 0, 0),
        (b"0", 1, pause_s),
        (b"0", 2, 2 * pause_s),
        (b"1", 0, 2 * pause_s),
    ]
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
