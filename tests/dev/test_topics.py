"""Topics and groups of a test cluster are created, and nothing is left of them once deleted."""

from __future__ import annotations

import roquet
from roquet.dev import Cluster
from tests.dev.test_cluster import received, send
from tests.interop import wire


async def test_a_deleted_topic_is_gone_and_begins_again_at_offset_0() -> None:
    async with Cluster() as cluster:
        for _ in range(2):
            cluster.create_topic("orders", queues=1)
            assert (await send(cluster, "orders", b"one")).queue_offset == 0
            cluster.delete_topic("orders")
            assert not wire.has_topic(cluster.name_server, "orders")


async def test_a_deleted_group_has_no_offsets() -> None:
    async with Cluster() as cluster:
        cluster.create_topic("orders", queues=1)
        await send(cluster, "orders", b"one")
        assert await received(cluster, "orders") == [b"one"]
        async with roquet.Consumer(
            cluster.name_server, "orders-group", "orders", "earliest"
        ) as consumer:
            async for message in consumer:
                async with message:
                    break
        cluster.delete_group("orders-group")

        assert await received(cluster, "orders") == [b"one"]
