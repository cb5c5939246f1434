"""The client of a cluster: the session that its producers and consumers share."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Iterator
from typing import Any, get_type_hints

import pytest

import roquet
from roquet import (
    ClientStateError,
    ConfigError,
    Message,
    Producer,
    ReceivedMessage,
    TransactionState,
)
from roquet.cluster import Client
from roquet.protocol.remoting.codes import RequestCode
from tests.client.cluster import CLIENT, NAME_SERVER, SILENCE, FakeBroker, FakeCluster
from tests.client.consumers import bodies, fill, stored
from tests.simulation.simulation import Simulation


@pytest.fixture
def cluster() -> Iterator[FakeCluster]:
    with Simulation("client") as sim:
        yield FakeCluster(sim)


@pytest.fixture
def broker(cluster: FakeCluster) -> FakeBroker:
    return cluster.broker()


def client_of(cluster: FakeCluster) -> Client:
    return roquet.connect(NAME_SERVER, client_id=f"{CLIENT}@test", runtime=cluster.client.runtime())


def unregistered(broker: FakeBroker) -> list[str]:
    """The producer groups that clients have left, in order."""
    return [
        request.fields["producerGroup"]
        for request in broker.requests[RequestCode.UNREGISTER_CLIENT]
        if "producerGroup" in request.fields
    ]


async def check(_: ReceivedMessage) -> TransactionState:
    return TransactionState.COMMIT


class Crowd:
    """A client, and what shares its session."""

    def __init__(self, cluster: FakeCluster) -> None:
        self.mq: Client = client_of(cluster)

    async def start(self) -> None:
        await self.mq.start()
        self.producer = await self.mq.producer("P").start()
        self.consumer = await self.mq.consumer("G", "T", start="earliest").start()


def test_the_clients_of_a_session_share_its_connections_and_are_closed_with_it(
    cluster: FakeCluster, broker: FakeBroker
) -> None:
    async def run() -> None:
        crowd = Crowd(cluster)
        await crowd.start()
        assert await crowd.mq.send("T", b"3")
        assert await crowd.producer.send("T", b"4")
        assert sorted(await bodies(crowd.consumer, 5)) == [b"0", b"1", b"2", b"3", b"4"]
        assert [*broker.members["G"]] == [f"{CLIENT}@test"]
        await crowd.mq.close()
        for client in (crowd.mq, crowd.producer, crowd.consumer):
            assert not client.is_open
        assert broker.members["G"] == {}

    fill(broker, 3)
    cluster.run(run)


def test_a_client_of_a_session_leaves_its_group_and_the_others_work_on(
    cluster: FakeCluster, broker: FakeBroker
) -> None:
    async def run() -> None:
        crowd = Crowd(cluster)
        await crowd.start()
        await bodies(crowd.consumer, 3)
        await crowd.consumer.close()
        assert broker.members["G"] == {}
        await crowd.producer.send("T", b"3")
        async with crowd.mq.consumer("G", "T", start="earliest") as again:
            assert await bodies(again, 1) == [b"3"]
        await crowd.mq.close()

    fill(broker, 3)
    cluster.run(run)


def test_nothing_is_started_in_a_session_that_is_being_closed(
    cluster: FakeCluster, broker: FakeBroker
) -> None:
    async def run() -> None:
        crowd = Crowd(cluster)
        await crowd.start()
        closing = asyncio.create_task(crowd.mq.close())
        await asyncio.sleep(0)
        with pytest.raises(ClientStateError, match="cannot be started: the client whose session"):
            await crowd.mq.producer("late").start()
        await closing

    fill(broker, 3)
    cluster.run(run)
    assert cluster.nothing_is_left()


def test_handlers_that_end_during_the_close_still_have_the_producer(
    cluster: FakeCluster, broker: FakeBroker
) -> None:
    async def run() -> None:
        mq = await client_of(cluster).start()

        async def book(message: ReceivedMessage) -> None:
            await asyncio.sleep(1)
            await mq.send("booked", message.body)

        member = await mq.consumer("G", "T", start="earliest").start()
        running = asyncio.create_task(member.run(book, concurrency=3))
        await asyncio.sleep(0.5)
        await mq.send("T", b"the default producer is started after the consumer")
        await mq.close()
        await running

    fill(broker, 3)
    cluster.run(run)
    assert sum(len(queue) for key, queue in broker.log.queues.items() if key[0] == "booked") == 3
    assert stored(broker)[0] >= 3


def test_a_producer_that_joins_while_another_leaves_keeps_its_group(
    cluster: FakeCluster, broker: FakeBroker
) -> None:
    async def run() -> None:
        async with client_of(cluster) as mq:
            first = await mq.producer("P").start()
            await first.send("T", b"1")
            beats = len(broker.requests[RequestCode.HEART_BEAT])
            broker.script[RequestCode.HEART_BEAT].append(SILENCE)
            await mq.producer("Q").start()
            await asyncio.sleep(0.1)
            assert len(broker.requests[RequestCode.HEART_BEAT]) == beats + 1
            leaving = asyncio.create_task(first.close())
            await asyncio.sleep(0.1)
            second = await mq.transaction_producer("P", check).start()
            await leaving
            assert unregistered(broker) == []
            await second.close()
            assert unregistered(broker) == ["P"]

    fill(broker, 1)
    cluster.run(run)


def test_a_closed_transaction_producer_leaves_no_task(
    cluster: FakeCluster, broker: FakeBroker
) -> None:
    async def run() -> None:
        async with client_of(cluster) as mq:
            for _ in range(3):
                await (await mq.transaction_producer("P", check, topics=["none"]).start()).close()
            names = [task.get_name() for task in asyncio.all_tasks()]
            assert "announcing P" not in names

    fill(broker, 1)
    cluster.run(run)


@pytest.mark.parametrize("after_ms", [0, 1, 2, 3, 5, 8, 13, 20, 34])
@pytest.mark.parametrize("closes_all", [False, True])
def test_a_close_during_the_start_of_a_member_leaves_the_group(
    cluster: FakeCluster, broker: FakeBroker, after_ms: int, closes_all: bool
) -> None:
    async def run() -> None:
        mq = await client_of(cluster).start()
        member = mq.consumer("G", "T", start="earliest")
        starting = asyncio.create_task(member.start())
        await asyncio.sleep(after_ms / 1000)
        await (mq if closes_all else member).close()
        await asyncio.wait([starting])
        assert isinstance(starting.exception(), ClientStateError | None)
        if not closes_all:
            async with mq.consumer("G", "T", start="earliest") as again:
                assert await bodies(again, 3)
            await mq.close()

    fill(broker, 3)
    cluster.run(run)
    assert broker.members["G"] == {}
    assert cluster.nothing_is_left()


def test_a_session_has_one_member_of_a_group(cluster: FakeCluster, broker: FakeBroker) -> None:
    async def run() -> None:
        crowd = Crowd(cluster)
        await crowd.start()
        with pytest.raises(ConfigError, match="one session cannot be in group G twice"):
            await crowd.mq.consumer("G", "T").start()
        assert await bodies(crowd.consumer, 3)
        await crowd.mq.close()

    fill(broker, 3)
    cluster.run(run)


def test_producers_of_a_session_may_share_a_group_but_not_its_check_backs(
    cluster: FakeCluster, broker: FakeBroker
) -> None:
    async def run() -> None:
        async with client_of(cluster) as mq:
            first = await mq.producer("P").start()
            second = await mq.producer("P").start()
            asked = await mq.transaction_producer("P", check).start()
            with pytest.raises(ConfigError, match="group P has a TransactionProducer"):
                await mq.transaction_producer("P", check).start()
            await asked.close()
            await (await mq.transaction_producer("P", check).start()).close()
            await first.send("T", b"1")
            await first.close()
            assert unregistered(broker) == []
            await second.send("T", b"2")
            await second.close()
            assert unregistered(broker) == ["P"]

    fill(broker, 1)
    cluster.run(run)


def test_a_shared_session_has_its_options_already() -> None:
    mq = roquet.connect(NAME_SERVER)
    with pytest.raises(ConfigError, match="client_id: a shared session has its own"):
        mq.producer("P", client_id="10.0.0.1@other")


def test_a_client_can_be_awaited(cluster: FakeCluster, broker: FakeBroker) -> None:
    async def run() -> None:
        mq = await roquet.connect(NAME_SERVER, runtime=cluster.client.runtime())
        assert (await mq.send("T", b"1")).queue.topic == "T"
        await mq.close()

    fill(broker, 1)
    cluster.run(run)


def test_a_started_client_can_be_entered(cluster: FakeCluster, broker: FakeBroker) -> None:
    async def run() -> None:
        async with await client_of(cluster).start() as mq, await mq.producer("P").start() as p:
            await p.send("T", b"1")
        assert not mq.is_open

    fill(broker, 1)
    cluster.run(run)


def test_many_first_sends_of_a_client_share_one_producer(
    cluster: FakeCluster, broker: FakeBroker
) -> None:
    async def run() -> None:
        async with client_of(cluster) as mq:
            results = await asyncio.gather(*(mq.send("T", b"%d" % n) for n in range(20)))
            assert len({result.message_id for result in results}) == 20

    fill(broker, 1)
    cluster.run(run)
    assert unregistered(broker) == ["roquet"]


def arguments(method: Any) -> dict[str, Any]:
    """The types of a method's arguments by name, those of a TypedDict included."""
    types = get_type_hints(method)
    types.pop("return")
    for each in inspect.signature(method).parameters.values():
        if each.kind is inspect.Parameter.VAR_KEYWORD:
            (options,) = types.pop(each.name).__args__
            types |= get_type_hints(options)
    return types


