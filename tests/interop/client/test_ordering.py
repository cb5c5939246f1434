"""Consuming in order: one message of a queue at a time, by one member."""

from __future__ import annotations

import asyncio
from collections import defaultdict

import pytest

from roquet import Consumer, ReceivedMessage
from tests.interop.client.target import Target, bodies, consuming, numbers
from tests.interop.taken import CONSUME_SECONDS, take, until

pytestmark = pytest.mark.interop


async def send(target: Target, topic: str, *sent: bytes) -> None:
    async with target.producer() as producer:
        for body in sent:
            await producer.send(topic, body, sharding_key="one")


async def test_messages_of_a_queue_come_in_order(target: Target, topic: str, group: str) -> None:
    await send(target, topic, *numbers(30))
    async with target.consumer(group, topic, ordered=True) as consumer:
        assert bodies(await take(consumer, 30)) == numbers(30)
    await target.committed(group, topic, 30)


async def test_the_next_message_waits_for_the_one_before(
    target: Target, topic: str, group: str
) -> None:
    await send(target, topic, *numbers(2))
    async with target.consumer(group, topic, ordered=True) as consumer:
        first = await consumer.get()
        assert await consumer.get_many(timeout_ms=200) == []
        first.ack()
        assert (await consumer.get()).body == b"1"


async def test_queues_do_not_wait_for_each_other(target: Target, wide: str, group: str) -> None:
    async with target.producer() as producer:
        for queue in await producer.queues(wide):
            for body in numbers(2):
                await producer.send(wide, body, queue=queue)
    async with (
        target.consumer(group, wide, ordered=True) as consumer,
        asyncio.timeout(CONSUME_SECONDS),
    ):
        held = [await consumer.get() for _ in range(4)]
        assert bodies(held) == [b"0"] * 4
        assert len({message.queue for message in held}) == 4


async def test_tasks_at_once_keep_the_order_of_each_queue(
    target: Target, wide: str, group: str
) -> None:
    seen: defaultdict[int, list[int]] = defaultdict(list)

    async def handle(message: ReceivedMessage) -> None:
        await asyncio.sleep(0)
        seen[message.queue.queue_id].append(message.queue_offset)
        if sum(map(len, seen.values())) == 80:
            consumer.stop()

    async with target.producer() as producer:
        for queue in await producer.queues(wide):
            for body in numbers(20):
                await producer.send(wide, body, queue=queue)
    async with (
        target.consumer(group, wide, ordered=True) as consumer,
        asyncio.timeout(CONSUME_SECONDS),
    ):
        await consumer.run(handle, concurrency=8)
    assert seen == {queue: list(range(20)) for queue in range(4)}


async def test_a_failed_message_comes_again_before_those_behind_it(
    target: Target, topic: str, group: str
) -> None:
    await send(target, topic, b"first", b"poison", b"last")
    async with target.consumer(group, topic, ordered=True) as consumer:
        (await consumer.get()).ack()
        (await consumer.get()).retry()
        again, last = await take(consumer, 2)
    assert (again.body, again.reconsume_times, again.queue.topic) == (b"poison", 1, topic)
    assert (last.body, last.reconsume_times) == (b"last", 0)


async def test_after_the_last_retry_a_message_is_a_dead_letter_and_the_next_one_comes(
    target: Target, topic: str, group: str
) -> None:
    tries: list[tuple[bytes, int]] = []
    await send(target, topic, b"first", b"poison", b"last")
    async with target.consumer(group, topic, ordered=True, max_reconsume_times=1) as consumer:
        async with asyncio.timeout(CONSUME_SECONDS):
            async for message in consumer:
                tries.append((message.body, message.reconsume_times))
                if message.body == b"poison":
                    message.retry()
                if message.body == b"last":
                    message.ack()
                    break
        assert (await target.dead_letter(group)).body == b"poison"
    assert tries == [(b"first", 0), (b"poison", 0), (b"poison", 1), (b"last", 0)]


