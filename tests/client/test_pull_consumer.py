"""Plain access to queues against brokers that do as scripted."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from typing import Any

import pytest

from roquet.client.pull_consumer import PullConsumer, PullStatus
from roquet.errors import (
    CallTimeout,
    ConfigError,
    ConnectionClosed,
    MessageError,
    ResponseError,
    RouteNotFound,
)
from roquet.protocol.headers.pull import SUBSCRIPTION, SUSPEND
from roquet.protocol.records.message import MessageQueue
from roquet.protocol.remoting.codes import RequestCode
from tests.client.cluster import CLIENT, NAME_SERVER, SILENCE, FakeBroker, FakeCluster

PULL = RequestCode.PULL_MESSAGE
QUEUE = MessageQueue("T", "broker-a", 0)


@pytest.fixture
def slave(cluster: FakeCluster, broker: FakeBroker) -> FakeBroker:
    return cluster.broker("10.0.1.2:10911", broker_id=1, log=broker.log)


def reader(cluster: FakeCluster, **options: Any) -> PullConsumer:
    return PullConsumer(
        NAME_SERVER, client_id=f"{CLIENT}@test", runtime=cluster.client.runtime(), **options
    )


def fill(broker: FakeBroker, count: int) -> None:
    broker.create("T", queues=1)
    for number in range(count):
        broker.store("T", 0, b"%d" % number, f"TAGS\x01{'Aa' if number % 2 else 'BB'}")


def kill(cluster: FakeCluster, broker: FakeBroker) -> None:
    broker.host.kill()
    cluster.listed.discard(broker.address)


def test_a_pull_brings_messages_and_where_to_go_on(
    cluster: FakeCluster, broker: FakeBroker
) -> None:
    async def read() -> None:
        async with reader(cluster) as r:
            assert await r.queues("T") == [QUEUE]
            assert (await r.min_offset(QUEUE), await r.max_offset(QUEUE)) == (0, 5)
            result = await r.pull(QUEUE, 1, max_messages=3)
            assert [message.body for message in result.messages] == [b"1", b"2", b"3"]
            assert (result.status, result.next_offset) == (PullStatus.FOUND, 4)
            assert (result.min_offset, result.max_offset) == (0, 5)

    fill(broker, 5)
    cluster.run(read)


def test_many_pulls_at_once_bring_what_each_of_them_brings(
    cluster: FakeCluster, broker: FakeBroker
) -> None:
    async def read() -> None:
        async with reader(cluster) as r:
            results = await r.pull_all(QUEUE, [3, 0, 9], max_messages=2)
            assert [[message.body for message in result.messages] for result in results] == [
                [b"3", b"4"],
                [b"0", b"1"],
                [],
            ]
            assert [result.status for result in results] == [
                PullStatus.FOUND,
                PullStatus.FOUND,
                PullStatus.OFFSET_ILLEGAL,
            ]

    fill(broker, 5)
    cluster.run(read)


def test_many_pulls_of_which_one_is_not_answered_are_an_error(
    cluster: FakeCluster, broker: FakeBroker
) -> None:
    async def read() -> None:
        async with reader(cluster, timeout_ms=700) as r:
            await r.pull(QUEUE, 0)
            broker.script[PULL] = [SILENCE]
            with pytest.raises(CallTimeout, match="did not answer 3 requests within 700 ms"):
                await r.pull_all(QUEUE, [0, 1, 2])
            assert len(await r.pull_all(QUEUE, [0, 1, 2])) == 3, "the connection is still good"

    fill(broker, 5)
    cluster.run(read)


def test_many_pulls_go_to_another_broker_when_the_connection_ends(
    cluster: FakeCluster, broker: FakeBroker, slave: FakeBroker
) -> None:
    async def read() -> None:
        async with reader(cluster) as r:
            await r.pull(QUEUE, 0)
            broker.script[PULL] = [SILENCE] * 3
            asking = asyncio.create_task(r.pull_all(QUEUE, [0, 1, 2]))
            await asyncio.sleep(0.1)
            kill(cluster, broker)
            assert [result.next_offset for result in await asking] == [5, 5, 5]

    fill(broker, 5)
    cluster.run(read)
    assert len(slave.requests[PULL]) == 3


def test_records_have_exactly_the_wanted_tags_while_the_body_is_as_the_broker_sent_it(
    cluster: FakeCluster, broker: FakeBroker
) -> None:
    async def read() -> None:
        async with reader(cluster) as r:
            result = await r.pull(QUEUE, 0, tags="Aa")
            assert [message.body for message in result.messages] == [b"1", b"3"]
            assert b"BB" in result.body  # has the same hash code

    fill(broker, 4)
    cluster.run(read)


def test_other_answers_say_where_to_go_on_as_well(cluster: FakeCluster, broker: FakeBroker) -> None:
    async def read() -> None:
        async with reader(cluster) as r:
            answers = [
                await r.pull(QUEUE, 4),
                await r.pull(QUEUE, 99),
                await r.pull(QUEUE, 0, tags="none"),
            ]
            assert [(answer.status, answer.next_offset) for answer in answers] == [
                (PullStatus.NO_NEW, 4),
                (PullStatus.OFFSET_ILLEGAL, 4),
                (PullStatus.NO_MATCHED, 4),
            ]
            assert all(answer.messages == [] for answer in answers)

    fill(broker, 4)
    cluster.run(read)


def test_a_pull_brings_its_own_subscription_and_needs_no_group(
    cluster: FakeCluster, broker: FakeBroker
) -> None:
    async def read() -> None:
        async with reader(cluster) as r:
            await r.pull(QUEUE, 0, tags="a||b")
            await r.pull(QUEUE, 1, hold_ms=2000)

    fill(broker, 1)
    cluster.run(read)
    at_once, held = broker.requests[PULL]
    assert (at_once.fields["sysFlag"], at_once.fields["subscription"]) == (
        str(SUBSCRIPTION),
        "a||b",
    )
    assert (held.fields["sysFlag"], held.fields["suspendTimeoutMillis"]) == (
        str(SUBSCRIPTION | SUSPEND),
        "2000",
    )
    assert broker.requests[RequestCode.HEART_BEAT] == []
    assert cluster.nothing_is_left()


def test_the_offset_of_any_group_can_be_read_and_set(
    cluster: FakeCluster, broker: FakeBroker
) -> None:
    async def read() -> None:
        async with reader(cluster) as r:
            assert await r.committed("G", QUEUE) is None
            await r.commit("G", QUEUE, 3)
            assert await r.committed("G", QUEUE) == 3

    fill(broker, 4)
    cluster.run(read)


def test_a_refusal_says_who_and_why(cluster: FakeCluster, broker: FakeBroker) -> None:
    async def read() -> None:
        async with reader(cluster) as r:
            await r.pull(QUEUE, 0)

    fill(broker, 1)
    broker.script[PULL] = [16]
    with pytest.raises(ResponseError, match=r"10\.0\.1\.1:10911 answered code 16: scripted"):
        cluster.run(read)


def test_a_topic_or_a_broker_that_nobody_knows_is_an_error(
    cluster: FakeCluster, broker: FakeBroker
) -> None:
    async def read(queue: MessageQueue) -> None:
        async with reader(cluster) as r:
            await r.pull(queue, 0)

    fill(broker, 1)
    with pytest.raises(RouteNotFound, match="topic U"):
        cluster.run(lambda: read(MessageQueue("U", "broker-a", 0)))
    with pytest.raises(RouteNotFound, match="route of T: no address of broker gone"):
        cluster.run(lambda: read(MessageQueue("T", "gone", 0)))


def test_a_group_name_that_is_none_is_refused_at_once() -> None:
    with pytest.raises(MessageError):
        PullConsumer(NAME_SERVER, group="no group")


# master and slave


def test_a_suggested_broker_is_asked_next_per_queue(
    cluster: FakeCluster, broker: FakeBroker, slave: FakeBroker
) -> None:
    async def read() -> None:
        async with reader(cluster) as r:
            await r.pull(QUEUE, 0)
            await r.pull(QUEUE, 0)
            await r.pull(QUEUE, 0)

    fill(broker, 1)
    broker.suggested_broker_id = 1
    cluster.run(read)
    assert (len(broker.requests[PULL]), len(slave.requests[PULL])) == (2, 1)


def test_reads_from_the_master_go_to_the_master_only(
    cluster: FakeCluster, broker: FakeBroker, slave: FakeBroker
) -> None:
    async def read() -> None:
        async with reader(cluster, read_from="master") as r:
            await r.pull(QUEUE, 0)
            await r.pull(QUEUE, 0)
            kill(cluster, broker)
            with pytest.raises((ConnectionClosed, RouteNotFound)):
                await r.pull(QUEUE, 0)

    fill(broker, 1)
    broker.suggested_broker_id = 1
    cluster.run(read)
    assert slave.requests[PULL] == []


def test_reads_from_a_slave_go_to_the_master_only_if_there_is_no_slave(
    cluster: FakeCluster, broker: FakeBroker, slave: FakeBroker
) -> None:
    async def read() -> None:
        async with reader(cluster, read_from="slave") as r:
            await r.pull(QUEUE, 0)
            assert (len(broker.requests[PULL]), len(slave.requests[PULL])) == (0, 1)
            kill(cluster, slave)
            await r.pull(QUEUE, 0)
            assert len(broker.requests[PULL]) == 1

    fill(broker, 1)
    cluster.run(read)


def test_everything_is_still_answered_when_only_the_slave_is_left(
    cluster: FakeCluster, broker: FakeBroker, slave: FakeBroker
) -> None:
    async def read() -> None:
        async with reader(cluster) as r:
            assert await r.queues("T") == [QUEUE]
            kill(cluster, broker)
            assert await r.queues("T") == [QUEUE]
            assert (await r.min_offset(QUEUE), await r.max_offset(QUEUE)) == (0, 2)
            assert len((await r.pull(QUEUE, 0)).messages) == 2
            await r.commit("G", QUEUE, 2)
            assert await r.committed("G", QUEUE) == 2

    fill(broker, 2)
    cluster.run(read)


def test_a_master_that_the_name_server_still_lists_is_tried_again_only_after_a_while(
    cluster: FakeCluster, broker: FakeBroker, slave: FakeBroker
) -> None:
    async def read() -> float:
        async with reader(cluster) as r:
            await r.pull(QUEUE, 0)
            broker.host.crash(silently=True)
            began = cluster.sim.now_s
            for _ in range(20):
                await r.pull(QUEUE, 0)
            return cluster.sim.now_s - began

    fill(broker, 1)
    assert cluster.run(read) < 5, "one timeout, not twenty"
    assert len(slave.requests[PULL]) == 20


def test_a_broker_that_does_not_answer_in_time_is_an_error(
    cluster: FakeCluster, broker: FakeBroker
) -> None:
    async def read() -> None:
        async with reader(cluster, timeout_ms=700) as r:
            await r.pull(QUEUE, 0)

    fill(broker, 1)
    broker.script[PULL] = [SILENCE] * 9
    with pytest.raises(CallTimeout, match="did not answer"):
        cluster.run(read)


def test_an_argument_of_a_wrong_type_is_refused_by_its_name(
    cluster: FakeCluster, broker: FakeBroker
) -> None:
    async def read() -> None:
        wrong: Any = "5"
        async with reader(cluster) as r:
            for name, asking in (
                ("queue is '5' of type str: give a MessageQueue", r.pull(wrong, 0)),
                ("queue is '5'", r.pull_all(wrong, [0])),
                ("queue is '5'", r.min_offset(wrong)),
                ("queue is '5'", r.max_offset(wrong)),
                ("queue is '5'", r.committed("G", wrong)),
                ("queue is MessageQueue", r.pull(MessageQueue("T", "broker-a", wrong), 0)),
                ("offset is '5' of type str: give a number", r.pull(QUEUE, wrong)),
                ("offset is True", r.pull(QUEUE, True)),
                ("max_messages is '5'", r.pull(QUEUE, 0, max_messages=wrong)),
                ("when is '5'", r.offset_at(QUEUE, wrong)),
                ("offset is '5'", r.commit("G", QUEUE, wrong)),
                ("group is None", r.commit(None, QUEUE, 5)),  # type: ignore[arg-type]
                ("topic is None", r.queues(None)),  # type: ignore[arg-type]
            ):
                with pytest.raises(MessageError, match=name):
                    await asking
            with pytest.raises(ConfigError, match=r"the filter of T is \['a'\]: give tags"):
                await r.pull(QUEUE, 0, tags=["a"])  # type: ignore[arg-type]

    fill(broker, 1)
    cluster.run(read)
    assert set(broker.requests) <= {RequestCode.HEART_BEAT, RequestCode.UNREGISTER_CLIENT}


def test_an_offset_is_found_by_a_datetime_as_by_milliseconds(
    cluster: FakeCluster, broker: FakeBroker
) -> None:
    async def read() -> list[int]:
        async with reader(cluster) as r:
            when = datetime.fromtimestamp(1_700_000_000.123, UTC)
            return [await r.offset_at(QUEUE, when), await r.offset_at(QUEUE, 1_700_000_000_123)]

    fill(broker, 3)
    cluster.run(read)
    asked = broker.requests[RequestCode.SEARCH_OFFSET_BY_TIMESTAMP]
    assert [request.fields["timestamp"] for request in asked] == ["1700000000123"] * 2


def test_a_number_that_no_broker_can_read_is_refused_by_its_name(
    cluster: FakeCluster, broker: FakeBroker
) -> None:
    async def read() -> None:
        async with reader(cluster) as r:
            beyond = 1 << 63
            for name, asking in (
                ("offset", r.pull(QUEUE, beyond)),
                ("max_messages", r.pull(QUEUE, 0, max_messages=1 << 31)),
                ("offset", r.pull_all(QUEUE, [0, -beyond - 1])),
                ("when", r.offset_at(QUEUE, beyond)),
                ("offset", r.commit("G", QUEUE, beyond)),
                ("queue_id", r.max_offset(MessageQueue("T", "broker-a", 1 << 31))),
            ):
                with pytest.raises(MessageError, match=rf"{name} is -?\d+: allowed are"):
                    await asking

    fill(broker, 1)
    cluster.run(read)
    assert set(broker.requests) <= {RequestCode.HEART_BEAT, RequestCode.UNREGISTER_CLIENT}
