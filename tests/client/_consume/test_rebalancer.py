"""Which queues a member gets: when it asks, whom, and what resets have to do with it."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from roquet.allocation import ConsistentHash
from roquet.client._consume.rebalancer import PERIOD_S
from roquet.client._net.routes import QUEUES_MAX
from roquet.client.config import POLL_NAME_SERVER_MS
from roquet.client.consumer import Consumer
from roquet.protocol.json.dialect import ObjectKeys, dump_dialect
from roquet.protocol.records.message import MessageQueue
from roquet.protocol.remoting.codes import RequestCode, ResponseCode
from roquet.protocol.remoting.command import Command
from tests.client.cluster import CLIENT, FakeBroker, FakeCluster
from tests.client.consumers import (
    OTHER_CLIENT,
    bodies,
    consumer,
    fill,
    ordered,
    queue,
    reset,
    stored,
)


def members(cluster: FakeCluster, *hosts: str, **options: Any) -> list[Consumer]:
    """One running member of the group on each host."""
    started: list[Consumer] = []
    for address in hosts:
        host = cluster.sim.host(address)
        host.boot()
        started.append(consumer(cluster, host=host, **options))

        async def stay(member: Consumer = started[-1]) -> None:
            async with member:
                await asyncio.sleep(10_000)

        host.start(stay)
        cluster.sim.run_for(1)
    return started


def of_topic(member: Consumer, topic: str = "T") -> set[int]:
    return {queue.queue_id for queue in member.assigned() if queue.topic == topic}


def shared(cluster: FakeCluster, member: Consumer, topic: str = "T") -> set[int]:
    """As `of_topic`, outside the event loop."""

    async def ask() -> set[int]:
        return of_topic(member, topic)

    return cluster.name_server_host.call(ask)


def test_a_second_member_takes_half_of_the_queues_at_once(
    cluster: FakeCluster, broker: FakeBroker
) -> None:
    fill(broker, 0, queues=4)
    one, two = members(cluster, CLIENT, OTHER_CLIENT)
    assert (shared(cluster, one), shared(cluster, two)) == ({0, 1}, {2, 3})


def test_while_no_broker_tells_the_members_everybody_keeps_his_queues(
    cluster: FakeCluster, broker: FakeBroker
) -> None:
    fill(broker, 0, queues=4)
    one, two = members(cluster, CLIENT, OTHER_CLIENT)
    broker.script[RequestCode.GET_CONSUMER_LIST_BY_GROUP] = [ResponseCode.SYSTEM_ERROR] * 4
    cluster.sim.run_for(25)
    assert len(broker.script[RequestCode.GET_CONSUMER_LIST_BY_GROUP]) < 4, "nobody has asked"
    assert (shared(cluster, one), shared(cluster, two)) == ({0, 1}, {2, 3})


def test_a_member_that_leaves_gives_its_queues_to_the_others_at_once(
    cluster: FakeCluster, broker: FakeBroker
) -> None:
    fill(broker, 0, queues=4)
    one, two = members(cluster, CLIENT, OTHER_CLIENT)

    async def leave() -> None:
        await one.__aexit__(None, None, None)

    cluster.run(leave)
    cluster.sim.run_for(1)
    assert shared(cluster, two) == {0, 1, 2, 3}


def test_a_member_that_dies_gives_its_queues_to_the_others_at_once(
    cluster: FakeCluster, broker: FakeBroker
) -> None:
    fill(broker, 0, queues=4)
    _, two = members(cluster, CLIENT, OTHER_CLIENT)
    cluster.client.kill()
    cluster.sim.run_for(1)
    assert shared(cluster, two) == {0, 1, 2, 3}


def test_who_was_forgotten_by_a_restarted_broker_says_so_before_it_gives_up_queues(
    cluster: FakeCluster, broker: FakeBroker
) -> None:
    fill(broker, 0, queues=4)
    (one,) = members(cluster, CLIENT)
    broker.host.kill()
    broker.start()
    cluster.sim.run_for(25)
    assert shared(cluster, one) == {0, 1, 2, 3}
    assert list(broker.members["G"]) == [f"{CLIENT}@test"]


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


def test_a_reset_that_no_broker_takes_now_is_carried_out_later(
    cluster: FakeCluster, broker: FakeBroker
) -> None:
    async def consume() -> None:
        async with consumer(cluster) as c:
            assert await bodies(c, 3) == [b"0", b"1", b"2"]
            await asyncio.sleep(6)
            broker.script[RequestCode.UPDATE_CONSUMER_OFFSET] = [ResponseCode.SYSTEM_BUSY] * 2
            reset(broker, {queue(0): 0})
            await asyncio.sleep(1)
            assert queue(0) not in c.assigned(), "its offset is not stored"
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


def test_a_topic_that_is_created_later_is_consumed_then(
    cluster: FakeCluster, broker: FakeBroker
) -> None:
    async def consume() -> list[bytes]:
        async with consumer(cluster, "later") as c:
            await asyncio.sleep(50)
            fill(broker, 1, "later")
            began = cluster.sim.now_s
            found = await bodies(c, 1)
            assert cluster.sim.now_s - began < 1.5
            return found

    assert cluster.run(consume) == [b"0"]


def test_no_broker_is_asked_for_members_while_a_topic_is_looked_for(
    cluster: FakeCluster, broker: FakeBroker
) -> None:
    fill(broker, 0)
    members(cluster, CLIENT, topics=["T", "later"])
    cluster.sim.run_for(1)
    asked, looked = asked_for_members(broker), cluster.route_requests.count("later")
    cluster.sim.run_for(PERIOD_S - 5)
    assert asked_for_members(broker) == asked
    assert cluster.route_requests.count("later") >= looked + 14


def asked_for_members(broker: FakeBroker) -> int:
    return len(broker.requests[RequestCode.GET_CONSUMER_LIST_BY_GROUP])


@pytest.mark.parametrize(
    "body", [b"", b"[]", b"{}", b"null", b'{"consumerIdList":7}', b'{"consumerIdList":', b"\xff"]
)
def test_an_answer_that_is_no_list_of_members_changes_nothing(
    cluster: FakeCluster, broker: FakeBroker, body: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    fill(broker, 0, queues=4)
    one, two = members(cluster, CLIENT, OTHER_CLIENT)
    broker.member_list = body
    asked = asked_for_members(broker)
    cluster.sim.run_for(25)
    assert asked_for_members(broker) > asked
    assert (shared(cluster, one), shared(cluster, two)) == ({0, 1}, {2, 3})
    assert "group members not found, the next broker is asked: group=G" in caplog.text


def test_a_list_without_this_member_is_asked_for_again_after_a_heartbeat(
    cluster: FakeCluster, broker: FakeBroker, caplog: pytest.LogCaptureFixture
) -> None:
    """If it is not in the list then, either, the others have all queues, and it must have none."""
    fill(broker, 0, queues=4)
    (one,) = members(cluster, CLIENT)
    assert shared(cluster, one) == {0, 1, 2, 3}
    order: list[int] = []
    broker.on_request = lambda request: order.append(request.code)
    broker.member_list = b'{"consumerIdList":["somebody"]}'
    cluster.sim.run_for(PERIOD_S + 1)
    assert shared(cluster, one) == set()
    assert "no queues, the brokers do not list this member of the group: group=G" in caplog.text
    first = order.index(RequestCode.GET_CONSUMER_LIST_BY_GROUP)
    again = order.index(RequestCode.GET_CONSUMER_LIST_BY_GROUP, first + 1)
    assert RequestCode.HEART_BEAT in order[first:again]


def test_slaves_are_asked_for_the_members_when_no_master_tells_them(
    cluster: FakeCluster, broker: FakeBroker
) -> None:
    slave = cluster.broker("10.0.1.2:10911", broker_id=1, log=broker.log)
    fill(broker, 0, queues=4)
    (one,) = members(cluster, CLIENT)
    assert asked_for_members(slave) == 0
    broker.script[RequestCode.GET_CONSUMER_LIST_BY_GROUP] = [ResponseCode.SYSTEM_ERROR] * 9
    cluster.sim.run_for(PERIOD_S + 1)
    assert asked_for_members(slave) > 0
    assert shared(cluster, one) == {0, 1, 2, 3}


@pytest.mark.parametrize("jump_ms", [-3_600_000, 0, 3_600_000])
def test_the_period_is_not_that_of_the_wall_clock(
    cluster: FakeCluster, broker: FakeBroker, jump_ms: int
) -> None:
    fill(broker, 0, queues=4)
    members(cluster, CLIENT)
    cluster.sim.run_for(1)
    asked = asked_for_members(broker)
    cluster.client.clock_ahead_ms += jump_ms
    cluster.sim.run_for(PERIOD_S - 3)
    assert asked_for_members(broker) == asked
    cluster.sim.run_for(3)
    assert asked_for_members(broker) > asked


def test_a_reset_of_a_queue_that_another_member_has_is_left_to_that_member(
    cluster: FakeCluster, broker: FakeBroker
) -> None:
    fill(broker, 8, queues=4)
    members(cluster, CLIENT, OTHER_CLIENT)
    stores = broker.requests[RequestCode.UPDATE_CONSUMER_OFFSET]
    before = len(stores)
    reset(broker, {queue(number): 1 for number in range(4)})
    cluster.sim.run_for(1)
    assert sorted(
        (request.fields["queueId"], request.fields["commitOffset"])
        for request in stores[before:]
        if request.fields["commitOffset"] == "1"
    ) == [(str(number), "1") for number in range(4)]


def test_a_topic_whose_route_cannot_be_used_keeps_no_other_from_being_rebalanced(
    cluster: FakeCluster, broker: FakeBroker
) -> None:
    """Anybody may register a topic with billions of queues, which comes before all others here."""
    other = cluster.broker("10.0.2.1:10911", "broker-b")

    async def consume() -> None:
        async with consumer(cluster, ["hostile", "T"]) as c:
            assert of_topic(c) == {0}
            broker.create("hostile", QUEUES_MAX + 1)
            other.create("T", 1)
            await asyncio.sleep(2 * POLL_NAME_SERVER_MS / 1000)
            assert {each.broker_name for each in c.assigned()} == {"broker-a", "broker-b"}

    fill(broker, 0)
    cluster.run(consume)


def test_a_reset_holds_for_a_queue_that_is_being_given_to_another_member(
    cluster: FakeCluster, broker: FakeBroker
) -> None:
    """It is nobody's then. The offset of the message that was under way was stored over it."""

    async def first() -> None:
        async with ordered(cluster) as c:
            working = await c.get_many(2)
            other.start(second)
            await asyncio.sleep(5)
            assert queue(1) not in c.assigned()
            reset(broker, {queue(1): 0})
            await asyncio.sleep(1)
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
    assert got[:1] == [b"1"]


