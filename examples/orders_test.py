"""Tests of a program that uses RocketMQ, with a broker of their own. Copy it and replace `bill`.

pip install '.[broker]' pytest pytest-asyncio
pytest examples/orders_test.py

The fixtures that begin with `roquet_` come with roquet.
"""

from __future__ import annotations

import pytest

from roquet import Consumer, Producer
from roquet.dev import Cluster

pytestmark = pytest.mark.asyncio


async def bill(name_server: str, group: str, orders: str, count: int) -> int:
    """The program under test: takes `count` orders, adds up their amounts and sends the sum to
    another topic.
    """
    total = 0
    async with (
        Consumer(name_server, group, orders, "earliest") as consumer,
        Producer(name_server, group) as producer,
    ):
        async for message in consumer:
            async with message:
                total += int(message.body)
                count -= 1
            if count == 0:
                await producer.send(f"{orders}-bills", b"%d" % total)
                return total
    return total


async def test_all_orders_are_billed(
    roquet_cluster: Cluster, roquet_topic: str, roquet_group: str
) -> None:
    name_server = roquet_cluster.name_server
    async with Producer(name_server, "shop") as producer:
        for amount in (3, 4, 5):
            await producer.send(roquet_topic, b"%d" % amount)

    assert await bill(name_server, roquet_group, roquet_topic, 3) == 12

    bills = f"{roquet_topic}-bills"
    async with Consumer(name_server, "auditors", bills, "earliest") as consumer:
        (message,) = await consumer.get_many(timeout_ms=5000)
    assert message.body == b"12"


async def test_what_was_billed_is_not_billed_again(
    roquet_cluster: Cluster, roquet_topic: str, roquet_group: str
) -> None:
    async with Producer(roquet_cluster.name_server, "shop") as producer:
        await producer.send(roquet_topic, b"1")
        assert await bill(roquet_cluster.name_server, roquet_group, roquet_topic, 1) == 1

        await producer.send(roquet_topic, b"2")
        assert await bill(roquet_cluster.name_server, roquet_group, roquet_topic, 1) == 2


async def test_a_killed_broker_loses_no_order(roquet_fresh_cluster: Cluster) -> None:
    async with Producer(roquet_fresh_cluster.name_server, "shop") as producer:
        await producer.send("orders", b"7")
    roquet_fresh_cluster.kill()
    roquet_fresh_cluster.start("dev")

    assert await bill(roquet_fresh_cluster.name_server, "billing", "orders", 1) == 7
