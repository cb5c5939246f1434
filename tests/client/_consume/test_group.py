"""Members of a group among each other, and what administrators ask of them."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime

import pytest

from roquet.client.consumer import Consumer, ReceivedMessage
from roquet.errors import CallTimeout
from roquet.protocol.bodies.tables import FROM_TIMESTAMP, Heartbeat, parse
from roquet.protocol.json.dialect import ObjectKeys, dump_dialect
from roquet.protocol.records.message import MessageQueue
from roquet.protocol.remoting.codes import RequestCode, ResponseCode
from roquet.protocol.remoting.command import Command
from tests.client.cluster import CLIENT, SILENCE, FakeBroker, FakeCluster
from tests.client.consumers import OTHER_CLIENT, bodies, consumer, fill, reset, stored


def members(cluster: FakeCluster, *hosts: str) -> list[Consumer]:
    """One running member of the group on each host."""
    started: list[Consumer] = []
    for address in hosts:
        host = cluster.sim.host(address)
        host.boot()
        started.append(consumer(cluster, host=host))

        async def stay(member: Consumer = started[-1]) -> None:
            async with member:
                await asyncio.sleep(10_000)

        host.start(stay)
        cluster.sim.run_for(1)
    return started


def of_topic(member: Consumer) -> set[int]:
    return {queue.queue_id for queue in member.assigned() if queue.topic == "T"}


def test_a_second_member_takes_half_of_the_queues_at_once(
    cluster: FakeCluster, broker: FakeBroker
) -> None:
    fill(broker, 0, queues=4)
    one, two = members(cluster, CLIENT, OTHER_CLIENT)
    assert (of_topic(one), of_topic(two)) == ({0, 1}, {2, 3})


def test_while_no_broker_tells_the_members_everybody_keeps_his_queues(
    cluster: FakeCluster, broker: FakeBroker
) -> None:
    fill(broker, 0, queues=4)
    one, two = members(cluster, CLIENT, OTHER_CLIENT)
    broker.script[RequestCode.GET_CONSUMER_LIST_BY_GROUP] = [ResponseCode.SYSTEM_ERROR] * 4
    cluster.sim.run_for(25)
    assert len(broker.script[RequestCode.GET_CONSUMER_LIST_BY_GROUP]) < 4, "nobody has asked"
    assert (of_topic(one), of_topic(two)) == ({0, 1}, {2, 3})


def test_a_member_that_leaves_gives_its_queues_to_the_others_at_once(
    cluster: FakeCluster, broker: FakeBroker
) -> None:
    fill(broker, 0, queues=4)
    one, two = members(cluster, CLIENT, OTHER_CLIENT)

    async def leave() -> None:
        await one.__aexit__(None, None, None)

    cluster.run(leave)
    cluster.sim.run_for(1)
    assert of_topic(two) == {0, 1, 2, 3}


def test_a_member_that_dies_gives_its_queues_to_the_others_at_once(
    cluster: FakeCluster, broker: FakeBroker
) -> None:
    fill(broker, 0, queues=4)
    _, two = members(cluster, CLIENT, OTHER_CLIENT)
    cluster.client.kill()
    cluster.sim.run_for(1)
    assert of_topic(two) == {0, 1, 2, 3}


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


def test_who_was_forgotten_by_a_restarted_broker_says_so_before_it_gives_up_queues(
    cluster: FakeCluster, broker: FakeBroker
) -> None:
    fill(broker, 0, queues=4)
    (one,) = members(cluster, CLIENT)
    broker.host.kill()
    broker.start()
    cluster.sim.run_for(25)
    assert of_topic(one) == {0, 1, 2, 3}
    assert list(broker.members["G"]) == [f"{CLIENT}@test"]


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


# administrators


def ask(cluster: FakeCluster, broker: FakeBroker, request: Command) -> Command:
    """What the group's member answers to a broker."""

    async def call() -> Command:
        return await next(iter(broker.members["G"].values())).calls.call(request, 5000)

    return cluster.run(call, on=broker.host)


def test_a_reset_takes_the_group_back_to_the_offsets_given(
    cluster: FakeCluster, broker: FakeBroker
) -> None:
    async def consume() -> tuple[list[bytes], list[bytes]]:
        async with consumer(cluster) as c:
            before = await bodies(c, 4)
            table = ObjectKeys({'{"brokerName":"broker-a","queueId":0,"topic":"T"}': 1})
            request = Command(
                RequestCode.RESET_CONSUMER_CLIENT_OFFSET,
                {"topic": "T", "group": "G", "timestamp": "0"},
            )
            request.body = dump_dialect({"offsetTable": table})
            broker.members["G"][f"{CLIENT}@test"].calls.notify(request)
            return before, await bodies(c, 3)

    fill(broker, 4)
    assert cluster.run(consume) == ([b"0", b"1", b"2", b"3"], [b"1", b"2", b"3"])
    assert stored(broker) == {0: 4}


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


def test_a_reset_that_no_broker_takes_now_is_carried_out_later(
    cluster: FakeCluster, broker: FakeBroker
) -> None:
    async def consume() -> None:
        async with consumer(cluster) as c:
            assert await bodies(c, 3) == [b"0", b"1", b"2"]
            await asyncio.sleep(6)
            broker.script[RequestCode.UPDATE_CONSUMER_OFFSET] = [ResponseCode.SYSTEM_BUSY] * 2
            reset(broker, {MessageQueue("T", "broker-a", 0): 0})
            await asyncio.sleep(45)
            assert await bodies(c, 3) == [b"0", b"1", b"2"]

    fill(broker, 3)
    cluster.run(consume)


def test_a_later_reset_counts_although_the_one_before_is_still_to_be_carried_out(
    cluster: FakeCluster, broker: FakeBroker
) -> None:
    async def consume() -> None:
        async with consumer(cluster) as c:
            assert await bodies(c, 3) == [b"0", b"1", b"2"]
            await asyncio.sleep(6)
            broker.script[RequestCode.UPDATE_CONSUMER_OFFSET] = [ResponseCode.SYSTEM_BUSY]
            reset(broker, {MessageQueue("T", "broker-a", 0): 0})
            await asyncio.sleep(1)
            reset(broker, {MessageQueue("T", "broker-a", 0): 2})
            await asyncio.sleep(45)
            assert await bodies(c, 1) == [b"2"]
            assert not broker.script[RequestCode.UPDATE_CONSUMER_OFFSET]

    fill(broker, 3)
    cluster.run(consume)