def test_members_share_the_queues_by_the_strategy_that_they_are_given(
    cluster: FakeCluster, broker: FakeBroker
) -> None:
    fill(broker, 0, queues=16)
    one, two = members(cluster, CLIENT, OTHER_CLIENT, strategy=ConsistentHash())
    assert shared(cluster, one) | shared(cluster, two) == set(range(16))
    assert not shared(cluster, one) & shared(cluster, two)
    assert shared(cluster, one) != set(range(8)), "that is what AVG gives"


class FailsForT:
    """A strategy that fails for the topic T as long as `fails` is true; else everybody gets all."""

    name = "FAILS_FOR_T"
    fails = True

    def allocate(
        self, _group: str, _me: str, queues: Sequence[MessageQueue], _members: Sequence[str]
    ) -> Sequence[MessageQueue]:
        if self.fails and queues[0].topic == "T":
            raise KeyError("a bug of the application")
        return queues


def test_a_strategy_that_fails_for_a_topic_leaves_its_queues_where_they_are(
    cluster: FakeCluster, broker: FakeBroker, caplog: pytest.LogCaptureFixture
) -> None:
    fill(broker, 0, queues=4)
    fill(broker, 0, topic="U", queues=2)
    strategy = FailsForT()
    (one,) = members(cluster, CLIENT, topics=["T", "U"], strategy=strategy)
    assert shared(cluster, one, "U") == {0, 1}
    assert shared(cluster, one) == set()
    assert (
        "allocation failed, the queues stay where they are: group=G topic=T strategy=FAILS_FOR_T "
        "queues=4 members=1" in caplog.text
    )
    strategy.fails = False
    cluster.sim.run_for(PERIOD_S + 1)
    assert shared(cluster, one) == {0, 1, 2, 3}
    strategy.fails = True
    cluster.sim.run_for(PERIOD_S + 1)
    assert shared(cluster, one) == {0, 1, 2, 3}