async def test_a_dead_letter_at_once_does_not_hold_up_the_next_one(
    target: Target, topic: str, group: str
) -> None:
    await send(target, topic, b"poison", b"last")
    async with target.consumer(group, topic, ordered=True) as consumer:
        (await consumer.get()).retry(-1)
        assert bodies(await take(consumer, 1)) == [b"last"]
        assert (await target.dead_letter(group)).body == b"poison"


async def test_a_queue_that_another_member_has_locked_is_taken_when_that_leaves(
    target: Target, topic: str, group: str
) -> None:
    await send(target, topic, b"one")
    async with target.consumer(group, topic, ordered=True) as owner:
        message = await owner.get()
        assert message.body == b"one"
        other = await target.consumer(group, topic, ordered=True).start()
        await owner.close()
        try:
            assert bodies(await take(other, 1)) == [b"one"]
        finally:
            await other.close()


async def test_two_members_never_have_one_queue_at_a_time(
    target: Target, wide: str, group: str
) -> None:
    at_work: set[int] = set()
    order: defaultdict[int, list[int]] = defaultdict(list)

    async def consume(consumer: Consumer) -> None:
        async for message in consumer:
            queue = message.queue.queue_id
            assert queue not in at_work, "another member is at work on it"
            at_work.add(queue)
            await asyncio.sleep(0.001)
            order[queue].append(message.queue_offset)
            at_work.remove(queue)

    async with target.producer() as producer, asyncio.timeout(2 * CONSUME_SECONDS):
        queues = await producer.queues(wide)

        async def send_all() -> None:
            for body in numbers(50):
                for queue in queues:
                    await producer.send(wide, body, queue=queue)

        sending = asyncio.create_task(send_all())
        async with target.consumer(group, wide, ordered=True) as one:
            consuming_one = asyncio.create_task(consume(one))
            async with target.consumer(group, wide, ordered=True) as two:
                consuming_two = asyncio.create_task(consume(two))
                await until(lambda: len(one.assigned()) > 0)
                await sending
                two.stop()
                await consuming_two
            await until(lambda: all(order[queue] and order[queue][-1] == 49 for queue in range(4)))
            one.stop()
            await consuming_one
    for queue in range(4):
        assert sorted(set(order[queue])) == list(range(50))
        assert order[queue] == sorted(order[queue])


async def test_in_order_a_group_goes_on_where_it_was(
    target: Target, topic: str, group: str
) -> None:
    await send(target, topic, *numbers(6))
    async with target.consumer(group, topic, ordered=True) as consumer:
        assert bodies(await take(consumer, 3)) == numbers(3)
    async with target.consumer(group, topic, ordered=True) as consumer:
        assert bodies(await take(consumer, 3)) == numbers(3, 3)


async def test_in_order_an_unsettled_message_comes_again_after_a_restart(
    target: Target, topic: str, group: str
) -> None:
    await send(target, topic, *numbers(3))
    async with target.consumer(group, topic, ordered=True) as consumer:
        assert (await consumer.get()).body == b"0"
    async with target.consumer(group, topic, ordered=True) as consumer:
        assert bodies(await take(consumer, 3)) == numbers(3)


async def test_in_order_tags_select(target: Target, topic: str, group: str) -> None:
    async with target.producer() as producer:
        for number in range(10):
            await producer.send(topic, b"%d" % number, tags="AB"[number % 2])
    async with target.consumer(group, {topic: "B"}, ordered=True) as consumer:
        assert bodies(await take(consumer, 5)) == [b"1", b"3", b"5", b"7", b"9"]


async def test_in_order_a_paused_queue_goes_on_where_it_was(
    target: Target, topic: str, group: str
) -> None:
    await send(target, topic, *numbers(6))
    found: list[ReceivedMessage] = []
    async with target.consumer(group, topic, ordered=True) as consumer:
        found += await take(consumer, 2)
        consumer.pause()
        async with consuming(consumer, found):
            assert len(found) == 2
            consumer.resume()
            await until(lambda: len(found) == 6)
    assert bodies(found) == numbers(6)
