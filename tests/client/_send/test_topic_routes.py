"""The queues and masters of a producer's topics: when name servers are asked, and for how long."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from roquet.client._net.routes import QUEUES_MAX
from roquet.client._net.session import Session
from roquet.client._net.tasks import deadline_after
from roquet.client._send.topic_routes import REFRESH_WAIT_S, TopicRoute, TopicRoutes
from roquet.client.config import ClientConfig
from roquet.errors import CallTimeout, ConnectionClosed, RouteNotFound
from roquet.protocol.records.message import MessageQueue
from tests.client.cluster import NAME_SERVER, FakeBroker, FakeCluster

QUEUE = MessageQueue("T", "broker-a", 0)

Work = Callable[[TopicRoutes, Session], Coroutine[Any, Any, None]]


def run(cluster: FakeCluster, work: Work) -> None:
    async def main() -> None:
        config = ClientConfig(NAME_SERVER, client_id="me", runtime=cluster.client.runtime())
        async with Session(config) as session:
            await work(TopicRoutes(session), session)

    cluster.run(main)


async def get(routes: TopicRoutes, topic: str = "T") -> TopicRoute:
    return await routes.get(topic, deadline_after(1000))


@pytest.fixture
def broker(cluster: FakeCluster) -> FakeBroker:
    broker = cluster.broker()
    broker.create("T", 2)
    return broker


def test_a_topic_has_its_queues_and_their_master(cluster: FakeCluster, broker: FakeBroker) -> None:
    async def work(routes: TopicRoutes, _: Session) -> None:
        assert await routes.queues("T", 1000) == (QUEUE, MessageQueue("T", "broker-a", 1))
        assert await routes.master(QUEUE, 1000) == broker.address

    run(cluster, work)
    assert cluster.route_requests == ["T"]


def test_what_is_prepared_stays_as_long_as_the_route_does(
    cluster: FakeCluster, broker: FakeBroker
) -> None:
    async def work(routes: TopicRoutes, session: Session) -> None:
        first = await get(routes)
        await session.routes.refresh("T")
        assert await get(routes) is first
        cluster.listed.add(other.address)
        await session.routes.refresh("T")
        second = await get(routes)
        assert second is not first
        assert len(second.queues) == 3

    other = cluster.broker("10.0.1.2:10911", "broker-b")
    other.create("T", 1)
    cluster.listed.remove(other.address)
    run(cluster, work)


def test_a_topic_that_is_to_be_created_has_the_queues_that_it_will_have(
    cluster: FakeCluster, broker: FakeBroker
) -> None:
    async def work(routes: TopicRoutes, _: Session) -> None:
        assert {queue.topic for queue in await routes.queues("new", 1000)} == {"new"}

    run(cluster, work)


def test_a_topic_without_a_master_is_asked_for_again_and_refused(
    cluster: FakeCluster, broker: FakeBroker
) -> None:
    async def work(routes: TopicRoutes, _: Session) -> None:
        with pytest.raises(RouteNotFound, match="topic S has no writable queue whose master is up"):
            await get(routes, "S")
        asked = len(cluster.route_requests)
        cluster.listed.add(master.address)
        found = await get(routes, "S")
        assert len(cluster.route_requests) > asked
        assert [queue.broker_name for queue in found.queues] == ["broker-s"]

    cluster.broker("10.0.1.3:10911", "broker-s", broker_id=1).create("S", 1)
    master = cluster.broker("10.0.1.4:10911", "broker-s")
    cluster.listed.remove(master.address)
    run(cluster, work)


def test_the_master_of_another_brokers_queue_is_none(
    cluster: FakeCluster, broker: FakeBroker
) -> None:
    async def work(routes: TopicRoutes, _: Session) -> None:
        with pytest.raises(ConnectionClosed, match="broker broker-x has no master for queue"):
            await routes.master(MessageQueue("T", "broker-x", 0), 1000)

    run(cluster, work)


def test_name_servers_are_asked_until_the_deadline(
    cluster: FakeCluster, broker: FakeBroker
) -> None:
    async def work(routes: TopicRoutes, _: Session) -> None:
        cluster.sim.network.isolate(cluster.name_server_host.address)
        began = cluster.sim.now_s
        with pytest.raises(CallTimeout, match="no name server returned the route of T in time"):
            await get(routes)
        assert cluster.sim.now_s - began == pytest.approx(1.0)

    run(cluster, work)


def test_a_refresh_does_not_wait_long_for_a_silent_name_server(
    cluster: FakeCluster, broker: FakeBroker
) -> None:
    async def work(routes: TopicRoutes, _: Session) -> None:
        await get(routes)
        cluster.sim.network.isolate(cluster.name_server_host.address)
        began = cluster.sim.now_s
        await routes.refresh("T", deadline_after(1000))
        assert cluster.sim.now_s - began == pytest.approx(REFRESH_WAIT_S)
        await routes.refresh("T", deadline_after(100))
        assert cluster.sim.now_s - began == pytest.approx(REFRESH_WAIT_S + 0.1)
        await get(routes)

    run(cluster, work)


def test_those_who_refresh_a_route_at_once_share_one_request(
    cluster: FakeCluster, broker: FakeBroker
) -> None:
    async def work(routes: TopicRoutes, _: Session) -> None:
        await asyncio.gather(*(routes.refresh("T", deadline_after(1000)) for _ in range(100)))

    run(cluster, work)
    assert cluster.route_requests == ["T"]


def test_a_refresh_of_a_topic_that_is_to_be_created_is_no_failure(
    cluster: FakeCluster, broker: FakeBroker, caplog: pytest.LogCaptureFixture
) -> None:
    async def work(routes: TopicRoutes, _: Session) -> None:
        await get(routes, "new")
        await routes.refresh("new", deadline_after(1000))

    run(cluster, work)
    assert not caplog.records


def test_a_refresh_with_an_unusable_route_is_a_failure_and_the_known_one_stays(
    cluster: FakeCluster, broker: FakeBroker, caplog: pytest.LogCaptureFixture
) -> None:
    """Anybody may register billions of queues. A send ended with that, and was not retried."""

    async def work(routes: TopicRoutes, _: Session) -> None:
        known = await get(routes)
        cluster.topics["T"]["broker-a"] = QUEUES_MAX + 1
        await routes.refresh("T", deadline_after(1000))
        assert await get(routes) is known

    run(cluster, work)
    (record,) = caplog.records
    assert record.getMessage() == (
        "route not refreshed: topic=T error=the name server's route of T cannot be used: "
        f"{QUEUES_MAX + 1} queues, possible are {QUEUES_MAX}"
    )
