"""A session tells hooks of its requests, if they want to know."""

from __future__ import annotations

from roquet.client._net.hooked_session import HookedSession, session_of
from roquet.client._net.session import Session
from roquet.client.config import ClientConfig
from roquet.client.pull_consumer import PullConsumer
from roquet.protocol.records.message import MessageQueue
from roquet.protocol.remoting.codes import RequestCode, ResponseCode
from tests.client.cluster import NAME_SERVER, FakeBroker, FakeCluster
from tests.client.consumers import fill
from tests.client.hooks import CallsSeen, SendsSeen

PULL = RequestCode.PULL_MESSAGE


async def test_only_hooks_for_requests_need_another_session() -> None:
    assert type(session_of(ClientConfig(NAME_SERVER, hooks=[SendsSeen()]))) is Session
    assert type(session_of(ClientConfig(NAME_SERVER, hooks=[CallsSeen()]))) is HookedSession


def test_pulls_that_leave_together_are_one_call(cluster: FakeCluster, broker: FakeBroker) -> None:
    async def pull() -> None:
        async with PullConsumer(NAME_SERVER, hooks=[calls]) as c:
            queue = MessageQueue("T", "broker-a", 0)
            await c.pull(queue, 0)
            await c.pull_all(queue, [0, 1, 2])
            assert await c.pull_all(queue, []) == []

    fill(broker, 2)
    calls = CallsSeen(PULL, RequestCode.GET_ROUTEINFO_BY_TOPIC)
    cluster.run(pull)
    assert calls.begun == calls.ended
    assert [(event.address, event.count, event.response_code) for event in calls.ended] == [
        (NAME_SERVER, 1, 0),
        (broker.address, 1, 0),
        (broker.address, 3, ResponseCode.PULL_NOT_FOUND),
    ]
