"""Heartbeats and good-byes: what they say, to which brokers, when and in which order."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime

import pytest

from roquet.protocol.bodies.tables import FROM_TIMESTAMP, Heartbeat, parse
from roquet.protocol.remoting.codes import RequestCode
from tests.client.cluster import CLIENT, SILENCE, FakeBroker, FakeCluster
from tests.client.consumers import consumer, fill
from tests.client.producers import producer


def test_brokers_know_a_producer_by_its_heartbeats_until_it_leaves(
    cluster: FakeCluster, broker: FakeBroker
) -> None:
    async def send() -> None:
        async with producer(cluster) as p:
            await p.send("T", b"hi")
            await asyncio.sleep(65)

    cluster.run(send)
    assert len(broker.requests[RequestCode.HEART_BEAT]) == 3, "at once, and each 30 s"
    (good_bye,) = broker.requests[RequestCode.UNREGISTER_CLIENT]
    assert good_bye.fields == {"clientID": f"{CLIENT}@test", "producerGroup": "P"}


def test_a_producer_s_heartbeats_go_to_masters_only(
    cluster: FakeCluster, broker: FakeBroker
) -> None:
    async def send() -> None:
        async with producer(cluster) as p:
            await p.send("T", b"hi")
            await asyncio.sleep(1)

    slave = cluster.broker("10.0.1.2:10911", broker_id=1, log=broker.log)
    cluster.run(send)
    assert slave.requests == {}


def test_heartbeats_say_what_the_group_wants_to_masters_and_slaves(
    cluster: FakeCluster, broker: FakeBroker
) -> None:
    async def consume() -> None:
        async with consumer(cluster, {"T": "a||b"}, start=datetime(2026, 11, 1, tzinfo=UTC)):
            await asyncio.sleep(61)

    slave = cluster.broker("10.0.1.2:10911", broker_id=1, log=broker.log)
    fill(broker, 0)
    cluster.run(consume)
    for at in (broker, slave):
        assert len(at.requests[RequestCode.HEART_BEAT]) >= 3
        heartbeat = parse(at.requests[RequestCode.HEART_BEAT][-1].body, Heartbeat.from_json)
        (data,) = heartbeat.consumers
        assert (heartbeat.client_id, data.group, data.consume_from) == (
            f"{CLIENT}@test",
            "G",
            FROM_TIMESTAMP,
        )
        wanted = {
            subscription.topic: subscription.expression for subscription in data.subscriptions
        }
        assert wanted == {"T": "a||b", "%RETRY%G": "*"}
        (good_bye,) = at.requests[RequestCode.UNREGISTER_CLIENT]
        assert good_bye.fields == {"clientID": f"{CLIENT}@test", "consumerGroup": "G"}


@pytest.mark.parametrize("is_answered", [True, False])
def test_a_good_bye_leaves_behind_a_heartbeat_that_is_under_way(
    cluster: FakeCluster, broker: FakeBroker, is_answered: bool
) -> None:
    came: dict[int, float] = {}

    async def consume() -> None:
        async with consumer(cluster):
            came.clear()
            broker.script[RequestCode.HEART_BEAT] = [] if is_answered else [SILENCE]
            while RequestCode.HEART_BEAT not in came:
                await asyncio.sleep(0.001)

    fill(broker, 0)
    broker.on_request = lambda request: came.__setitem__(request.code, cluster.sim.now_s)
    cluster.run(consume)
    waited_s = came[RequestCode.UNREGISTER_CLIENT] - came[RequestCode.HEART_BEAT]
    assert 0 < waited_s < 1 if is_answered else waited_s >= 3
