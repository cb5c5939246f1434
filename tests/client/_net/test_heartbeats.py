"""Heartbeats and good-byes: what they say, to which brokers, when and in which order."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from datetime import UTC, datetime
from typing import Any

import pytest

from roquet.client._net.broker_requests import MemberCallbacks
from roquet.client._net.close_limit import AWAY_S
from roquet.client._net.heartbeats import PERIOD_S
from roquet.client._net.member_calls import QueueState
from roquet.client._net.session import Session
from roquet.client.config import ClientConfig
from roquet.common.loop_time import now_s
from roquet.errors import AccessDenied, ConfigError, Refused
from roquet.protocol.bodies.tables import FROM_TIMESTAMP, ConsumerData, Heartbeat, parse
from roquet.protocol.records.message import MessageQueue
from roquet.protocol.records.record import Record
from roquet.protocol.remoting.codes import RequestCode, ResponseCode
from roquet.protocol.remoting.command import Command
from tests.client.cluster import CLIENT, NAME_SERVER, SILENCE, FakeBroker, FakeCluster
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
    assert 0 < waited_s < 1 if is_answered else waited_s > 2


# one session

Beats = Callable[[Session], Coroutine[Any, Any, None]]


def run(cluster: FakeCluster, work: Beats) -> None:
    """`work` with a session that knows the route of T."""

    async def main() -> None:
        config = ClientConfig(NAME_SERVER, client_id="me", runtime=cluster.client.runtime())
        async with Session(config) as session:
            await session.routes.route("T")
            await asyncio.sleep(1)  # until it is noticed that the route is new
            await work(session)

    cluster.run(main)


async def not_consumed(_record: Record, _broker_name: str) -> bool:
    return False


def member(woken: list[str]) -> MemberCallbacks:
    """A member of G, which notes in `woken` when it is told to rebalance."""
    data = ConsumerData("G")
    return MemberCallbacks(
        data,
        lambda: woken.append("G"),
        lambda _: None,
        dict[MessageQueue, QueueState],
        not_consumed,
    )


@pytest.fixture
def other(cluster: FakeCluster, broker: FakeBroker) -> FakeBroker:
    """Both have the topic T."""
    other = cluster.broker("10.0.2.1:10911", "broker-b")
    for each in (broker, other):
        each.create("T", 1)
    return other


def beats(broker: FakeBroker) -> int:
    return len(broker.requests[RequestCode.HEART_BEAT])


def test_without_a_group_there_is_nothing_to_say(
    cluster: FakeCluster, broker: FakeBroker, other: FakeBroker
) -> None:
    async def work(session: Session) -> None:
        await session.membership.beat()
        await asyncio.sleep(2 * PERIOD_S)

    run(cluster, work)
    assert beats(broker) == beats(other) == 0


def test_a_client_is_in_a_group_once(cluster: FakeCluster, other: FakeBroker) -> None:
    async def work(session: Session) -> None:
        session.membership.join_as_consumer("G", member([]))
        with pytest.raises(ConfigError, match="in group G twice"):
            session.membership.join_as_consumer("G", member([]))

    run(cluster, work)


@pytest.mark.parametrize("jump_ms", [-3_600_000, 0, 3_600_000])
def test_heartbeats_keep_their_period_when_the_wall_clock_is_set(
    cluster: FakeCluster, broker: FakeBroker, other: FakeBroker, jump_ms: int
) -> None:
    async def work(session: Session) -> None:
        session.membership.join_as_producer("P")
        await asyncio.sleep(1)
        cluster.client.clock_ahead_ms += jump_ms
        await asyncio.sleep(PERIOD_S - 2)
        assert beats(broker) == 1
        await asyncio.sleep(2)
        assert beats(broker) == 2

    run(cluster, work)


def test_a_client_says_how_often_brokers_hear_of_it_and_it_asks_for_routes(
    cluster: FakeCluster, broker: FakeBroker
) -> None:
    async def run() -> None:
        async with producer(cluster, heartbeat_ms=5000, poll_name_server_ms=100) as p:
            await p.send("T", b"1")
            await asyncio.sleep(1)
            broker.requests[RequestCode.HEART_BEAT].clear()
            cluster.route_requests.clear()
            await asyncio.sleep(10.5)
            assert len(broker.requests[RequestCode.HEART_BEAT]) == 2
            assert 90 < cluster.route_requests.count("T") < 106

    cluster.create("T", "broker-a")
    cluster.run(run)


def test_a_new_broker_hears_at_once_and_then_the_group_is_rebalanced(
    cluster: FakeCluster, broker: FakeBroker, other: FakeBroker
) -> None:
    async def work(session: Session) -> None:
        woken: list[str] = []
        session.membership.join_as_consumer("G", member(woken))
        await asyncio.sleep(2 * PERIOD_S + 5)
        assert (beats(broker), beats(other)) == (2, 0)
        cluster.listed.add(other.address)
        woken.clear()
        before = beats(broker)
        await session.routes.refresh("T")
        await asyncio.sleep(1)
        assert (beats(broker) - before, beats(other)) == (1, 1)
        assert woken == ["G", "G"], "by the new broker, and after the heartbeat"
        await asyncio.sleep(PERIOD_S)
        assert (beats(other), len(woken)) == (2, 2), "a heartbeat on time wakes nobody"

    cluster.listed.remove(other.address)
    run(cluster, work)


@pytest.mark.parametrize("code", [SILENCE, ResponseCode.SYSTEM_ERROR])
def test_a_broker_that_takes_no_heartbeat_keeps_none_from_the_others(
    cluster: FakeCluster,
    broker: FakeBroker,
    other: FakeBroker,
    code: int,
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def work(session: Session) -> None:
        session.membership.join_as_consumer("G", member([]))
        broker.script[RequestCode.HEART_BEAT] = [code]
        assert await session.membership.beat() == []

    run(cluster, work)
    assert beats(other) == 1
    (line,) = caplog.messages
    if code == SILENCE:
        assert line.startswith(f"broker does not answer: address={broker.address} error=")
    else:
        assert line.startswith(f"client task failed: task='heartbeat to {broker.address}'")


def test_a_broker_that_denies_access_is_named_and_the_others_hear(
    cluster: FakeCluster, broker: FakeBroker, other: FakeBroker
) -> None:
    def deny(request: Command) -> None:
        if request.code == RequestCode.HEART_BEAT:
            raise Refused(1, "org.apache.rocketmq.acl.common.AclException: no")

    async def work(session: Session) -> None:
        session.membership.join_as_consumer("G", member([]))
        (denial,) = await session.membership.beat()
        assert isinstance(denial, AccessDenied)
        assert broker.address in str(denial)

    broker.on_request = deny
    run(cluster, work)
    assert list(other.members["G"]) == []
    assert beats(other) == 1


def test_a_heartbeat_goes_on_although_its_caller_was_cancelled(
    cluster: FakeCluster, broker: FakeBroker, other: FakeBroker
) -> None:
    async def work(session: Session) -> None:
        session.membership.join_as_consumer("G", member([]))
        beating = asyncio.create_task(session.membership.beat())
        await asyncio.sleep(0)
        beating.cancel()
        await asyncio.wait([beating])
        assert beating.cancelled()
        assert beats(broker) == 0
        await asyncio.sleep(1)
        assert beats(broker) == beats(other) == 1

    run(cluster, work)


def test_heartbeats_that_wait_for_the_one_under_way_are_one(
    cluster: FakeCluster, broker: FakeBroker, other: FakeBroker
) -> None:
    async def work(session: Session) -> None:
        session.membership.join_as_consumer("G", member([]))
        broker.script[RequestCode.HEART_BEAT] = [SILENCE]
        first = asyncio.create_task(session.membership.beat())
        await asyncio.sleep(1)
        following = [asyncio.create_task(session.membership.beat()) for _ in range(3)]
        following[0].cancel()
        session.membership.join_as_producer("P")
        assert await first == []
        assert beats(broker) == 1
        assert [await each for each in following[1:]] == [[], []]
        assert beats(broker) == 2
        last = parse(broker.requests[RequestCode.HEART_BEAT][-1].body, Heartbeat.from_json)
        assert last.producers == ("P",)

    run(cluster, work)


@pytest.mark.parametrize(("begins_s", "ends_s"), [(0, 3), (2.9, 5), (4.5, 5.5)])
def test_a_heartbeat_that_another_task_begins_in_a_close_has_the_time_of_the_close(
    cluster: FakeCluster, broker: FakeBroker, other: FakeBroker, begins_s: float, ends_s: float
) -> None:
    """The close waits for it. It took its whole 3 s, also at a broker known not to answer."""

    async def work(session: Session) -> None:
        async def beat() -> None:
            await asyncio.sleep(begins_s)
            for end_s in (ends_s, ends_s + AWAY_S):
                await session.membership.beat()
                assert now_s() - began == pytest.approx(end_s, abs=0.02)

        session.membership.join_as_consumer("G", member([]))
        broker.script[RequestCode.HEART_BEAT] = [SILENCE] * 2
        began = now_s()
        beating = asyncio.create_task(beat())
        with session.closing():
            await beating
        assert beats(broker) == beats(other) == 2

    run(cluster, work)


def test_consumers_leave_before_producers_and_no_heartbeat_names_them_again(
    cluster: FakeCluster, broker: FakeBroker, other: FakeBroker
) -> None:
    async def work(session: Session) -> None:
        session.membership.join_as_producer("P2")
        session.membership.join_as_producer("P1")
        session.membership.join_as_consumer("G", member([]))
        await session.membership.leave_all()
        before = beats(broker)
        await session.membership.beat()
        assert beats(broker) == before

    run(cluster, work)
    assert [request.fields for request in broker.requests[RequestCode.UNREGISTER_CLIENT]] == [
        {"clientID": "me", "consumerGroup": "G"},
        {"clientID": "me", "producerGroup": "P1"},
        {"clientID": "me", "producerGroup": "P2"},
    ]
