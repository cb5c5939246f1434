"""What hooks are told of the deliveries of a consumer."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import pytest

import roquet
from roquet.client.hook import ConsumeEvent, Hook
from roquet.client.received import ReceivedMessage
from tests.client.cluster import FakeBroker, FakeCluster
from tests.client.consumers import consumer, fill
from tests.client.hooks import DeliveriesSeen

CURRENT: ContextVar[bytes] = ContextVar("CURRENT", default=b"")


class Current(Hook):
    """Names the message that is handled."""

    @contextmanager
    def handling(self, event: ConsumeEvent) -> Iterator[None]:
        token = CURRENT.set(event.message.body)
        try:
            yield
        finally:
            CURRENT.reset(token)


def test_the_outcome_of_each_message_is_told(cluster: FakeCluster, broker: FakeBroker) -> None:
    async def consume() -> None:
        async with consumer(cluster, hooks=[seen]) as c:
            (await c.get()).ack()
            (await c.get()).retry()
            async with await c.get():
                raise ValueError("of the block")
            async with c.batch(2) as messages:
                assert len(messages) == 2
            async for message in c:
                assert message.body == b"5"
                break
            assert len(seen.ended) == 5

    fill(broker, 6)
    seen = DeliveriesSeen()
    cluster.run(consume)
    good, bad = ["acknowledged"], ["retried", "failed"]
    assert seen.outcomes() == [*good, *bad, *good, *good, "unsettled"]
    assert [event.message.body for event in seen.begun] == [b"%d" % n for n in range(6)]
    assert [str(event.error or "") for event in seen.ended][2] == "of the block"
    assert {event.group for event in seen.ended} == {"G"}
    assert cluster.nothing_is_left()


def test_a_message_that_expires_has_one_end(cluster: FakeCluster, broker: FakeBroker) -> None:
    async def consume() -> None:
        async with consumer(cluster, hooks=[seen], consume_timeout_ms=1000) as c:
            message = await c.get()
            await asyncio.sleep(20)
            message.ack()
            assert seen.outcomes() == ["expired"]

    fill(broker, 1)
    seen = DeliveriesSeen()
    cluster.run(consume)
    assert seen.outcomes()[0] == "expired"


@pytest.mark.parametrize("is_ordered", [False, True])
def test_a_handler_runs_in_the_context_of_its_message(
    cluster: FakeCluster, broker: FakeBroker, is_ordered: bool
) -> None:
    async def consume() -> list[Any]:
        seen: list[Any] = []
        async with consumer(cluster, hooks=[Current()], ordered=is_ordered) as c:

            async def handle(message: ReceivedMessage) -> None:
                await asyncio.sleep(0.1)
                seen.append((message.body, CURRENT.get()))
                if len(seen) == 4:
                    c.stop()

            await c.run(handle, concurrency=2)
            assert CURRENT.get() == b""
        return seen

    fill(broker, 4, queues=2)
    seen = cluster.run(consume)
    assert all(body == current for body, current in seen)
    assert len(seen) >= 4


async def test_a_handler_in_a_thread_has_the_context_too() -> None:
    seen: list[bytes] = []
    async with (
        roquet.dev.Cluster() as dev,
        roquet.connect(dev.name_server, hooks=[Current()]) as mq,
    ):
        await mq.send("T", b"x")
        async with mq.consumer("G", "T", start="earliest") as c:
            run = asyncio.create_task(c.run(lambda _: seen.append(CURRENT.get())))
            async with asyncio.timeout(60):
                while not seen:
                    await asyncio.sleep(0.01)
            c.stop()
            await run
    assert seen == [b"x"]


def test_a_block_without_await_runs_in_the_context_too(
    cluster: FakeCluster, broker: FakeBroker
) -> None:
    async def consume() -> tuple[bytes, bytes]:
        async with consumer(cluster, hooks=[Current(), seen]) as c:
            with await c.get() as message:
                found = message.body, CURRENT.get()
            with await c.get():
                raise ValueError("of the block")
            return found

    fill(broker, 2)
    seen = DeliveriesSeen()
    assert cluster.run(consume) == (b"0", b"0")
    assert seen.outcomes() == ["acknowledged", "failed"]
    assert str(seen.ended[1].error) == "of the block"
