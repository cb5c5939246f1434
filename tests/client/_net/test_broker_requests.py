"""What brokers ask of a client, for administrators and for themselves."""

from __future__ import annotations

import asyncio

import pytest

from roquet.client.received import ReceivedMessage
from roquet.errors import CallTimeout
from roquet.protocol.records.message import MessageQueue
from roquet.protocol.remoting.codes import RequestCode, ResponseCode
from roquet.protocol.remoting.command import Command
from tests.client.cluster import CLIENT, FakeBroker, FakeCluster
from tests.client.consumers import bodies, consumer, fill, stored


def ask(cluster: FakeCluster, broker: FakeBroker, request: Command) -> Command:
    """What the group's member answers to a broker."""

    async def call() -> Command:
        return await next(iter(broker.members["G"].values())).calls.call(request, 5000)

    return cluster.run(call, on=broker.host)


def test_a_member_tells_how_far_it_is(cluster: FakeCluster, broker: FakeBroker) -> None:
    async def consume() -> None:
        async with consumer(cluster) as c:
            await bodies(c, 3)
            await asyncio.sleep(1_000)

    fill(broker, 4)
    cluster.client.start(consume)
    cluster.sim.run_for(10)
    answer = ask(
        cluster,
        broker,
        Command(RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT, {"topic": "T", "group": "G"}),
    )
    assert answer.body == (
        b'{"consumerTable":{},"messageQueueTable":{{"brokerName":"broker-a","queueId":0,"topic":"T"}:3}}'
    )
    running = ask(
        cluster, broker, Command(RequestCode.GET_CONSUMER_RUNNING_INFO, {"consumerGroup": "G"})
    )
    assert b'"cachedMsgCount":1' in running.body
    other = Command(RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT, {"topic": "T", "group": "other"})
    assert ask(cluster, broker, other).code == ResponseCode.SYSTEM_ERROR


@pytest.mark.parametrize(("settled_by", "result"), [("ack", b"CR_SUCCESS"), ("retry", b"CR_LATER")])
def test_a_message_that_an_administrator_wants_consumed_comes_beside_the_others(
    cluster: FakeCluster, broker: FakeBroker, settled_by: str, result: bytes
) -> None:
    """It is another group's, or was consumed long ago: no offset changes, and nothing is sent
    back.
    """
    came: list[ReceivedMessage] = []

    async def consume() -> None:
        async with consumer(cluster) as c:
            async for message in c:
                came.append(message)
                getattr(message, settled_by if message.topic == "Other" else "ack")()

    fill(broker, 2)
    cluster.client.start(consume)
    cluster.sim.run_for(10)
    record = broker.store("Other", 3, b"directly")
    fields = {
        "consumerGroup": "G",
        "clientId": f"{CLIENT}@test",
        "msgId": "m",
        "brokerName": "broker-a",
    }
    answer = ask(
        cluster, broker, Command(RequestCode.CONSUME_MESSAGE_DIRECTLY, fields, record.encode())
    )
    assert answer.code == 0
    assert b'"consumeResult":"%b"' % result in answer.body
    assert [message.body for message in came] == [b"0", b"1", b"directly"]
    assert came[-1].queue == MessageQueue("Other", "broker-a", 3)
    cluster.sim.run_for(30)
    assert (
        stored(broker, "Other"),
        stored(broker),
        broker.requests[RequestCode.CONSUMER_SEND_MSG_BACK],
    ) == (
        {},
        {0: 2},
        [],
    )


def test_a_message_that_takes_too_long_or_is_for_another_group_is_not_said_to_be_consumed(
    cluster: FakeCluster, broker: FakeBroker
) -> None:
    async def consume() -> None:
        async with consumer(cluster):
            await asyncio.sleep(1_000)

    fill(broker, 1)
    cluster.client.start(consume)
    cluster.sim.run_for(10)
    body = broker.store("Other", 0, b"directly").encode()
    fields = {"consumerGroup": "other"}
    assert (
        ask(cluster, broker, Command(RequestCode.CONSUME_MESSAGE_DIRECTLY, fields, body)).code == 1
    )
    with pytest.raises(CallTimeout):
        ask(
            cluster,
            broker,
            Command(RequestCode.CONSUME_MESSAGE_DIRECTLY, {"consumerGroup": "G"}, body),
        )
    cluster.sim.run_for(30)