@pytest.mark.parametrize(
    "name", ["send", "send_batch", "send_one_way", "flush", "request", "reply"]
)
def test_a_client_sends_with_the_arguments_of_a_producer(name: str) -> None:
    assert arguments(getattr(Client, name)) == arguments(getattr(Producer, name))


def test_a_client_sends_in_all_the_ways_of_a_producer(
    cluster: FakeCluster, broker: FakeBroker
) -> None:
    async def run() -> None:
        async with client_of(cluster) as mq:
            results = await mq.send_batch([Message("T", b"1"), Message("T", b"2")], timeout_ms=900)
            assert [each.queue_offset for each in results] == [1, 2]
            message_id = await mq.send_one_way("T", b"3", tags="new")
            async with mq.consumer("G", "T", start="earliest") as member:
                assert sorted(await bodies(member, 4)) == [b"0", b"1", b"2", b"3"]
            assert message_id

    fill(broker, 1)
    cluster.run(run)


def test_a_flush_of_a_client_is_one_of_all_its_producers(
    cluster: FakeCluster, broker: FakeBroker
) -> None:
    async def run() -> None:
        async with client_of(cluster) as mq:
            await mq.flush()
            producers = [await mq.producer(f"P{n}", linger_ms=2000).start() for n in range(2)]
            sends = [asyncio.create_task(each.send("T", b"x")) for each in producers]
            await asyncio.sleep(0.1)
            assert not any(send.done() for send in sends)
            await mq.flush()
            await asyncio.sleep(0)
            assert all(send.done() for send in sends)
        with pytest.raises(ClientStateError, match="was closed"):
            await mq.flush()

    fill(broker, 1)
    cluster.run(run)
