"""A member joins its group and leaves it."""

from __future__ import annotations

from roquet.protocol.records.message import MessageQueue
from roquet.protocol.remoting.codes import RequestCode
from tests.client.cluster import FakeBroker, FakeCluster
from tests.client.consumers import bodies, consumer, fill


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
