"""The connections of a client: when they are opened, shared and replaced."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from roquet.client._net.session import SILENT_CALLS_MAX, Session
from roquet.client.config import POLL_NAME_SERVER_MS, ClientConfig
from roquet.errors import CallTimeout, ConnectionClosed
from roquet.protocol.remoting.codes import RequestCode
from roquet.protocol.remoting.command import Command
from tests.client.cluster import CLIENT, NAME_SERVER, SILENCE, FakeBroker, FakeCluster
from tests.client.consumers import consumer, fill
from tests.client.producers import producer
from tests.simulation.network import LinkQuality

SEND, ASK = RequestCode.SEND_MESSAGE_V2, RequestCode.CHECK_CLIENT_CONFIG

Work = Callable[[Session], Coroutine[Any, Any, None]]


def run(cluster: FakeCluster, work: Work) -> None:
    async def main() -> None:
        config = ClientConfig(NAME_SERVER, client_id="me", runtime=cluster.client.runtime())
        async with Session(config) as session:
            await work(session)

    cluster.run(main)


async def ask(session: Session, broker: FakeBroker, timeout_ms: int = 500) -> int:
    """The code of an answer to a request that all brokers answer."""
    return (await session.call(broker.address, Command(ASK), timeout_ms)).code


async def lose(session: Session, broker: FakeBroker, count: int = 1) -> None:
    """So many requests at the same time without an answer."""
    broker.script[ASK] = [SILENCE] * count
    asking = [ask(session, broker) for _ in range(count)]
    lost = await asyncio.gather(*asking, return_exceptions=True)
    assert [type(error) for error in lost] == [CallTimeout] * count


def places(broker: FakeBroker) -> list[int]:
    """The number of each request on its connection, which begins with 1."""
    return [request.opaque for request in broker.requests[ASK]]


def test_calls_at_the_same_time_share_one_connection(
    cluster: FakeCluster, broker: FakeBroker
) -> None:
    async def work(session: Session) -> None:
        assert await asyncio.gather(*(ask(session, broker) for _ in range(9))) == [0] * 9

    run(cluster, work)
    assert sorted(places(broker)) == list(range(1, 10))


def test_a_connection_is_replaced_after_two_timeouts_in_a_row_but_not_after_one(
    cluster: FakeCluster, broker: FakeBroker
) -> None:
    async def send() -> None:
        async with producer(cluster, timeout_ms=500) as p:
            for silent in (0, 1, 0, 2, 0):
                broker.script[SEND] = [SILENCE] * silent
                for _ in range(silent):
                    with pytest.raises(CallTimeout):
                        await p.send("T", b"lost")
                if not silent:
                    await p.send("T", b"stored")

    cluster.run(send)
    first, _, after_one, _, _, after_two = (request.opaque for request in broker.requests[SEND])
    assert first < after_one, "still the same connection"
    assert after_two == 1, "the first request of a new connection"


def test_a_timeout_on_a_former_connection_does_not_count_for_the_next(
    cluster: FakeCluster, broker: FakeBroker
) -> None:
    async def work(session: Session) -> None:
        await lose(session, broker)
        cluster.sim.network.cut(CLIENT, broker.host.address)
        await asyncio.sleep(1)
        await lose(session, broker)
        await ask(session, broker)

    run(cluster, work)
    assert places(broker) == [1, 1, 2]


@pytest.mark.parametrize("count", [SILENT_CALLS_MAX, SILENT_CALLS_MAX + 1])
def test_timeouts_at_the_same_time_replace_one_connection(
    cluster: FakeCluster, broker: FakeBroker, count: int
) -> None:
    """Those beyond the maximum counted for the next connection, which had to go after one."""

    async def work(session: Session) -> None:
        await lose(session, broker, count)
        await lose(session, broker)
        await ask(session, broker)

    run(cluster, work)
    assert places(broker) == [*range(1, count + 1), 1, 2]


def test_each_address_has_its_own_timeouts(cluster: FakeCluster, broker: FakeBroker) -> None:
    other = cluster.broker("10.0.2.1:10911", "broker-b")

    async def work(session: Session) -> None:
        for each in (broker, other, broker, other):
            await ask(session, each)
        for each in (broker, other):
            await lose(session, each)
        for each in (broker, other):
            await ask(session, each)

    run(cluster, work)
    assert places(broker) == places(other) == [1, 2, 3, 4]


def test_connecting_takes_of_the_time_of_the_call(cluster: FakeCluster, broker: FakeBroker) -> None:
    async def work(session: Session) -> None:
        began = cluster.sim.now_s
        with pytest.raises(CallTimeout):
            await ask(session, broker, 1000)
        assert cluster.sim.now_s - began == pytest.approx(1, abs=0.01)

    slow = LinkQuality(latency_s=(0.3, 0.3), spike_chance=0.0, split_chance=0.0)
    cluster.sim.network.set_quality(CLIENT, broker.host.address, slow)
    broker.script[ASK] = [SILENCE]
    run(cluster, work)


@pytest.mark.parametrize("jump_ms", [-3_600_000, 3_600_000])
def test_a_host_that_nobody_hears_of_is_given_up_after_the_time_of_the_call(
    cluster: FakeCluster, broker: FakeBroker, jump_ms: int
) -> None:
    async def work(session: Session) -> None:
        began = cluster.sim.now_s
        asking = asyncio.create_task(ask(session, broker, 700))
        await asyncio.sleep(0.1)
        cluster.client.clock_ahead_ms += jump_ms
        with pytest.raises(CallTimeout, match=f"no connection to {broker.address} within 700 ms"):
            await asking
        assert cluster.sim.now_s - began == pytest.approx(0.7, abs=0.01)

    cluster.sim.network.isolate(broker.host.address)
    run(cluster, work)


def test_a_route_that_another_task_asks_for_in_a_close_has_the_time_of_the_close(
    cluster: FakeCluster, broker: FakeBroker
) -> None:
    """All callers share its request, and the close may be one of them."""

    async def work(session: Session) -> None:
        async def refresh() -> None:
            await asyncio.sleep(4)
            await session.routes.refresh_soon("T")

        await session.routes.route("T")
        cluster.sim.network.partition(cluster.name_server_host.address, CLIENT)
        began = cluster.sim.now_s
        refreshing = asyncio.create_task(refresh())
        with session.closing():
            await refreshing
        assert cluster.sim.now_s - began == pytest.approx(5, abs=0.02)

    broker.create("T", 1)
    run(cluster, work)


def test_a_one_way_request_opens_a_connection_again(
    cluster: FakeCluster, broker: FakeBroker
) -> None:
    async def work(session: Session) -> None:
        await session.notify(broker.address, Command(ASK), 500)
        await asyncio.sleep(1)
        broker.host.kill()
        await asyncio.sleep(1)
        with pytest.raises(ConnectionClosed):
            await session.notify(broker.address, Command(ASK), 500)
        cluster.restart(broker)
        await asyncio.sleep(1)
        await session.notify(broker.address, Command(ASK), 500)
        await asyncio.sleep(1)

    run(cluster, work)
    assert places(broker) == [1, 1]


def test_brokers_hear_of_the_groups_again_as_soon_as_their_connection_was_replaced(
    cluster: FakeCluster, broker: FakeBroker
) -> None:
    async def work(session: Session) -> None:
        await session.routes.route("T")
        session.membership.join_as_producer("P")
        await asyncio.sleep(1)
        beats = len(broker.requests[RequestCode.HEART_BEAT])
        await ask(session, broker)
        await asyncio.sleep(1)
        assert len(broker.requests[RequestCode.HEART_BEAT]) == beats, "the same connection"
        cluster.sim.network.cut(CLIENT, broker.host.address)
        await asyncio.sleep(1)
        await ask(session, broker)
        await asyncio.sleep(1)
        assert len(broker.requests[RequestCode.HEART_BEAT]) == beats + 1

    broker.create("T", 1)
    run(cluster, work)


def test_a_broker_that_is_in_no_route_any_more_is_disconnected(
    cluster: FakeCluster, broker: FakeBroker
) -> None:
    other = cluster.broker("10.0.2.1:10911", "broker-b")

    async def consume() -> None:
        async with consumer(cluster):
            await asyncio.sleep(1)
            assert [len(each.members["G"]) for each in (broker, other)] == [1, 1]
            cluster.listed.remove(other.address)
            await asyncio.sleep(2 * POLL_NAME_SERVER_MS / 1000)
            assert [len(each.members["G"]) for each in (broker, other)] == [1, 0]

    for each in (broker, other):
        fill(each, 0)
        each.create("%RETRY%G", 1)
    cluster.run(consume)
