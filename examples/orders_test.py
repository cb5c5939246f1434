"""Tests of a program that uses RocketMQ, with a broker of their own. Copy it and replace `bill`.

pip install '.[broker]' pytest pytest-asyncio
pytest examples/orders_test.py

The fixtures that begin with `roquet_` come with roquet.
"""

from __future__ import annotations

import pytest

import roquet
from roquet.dev import Cluster

pytestmark = pytest.mark.asyncio


async def bill(mq: roquet.Client, group: str, orders: str, count: int) -> int:
    """The program under test: takes `count` orders, adds up their amounts and sends the sum to
    another topic.
    """
    total = 0
    async with mq.consumer(group, orders, start="earliest") as consumer:
        async for message in consumer:
            async with message:
                total += int(message.body)
                count -= 1
            if count == 0:
                await mq.send(f"{orders}-bills", b"%d" % total)
                return total
    return total


async def test_all_orders_are_billed(
    roquet_cluster: Cluster, roquet_topic: str, roquet_group: str
) -> None:
    async with roquet.connect(roquet_cluster.name_server) as mq:
        for amount in (3, 4, 5):
            await mq.send(roquet_topic, b"%d" % amount)

        assert await bill(mq, roquet_group, roquet_topic, 3) == 12

        bills = f"{roquet_topic}-bills"
        async with mq.consumer("auditors", bills, start="earliest") as consumer:
            message = await consumer.get(timeout_ms=5000)
            message.ack()
    assert message.body == b"12"


async def test_what_was_billed_is_not_billed_again(
    roquet_cluster: Cluster, roquet_topic: str, roquet_group: str
) -> None:
    async with roquet.connect(roquet_cluster.name_server) as mq:
        await mq.send(roquet_topic, b"1")
        assert await bill(mq, roquet_group, roquet_topic, 1) == 1

        await mq.send(roquet_topic, b"2")
        assert await bill(mq, roquet_group, roquet_topic, 1) == 2


async def test_a_killed_broker_loses_no_order(roquet_fresh_cluster: Cluster) -> None:
    async with roquet.connect(roquet_fresh_cluster.name_server) as mq:
        await mq.send("orders", b"7")
        roquet_fresh_cluster.kill()
        roquet_fresh_cluster.start("dev")

        assert await bill(mq, "billing", "orders", 1) == 7
