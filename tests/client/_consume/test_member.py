"""A member joins its group and leaves it."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path

import pytest

from roquet.client.consumer import PERSIST_OFFSETS_MS
from roquet.errors import AccessDenied, Refused
from roquet.protocol.records.message import MessageQueue
from roquet.protocol.remoting.codes import RequestCode, ResponseCode
from roquet.protocol.remoting.command import Command
from tests.client.cluster import NAME_SERVER, SILENCE, FakeBroker, FakeCluster
from tests.client.consumers import bodies, consumer, fill, ordered, stored


def test_assigned_tells_the_queues_of_this_member(cluster: FakeCluster, broker: FakeBroker) -> None:
    async def consume() -> frozenset[MessageQueue]:
        async with consumer(cluster) as c:
            return c.assigned()

    fill(broker, 0, queues=2)
    expected = {
        MessageQueue("T", "broker-a", 0),
        MessageQueue("T", "broker-a", 1),
        MessageQueue("%RETRY%G", "broker-a", 0),
    }
    assert cluster.run(consume) == expected


def test_offsets_are_stored_before_the_others_hear_that_a_member_leaves(
    cluster: FakeCluster, broker: FakeBroker
) -> None:
    async def consume() -> None:
        async with consumer(cluster) as c:
            await bodies(c, 3)

    fill(broker, 3)
    order: list[int] = []
    broker.on_request = lambda request: order.append(request.code)
    cluster.run(consume)
    assert order.index(RequestCode.UPDATE_CONSUMER_OFFSET) < order.index(
        RequestCode.UNREGISTER_CLIENT
    )


def test_brokers_know_a_member_before_they_are_asked_for_the_members(
    cluster: FakeCluster, broker: FakeBroker
) -> None:
    """Otherwise it would not be in the list, and would get no queue."""

    async def consume() -> None:
        async with consumer(cluster):
            assert order.index(RequestCode.HEART_BEAT) < order.index(
                RequestCode.GET_CONSUMER_LIST_BY_GROUP
            )

    fill(broker, 0)
    order: list[int] = []
    broker.on_request = lambda request: order.append(request.code)
    cluster.run(consume)


def test_a_topic_that_is_waited_for_is_named_and_the_retry_topic_is_not(
    cluster: FakeCluster, broker: FakeBroker, caplog: pytest.LogCaptureFixture
) -> None:
    async def consume() -> None:
        async with consumer(cluster, "later"):
            await asyncio.sleep(60)

    cluster.run(consume)
    (line,) = [line for line in caplog.messages if line.startswith("topic not found")]
    assert line == (
        "topic not found, the consumer looks for it every 1 s (a first send creates it, where "
        "brokers may create topics): group=G topic=later "
        f"error=no broker has topic later (name servers asked: {NAME_SERVER}): "
        "create it, start its brokers, or check the addresses"
    )


@pytest.mark.parametrize(
    ("after_s", "told"), [(0.5, []), (3.0, ["topic not found, the", "topic found: group=G"])]
)
def test_a_topic_that_comes_within_a_second_is_not_told_of(
    cluster: FakeCluster,
    broker: FakeBroker,
    caplog: pytest.LogCaptureFixture,
    after_s: float,
    told: list[str],
) -> None:
    """That of a first send is known to name servers some ms later."""

    async def consume() -> list[bytes]:
        async with consumer(cluster, "later") as c:
            await asyncio.sleep(after_s)
            fill(broker, 1, "later")
            return await bodies(c, 1)

    with caplog.at_level(logging.INFO, "roquet"):
        assert cluster.run(consume) == [b"0"]
    lines = [line[:20] for line in caplog.messages if line.startswith("topic ")]
    assert lines == told


def test_a_topic_that_a_send_has_just_created_is_there_when_the_member_has_started(
    cluster: FakeCluster, broker: FakeBroker, caplog: pytest.LogCaptureFixture
) -> None:
    async def consume() -> set[str]:
        asyncio.get_running_loop().call_later(0.008, cluster.create, "fresh", broker.name, 2)
        async with consumer(cluster, "fresh") as c:
            return {queue.topic for queue in c.assigned()}

    assert "fresh" in cluster.run(consume)
    assert [line for line in caplog.messages if line.startswith("topic not found")] == []


@pytest.mark.parametrize("jump_ms", [-3_600_000, 0, 3_600_000])
def test_offsets_are_stored_every_five_seconds_whatever_the_wall_clock_says(
    cluster: FakeCluster, broker: FakeBroker, jump_ms: int
) -> None:
    async def consume() -> None:
        async with consumer(cluster) as c:
            for message in await c.get_many(2):
                message.ack()
            cluster.client.clock_ahead_ms += jump_ms
            await asyncio.sleep(PERSIST_OFFSETS_MS / 1000 - 1)
            assert stored(broker) == {}
            await asyncio.sleep(1.5)
            assert stored(broker) == {0: 2}

    fill(broker, 2)
    cluster.run(consume)


def test_offsets_are_stored_as_often_as_the_consumer_was_told(
    cluster: FakeCluster, broker: FakeBroker
) -> None:
    async def consume() -> None:
        async with consumer(cluster, persist_offsets_ms=60_000) as c:
            for message in await c.get_many(2):
                message.ack()
            await asyncio.sleep(10)
            assert RequestCode.UPDATE_CONSUMER_OFFSET not in broker.requests
        async with consumer(cluster, persist_offsets_ms=100) as c:
            await asyncio.sleep(0.5)
            for message in await c.get_many(2):
                message.ack()
            await asyncio.sleep(0.2)
            assert stored(broker)[0] == 4

    fill(broker, 4)
    broker.pull_max = 2
    cluster.run(consume)


@pytest.mark.parametrize("code", [SILENCE, ResponseCode.SYSTEM_ERROR])
def test_a_member_leaves_although_its_offsets_cannot_be_stored(
    cluster: FakeCluster, broker: FakeBroker, code: int
) -> None:
    """The others need its queues all the same."""

    async def consume() -> None:
        async with consumer(cluster) as c:
            await bodies(c, 3)
            broker.script[RequestCode.UPDATE_CONSUMER_OFFSET] = [code] * 99

    fill(broker, 3)
    cluster.run(consume)
    assert len(broker.requests[RequestCode.UNREGISTER_CLIENT]) == 1
    assert list(broker.members["G"]) == []
    assert cluster.nothing_is_left()


def test_a_member_that_left_neither_pulls_nor_asks_any_more(
    cluster: FakeCluster, broker: FakeBroker
) -> None:
    async def consume() -> None:
        async with ordered(cluster) as c:
            await bodies(c, 1)
        broker.requests.clear()
        broker.store("T", 0, b"later")
        await asyncio.sleep(60)

    fill(broker, 3)
    cluster.run(consume)
    assert not any(broker.requests.values())
    assert broker.locks == {}


@pytest.mark.parametrize(("is_broadcast", "is_locking"), [(False, True), (True, False)])
def test_only_those_who_share_queues_lock_them(
    cluster: FakeCluster, broker: FakeBroker, tmp_path: Path, is_broadcast: bool, is_locking: bool
) -> None:
    async def consume() -> None:
        options = {"broadcast": True, "offsets_folder": tmp_path} if is_broadcast else {}
        async with ordered(cluster, **options) as c:
            assert await bodies(c, 2) == [b"0", b"1"]

    fill(broker, 2)
    cluster.run(consume)
    assert bool(broker.requests[RequestCode.LOCK_BATCH_MQ]) is is_locking


def test_a_member_whose_first_heartbeat_is_denied_does_not_join(
    cluster: FakeCluster, broker: FakeBroker
) -> None:
    """One broker of two is enough: it would wait for that broker's messages forever."""
    other = cluster.broker("10.0.2.1:10911", "broker-b")

    def deny(request: Command) -> None:
        if request.code == RequestCode.HEART_BEAT:
            raise Refused(1, "org.apache.rocketmq.acl.common.AclException: no")

    async def consume() -> None:
        with pytest.raises(AccessDenied):
            async with consumer(cluster):
                pass

    for each in (broker, other):
        fill(each, 1)
    other.on_request = deny
    cluster.run(consume)
    assert not broker.requests[RequestCode.PULL_MESSAGE]
    assert list(broker.members["G"]) == []
    assert cluster.nothing_is_left()
