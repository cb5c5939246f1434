"""A member that changes what it subscribes to, and one that commits by itself."""

from __future__ import annotations

import asyncio
import re

import pytest

from roquet import ResponseError, Sql
from tests.interop.client.target import QUIET_MS, Target, bodies, numbers, unique
from tests.interop.taken import CONSUME_SECONDS, take

pytestmark = pytest.mark.interop


async def send(target: Target, topic: str, *sent: bytes, tags: str | None = None) -> None:
    async with target.producer() as producer:
        for body in sent:
            await producer.send(topic, body, tags=tags)


# subscriptions


async def test_a_topic_is_subscribed_to_while_a_member_runs(
    target: Target, topic: str, wide: str, group: str
) -> None:
    async with target.consumer(group, topic) as consumer:
        await consumer.subscribe(wide)
        await send(target, wide, b"other")
        await send(target, topic, b"one")
        assert sorted(bodies(await take(consumer, 2))) == [b"one", b"other"]


async def test_a_topic_that_is_unsubscribed_comes_no_more(
    target: Target, topic: str, wide: str, group: str
) -> None:
    await send(target, wide, b"other")
    async with target.consumer(group, [topic, wide]) as consumer:
        assert bodies(await take(consumer, 1)) == [b"other"]
        await consumer.unsubscribe(wide)
        assert not any(queue.topic == wide for queue in consumer.assigned())
        await send(target, wide, b"unwanted")
        await send(target, topic, b"one")
        assert bodies(await take(consumer, 1)) == [b"one"]
        assert await consumer.get_many(timeout_ms=QUIET_MS) == []


async def test_what_came_while_a_topic_was_unsubscribed_comes_when_it_is_subscribed_again(
    target: Target, topic: str, wide: str, group: str
) -> None:
    await send(target, wide, *numbers(2))
    async with target.consumer(group, [topic, wide]) as consumer:
        await take(consumer, 2)
        await consumer.unsubscribe(wide)
        await send(target, wide, b"2")
        await consumer.subscribe(wide)
        assert bodies(await take(consumer, 1)) == [b"2"]


async def test_the_filter_of_a_topic_is_changed_while_a_member_runs(
    target: Target, topic: str, group: str
) -> None:
    async with target.consumer(group, {topic: "A"}) as consumer:
        await send(target, topic, b"a", tags="A")
        assert bodies(await take(consumer, 1)) == [b"a"]
        await consumer.subscribe(topic, "B")
        await send(target, topic, b"no", tags="A")
        await send(target, topic, b"b", tags="B")
        assert bodies(await take(consumer, 1)) == [b"b"]
        await consumer.subscribe(topic, Sql("TAGS = 'C'"))
        await send(target, topic, b"no", tags="B")
        await send(target, topic, b"c", tags="C")
        assert bodies(await take(consumer, 1)) == [b"c"]


async def test_an_invalid_filter_changes_nothing(target: Target, topic: str, group: str) -> None:
    async with target.consumer(group, topic) as consumer:
        with pytest.raises(ResponseError):
            await consumer.subscribe(topic, Sql("a >"))
        await send(target, topic, b"one")
        assert bodies(await take(consumer, 1)) == [b"one"]


async def test_a_pattern_stands_for_all_topics_that_match(
    target: Target, name: str, group: str
) -> None:
    topics = [target.make_topic(f"{name}-{number}") for number in range(3)]
    target.make_topic(unique("no-match"))
    async with target.consumer(group, re.compile(re.escape(name) + "-[01]")) as consumer:
        for topic in topics:
            await send(target, topic, topic.encode())
        assert sorted(bodies(await take(consumer, 2))) == [each.encode() for each in topics[:2]]
        assert set(consumer.subscriptions()) == set(topics[:2])


# commits


async def test_without_auto_commit_nothing_is_stored_but_by_commit(
    target: Target, topic: str, group: str
) -> None:
    await send(target, topic, *numbers(5))
    async with target.consumer(group, topic, auto_commit=False) as consumer:
        await take(consumer, 2)
        await consumer.commit()
        assert bodies(await take(consumer, 3)) == numbers(3, 2)
    await target.committed(group, topic, 2)
    async with target.consumer(group, topic) as consumer:
        assert bodies(await take(consumer, 3)) == numbers(3, 2)


async def test_commit_stores_at_once_what_is_settled(
    target: Target, topic: str, group: str
) -> None:
    await send(target, topic, *numbers(3))
    async with target.consumer(group, topic) as consumer:
        await take(consumer, 2)
        await consumer.get()
        await consumer.commit()
        (queue,) = [queue for queue in consumer.assigned() if queue.topic == topic]
        assert await consumer.committed(queue) == 2


async def test_commit_stores_the_given_offsets(target: Target, topic: str, group: str) -> None:
    await send(target, topic, *numbers(5))
    async with target.consumer(group, topic, auto_commit=False) as consumer:
        await take(consumer, 5)
        (queue,) = [queue for queue in consumer.assigned() if queue.topic == topic]
        for offset in (5, 1):
            await consumer.commit({queue: offset})
            assert await consumer.committed(queue) == offset
    async with target.consumer(group, topic) as consumer:
        assert bodies(await take(consumer, 4)) == numbers(4, 1)


# traces

TRACES = "RMQ_SYS_TRACE_TOPIC"


async def test_a_trace_tells_of_a_message_s_send_and_its_delivery(
    target: Target, topic: str, group: str
) -> None:
    async with (
        target.producer(trace=True) as producer,
        target.consumer(group, topic, trace=True) as consumer,
    ):
        sent = await producer.send(topic, b"one", keys="k")
        await take(consumer, 1)

    kinds: set[bytes] = set()
    async with (
        target.consumer(f"{group}-traces", TRACES) as traces,
        asyncio.timeout(CONSUME_SECONDS),
    ):
        async for trace in traces:
            if sent.message_id in trace.keys:
                records = trace.body.split(b"\x02")
                kinds.update(record.split(b"\x01")[0] for record in records if record)
            if kinds >= {b"Pub", b"SubBefore", b"SubAfter"}:
                break
