"""Tests of a program that uses RocketMQ, with a broker of their own. Copy it and replace `bill`.

pip install '.[broker]' pytest pytest-asyncio
pytest examples/embedded_test.py
"""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from roquet import Consumer, Producer
from roquet.dev import Cluster

pytestmark = pytest.mark.asyncio


async def bill(name_server: str, count: int) -> int:
    """The program under test: takes `count` orders, adds up their amounts and sends the sum to
    another topic.
    """
    total = 0
    async with (
        Consumer(name_server, "billing", "orders", "earliest") as consumer,
        Producer(name_server, "billing") as producer,
    ):
        async for message in consumer:
            async with message:
                total += int(message.body)
                count -= 1
            if count == 0:
                await producer.send("bills", b"%d" % total)
                return total
    return total


@pytest_asyncio.fixture
async def cluster() -> AsyncIterator[Cluster]:
    """Name server and broker on free ports; nothing is left of them after the test."""
    async with Cluster() as running:
        yield running


async def test_all_orders_are_billed(cluster: Cluster) -> None:
    async with Producer(cluster.name_server, "shop") as producer:
        for amount in (3, 4, 5):
            await producer.send("orders", b"%d" % amount)

    assert await bill(cluster.name_server, 3) == 12

    async with Consumer(cluster.name_server, "auditors", "bills", "earliest") as consumer:
        (message,) = await consumer.get_many(timeout_ms=5000)
    assert message.body == b"12"


async def test_what_was_billed_is_not_billed_again(cluster: Cluster) -> None:
    async with Producer(cluster.name_server, "shop") as producer:
        await producer.send("orders", b"1")
        assert await bill(cluster.name_server, 1) == 1

        await producer.send("orders", b"2")
        assert await bill(cluster.name_server, 1) == 2
