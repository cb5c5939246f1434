"""Queue locks: which count here and until when, how they are renewed, and that they are given
back.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import Any, Final

import pytest

from roquet.client._consume.order_locks import (
    RENEW_PERIOD_S,
    RETRY_PAUSE_S,
    TIMEOUT_MS,
    VALID_S,
    OrderLocks,
)
from roquet.client._net.session import Session
from roquet.client.config import ClientConfig
from roquet.protocol.bodies.tables import QueueLocks, parse
from roquet.protocol.records.message import MessageQueue
from roquet.protocol.remoting.codes import RequestCode, ResponseCode
from tests.client.cluster import NAME_SERVER, SILENCE, FakeBroker, FakeCluster

LOCK, UNLOCK = RequestCode.LOCK_BATCH_MQ, RequestCode.UNLOCK_BATCH_MQ
QUEUES: Final = [MessageQueue("T", "broker-a", number) for number in range(3)]
OTHERS: Final = "10.0.9.2@other"

Work = Callable[[OrderLocks], Coroutine[Any, Any, None]]


def run(cluster: FakeCluster, work: Work) -> None:
    """`work` with the locks of the group G."""

    async def main() -> None:
        config = ClientConfig(NAME_SERVER, client_id="me", runtime=cluster.client.runtime())
        async with Session(config) as session:
            await work(OrderLocks(session, "G"))

    cluster.run(main)


def asked(broker: FakeBroker, code: RequestCode) -> list[QueueLocks]:
    return [parse(request.body, QueueLocks.from_json) for request in broker.requests[code]]


@pytest.fixture
def broker(cluster: FakeCluster) -> FakeBroker:
    broker = cluster.broker()
    broker.create("T", len(QUEUES))
    return broker


def test_queues_are_locked_by_one_request_in_the_name_of_the_client(
    cluster: FakeCluster, broker: FakeBroker
) -> None:
    async def work(locks: OrderLocks) -> None:
        assert not locks.has(QUEUES[0])
        assert await locks.acquire(iter(QUEUES)) == QUEUES
        assert all(map(locks.has, QUEUES))

    run(cluster, work)
    assert asked(broker, LOCK) == [QueueLocks("G", "me", frozenset(QUEUES))]
    assert broker.locks == dict.fromkeys(QUEUES, "me")


def test_a_queue_that_another_member_has_is_not_locked(
    cluster: FakeCluster, broker: FakeBroker
) -> None:
    broker.locks[QUEUES[1]] = OTHERS

    async def work(locks: OrderLocks) -> None:
        assert await locks.acquire(QUEUES) == [QUEUES[0], QUEUES[2]]
        assert not locks.has(QUEUES[1])

    run(cluster, work)


def test_each_broker_is_asked_for_its_own_queues(cluster: FakeCluster, broker: FakeBroker) -> None:
    other = cluster.broker("10.0.1.2:10911", "broker-b")
    other.create("T", 1)
    far = MessageQueue("T", "broker-b", 0)

    async def work(locks: OrderLocks) -> None:
        assert await locks.acquire([*QUEUES, far]) == [*QUEUES, far]
        await locks.release_all()

    run(cluster, work)
    for code in (LOCK, UNLOCK):
        assert asked(broker, code) == [QueueLocks("G", "me", frozenset(QUEUES))]
        assert asked(other, code) == [QueueLocks("G", "me", frozenset([far]))]


def test_nothing_to_lock_or_to_release_asks_nobody(
    cluster: FakeCluster, broker: FakeBroker
) -> None:
    async def work(locks: OrderLocks) -> None:
        assert await locks.acquire([]) == []
        await locks.release(QUEUES)
        await locks.release_all()

    run(cluster, work)
    assert not broker.requests[LOCK]
    assert not broker.requests[UNLOCK]


def test_a_lock_counts_for_half_a_minute_since_it_was_asked_for(
    cluster: FakeCluster, broker: FakeBroker
) -> None:
    async def work(locks: OrderLocks) -> None:
        await locks.acquire(QUEUES[:1])
        await asyncio.sleep(VALID_S - 0.5)
        assert locks.has(QUEUES[0])
        assert locks.ended() == []
        await asyncio.sleep(0.5)
        assert not locks.has(QUEUES[0])
        assert locks.ended() == QUEUES[:1]
        assert locks.ended() == []

    run(cluster, work)


@pytest.mark.parametrize("code", [SILENCE, ResponseCode.SYSTEM_ERROR])
def test_a_broker_that_does_not_answer_changes_no_lock(
    cluster: FakeCluster, broker: FakeBroker, code: int, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)

    async def work(locks: OrderLocks) -> None:
        await locks.acquire(QUEUES[:1])
        broker.script[LOCK] = [code]
        assert await locks.acquire(QUEUES) == QUEUES[:1]
        await asyncio.sleep(VALID_S - 1 - TIMEOUT_MS / 1000)
        assert locks.has(QUEUES[0])

    run(cluster, work)
    assert "queues not locked, will be retried: group=G broker=broker-a count=3" in caplog.text


def test_locks_are_renewed_before_they_end(cluster: FakeCluster, broker: FakeBroker) -> None:
    async def work(locks: OrderLocks) -> None:
        await locks.acquire(QUEUES)
        keeping = asyncio.create_task(locks.keep())
        await asyncio.sleep(3 * VALID_S)
        assert all(map(locks.has, QUEUES))
        keeping.cancel()

    run(cluster, work)
    assert len(broker.requests[LOCK]) == 1 + int(3 * VALID_S // RENEW_PERIOD_S)


def test_a_renewal_without_an_answer_is_repeated_soon(
    cluster: FakeCluster, broker: FakeBroker
) -> None:
    async def work(locks: OrderLocks) -> None:
        await locks.acquire(QUEUES)
        broker.script[LOCK] = [ResponseCode.SYSTEM_ERROR] * 2
        keeping = asyncio.create_task(locks.keep())
        await asyncio.sleep(RENEW_PERIOD_S + 2 * RETRY_PAUSE_S + 1)
        keeping.cancel()
        assert all(map(locks.has, QUEUES))

    run(cluster, work)
    assert len(broker.requests[LOCK]) == 4


def test_locks_are_renewed_at_once_when_that_is_due(
    cluster: FakeCluster, broker: FakeBroker
) -> None:
    async def work(locks: OrderLocks) -> None:
        await locks.acquire(QUEUES)
        broker.locks.clear()
        keeping = asyncio.create_task(locks.keep())
        locks.due.set()
        await asyncio.sleep(1)
        assert broker.locks == dict.fromkeys(QUEUES, "me")
        keeping.cancel()

    run(cluster, work)


def test_a_lock_that_another_member_got_ends_with_the_next_renewal(
    cluster: FakeCluster, broker: FakeBroker
) -> None:
    async def work(locks: OrderLocks) -> None:
        await locks.acquire(QUEUES)
        broker.locks[QUEUES[1]] = OTHERS
        assert await locks.acquire(QUEUES) == [QUEUES[0], QUEUES[2]]
        assert locks.ended() == [QUEUES[1]]

    run(cluster, work)


def test_released_queues_are_unlocked_once(cluster: FakeCluster, broker: FakeBroker) -> None:
    async def work(locks: OrderLocks) -> None:
        await locks.acquire(QUEUES)
        await locks.release(QUEUES[:1])
        assert [locks.has(queue) for queue in QUEUES] == [False, True, True]
        await locks.release(QUEUES[:1])
        await locks.release_all()

    run(cluster, work)
    assert [each.queues for each in asked(broker, UNLOCK)] == [
        frozenset(QUEUES[:1]),
        frozenset(QUEUES[1:]),
    ]
    assert broker.locks == {}


def test_a_broker_that_does_not_unlock_keeps_the_lock_and_this_member_does_not(
    cluster: FakeCluster, broker: FakeBroker, caplog: pytest.LogCaptureFixture
) -> None:
    async def work(locks: OrderLocks) -> None:
        await locks.acquire(QUEUES)
        broker.script[UNLOCK] = [ResponseCode.SYSTEM_ERROR]
        await locks.release_all()
        assert not any(map(locks.has, QUEUES))

    run(cluster, work)
    assert "could not unlock queues" in caplog.text
    assert "group=G broker=broker-a count=3" in caplog.text


def test_no_renewal_locks_a_queue_again_that_is_being_released(
    cluster: FakeCluster, broker: FakeBroker
) -> None:
    async def work(locks: OrderLocks) -> None:
        await locks.acquire(QUEUES)
        keeping = asyncio.create_task(locks.keep())
        locks.due.set()
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        await locks.release_all()
        await asyncio.sleep(RENEW_PERIOD_S + 1)
        keeping.cancel()

    run(cluster, work)
    assert broker.locks == {}
