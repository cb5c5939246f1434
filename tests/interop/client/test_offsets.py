"""Queues read by offset, and the offsets of groups: read, set, and reset by an administrator."""

from __future__ import annotations

import asyncio
import time
from datetime import UTC, datetime

import pytest

from roquet import Message, MessageQueue, PullConsumer, PullStatus, Sql
from tests.interop.client.target import Target, bodies, numbers
from tests.interop.taken import CONSUME_SECONDS, take, until

pytestmark = pytest.mark.interop

RESET_OFFSET = 222


async def filled(target: Target, topic: str, count: int) -> MessageQueue:
    """The one queue of the topic, with so many messages of tags A and B in turn."""
    batch = [
        Message(topic, body, "AB"[number % 2], properties={"number": str(number)})
        for number, body in enumerate(numbers(count))
    ]
    async with target.producer() as producer:
        results = await producer.send_batch(batch)
    await target.stored(topic, count)
    return results[0].queue


async def one_queue(reader: PullConsumer, topic: str) -> MessageQueue:
    (queue,) = await reader.queues(topic)
    return queue


# pulls


async def test_a_pull_gives_messages_and_bounds(target: Target, topic: str) -> None:
    queue = await filled(target, topic, 10)
    async with target.reader() as reader:
        found = await reader.pull(queue, 3, max_messages=4)
    assert bodies(found.messages) == numbers(4, 3)
    assert [message.queue_offset for message in found.messages] == [3, 4, 5, 6]
    assert (found.status, found.next_offset) == (PullStatus.FOUND, 7)
    assert (found.min_offset, found.max_offset) == (0, 10)


async def test_a_pull_selects_by_tags(target: Target, topic: str) -> None:
    queue = await filled(target, topic, 10)
    async with target.reader() as reader:
        found = await reader.pull(queue, 0, tags="B")
        none = await reader.pull(queue, 0, tags="none")
    assert bodies(found.messages) == [b"1", b"3", b"5", b"7", b"9"]
    assert (none.status, none.next_offset) == (PullStatus.NO_MATCHED, 10)


async def test_a_pull_selects_by_sql(target: Target, topic: str) -> None:
    queue = await filled(target, topic, 10)
    async with target.reader() as reader:
        found = await reader.pull(queue, 0, tags=Sql("number > 6 AND TAGS = 'A'"))
    assert bodies(found.messages) == [b"8"]


async def test_a_queue_that_never_had_a_message_begins_and_ends_at_0(
    target: Target, topic: str
) -> None:
    async with target.reader() as reader:
        queue = await one_queue(reader, topic)
        assert (await reader.min_offset(queue), await reader.max_offset(queue)) == (0, 0)


async def test_at_the_end_there_is_nothing_new(target: Target, topic: str) -> None:
    queue = await filled(target, topic, 10)
    async with target.reader() as reader:
        result = await reader.pull(queue, 10)
    assert (result.status, list(result.messages), result.next_offset) == (
        PullStatus.NO_NEW,
        [],
        10,
    )


async def test_beyond_the_end_an_offset_is_illegal(target: Target, topic: str) -> None:
    queue = await filled(target, topic, 10)
    async with target.reader() as reader:
        result = await reader.pull(queue, 99)
    assert (result.status, result.next_offset) == (PullStatus.OFFSET_ILLEGAL, 10)


async def test_an_empty_queue_has_nothing_new(target: Target, topic: str) -> None:
    async with target.reader() as reader:
        queue = await one_queue(reader, topic)
        result = await reader.pull(queue, 0)
        bounds = await reader.min_offset(queue), await reader.max_offset(queue)
    assert (result.status, result.next_offset, list(result.messages)) == (PullStatus.NO_NEW, 0, [])
    assert bounds == (0, 0)


async def test_a_held_pull_is_answered_when_a_message_comes(target: Target, topic: str) -> None:
    queue = await filled(target, topic, 1)
    async with target.reader() as reader, target.producer() as producer:
        pull = asyncio.create_task(reader.pull(queue, 1, hold_ms=20_000))
        assert not (await asyncio.wait([pull], timeout=0.5))[0]
        await producer.send(topic, b"second", queue=queue)
        assert bodies((await pull).messages) == [b"second"]


async def test_a_held_pull_ends_when_its_time_is_over(target: Target, topic: str) -> None:
    queue = await filled(target, topic, 1)
    async with target.reader() as reader:
        result = await reader.pull(queue, 1, hold_ms=300)
    assert (result.status, result.next_offset) == (PullStatus.NO_NEW, 1)


async def test_several_offsets_are_pulled_at_once(target: Target, topic: str) -> None:
    queue = await filled(target, topic, 30)
    async with target.reader() as reader:
        results = await reader.pull_all(queue, [0, 10, 20, 30], max_messages=10)
    assert [bodies(result.messages) for result in results] == [
        numbers(10),
        numbers(10, 10),
        numbers(10, 20),
        [],
    ]


async def test_a_pull_gives_decompressed_bodies(target: Target, topic: str) -> None:
    async with target.producer() as producer:
        sent = await producer.send(topic, b"large " * 20_000)
    await target.stored(topic, 1)
    async with target.reader() as reader:
        ((found,), *_) = ((await reader.pull(sent.queue, 0)).messages,)
    assert found.body == b"large " * 20_000


# bounds


async def test_queues_of_a_topic_are_listed(target: Target, wide: str) -> None:
    async with target.reader() as reader:
        queues = await reader.queues(wide)
        assert wide in await reader.topics()
    assert [queue.queue_id for queue in queues] == [0, 1, 2, 3]
    assert {queue.topic for queue in queues} == {wide}


async def test_bounds_grow_with_the_queue(target: Target, topic: str) -> None:
    queue = await filled(target, topic, 10)
    async with target.reader() as reader:
        assert (await reader.min_offset(queue), await reader.max_offset(queue)) == (0, 10)
        async with target.producer() as producer:
            await producer.send(topic, b"new")
        await target.stored(topic, 11)
        assert (await reader.min_offset(queue), await reader.max_offset(queue)) == (0, 11)


async def test_an_offset_is_found_by_time(target: Target, topic: str) -> None:
    async with target.producer() as producer, target.reader() as reader:
        queue = (await producer.send(topic, b"early")).queue
        (early,) = await target.stored(topic, 1)
        while time.time() * 1000 <= early.store_time_ms + 20:
            await asyncio.sleep(0.01)
        await producer.send(topic, b"late")
        _, late = await target.stored(topic, 2)
        assert await reader.offset_at(queue, early.store_time_ms) == 0
        assert await reader.offset_at(queue, early.store_time_ms + 1) == 0, "the nearest"
        assert await reader.offset_at(queue, late.store_time_ms - 1) == 1, "the nearest"
        assert await reader.offset_at(queue, late.store_time_ms) == 1
        assert await reader.offset_at(queue, 0) == 0


async def test_after_the_last_message_the_offset_by_time_is_the_last(
    target: Target, topic: str
) -> None:
    queue = await filled(target, topic, 5)
    async with target.reader() as reader:
        later_ms = int(datetime.now(UTC).timestamp() * 1000) + 3_600_000
        assert await reader.offset_at(queue, later_ms) in (4, 5)


# the offsets of a group


async def test_offsets_are_committed_forwards_and_backwards(
    target: Target, topic: str, group: str
) -> None:
    queue = await filled(target, topic, 5)
    async with target.reader() as reader:
        for offset in (4, 2, 5, 0):
            await reader.commit(group, queue, offset)
            assert await reader.committed(group, queue) == offset


async def test_a_young_queue_answers_0_for_a_group_without_an_offset(
    target: Target, topic: str, group: str
) -> None:
    """docs/pitfalls.md#trap-29."""
    queue = await filled(target, topic, 5)
    async with target.reader() as reader:
        assert await reader.committed(group, queue) == 0


async def test_an_old_queue_has_no_offset_of_a_new_group(strict: Target, name: str) -> None:
    strict.make_topic(name)
    queue = await filled(strict, name, 5)
    async with strict.reader() as reader:
        assert await reader.committed(strict.make_group(f"G-{name}"), queue) is None


async def test_offsets_of_groups_are_apart(target: Target, topic: str, group: str) -> None:
    queue = await filled(target, topic, 5)
    async with target.reader() as reader:
        await reader.commit(group, queue, 3)
        await reader.commit(f"{group}-other", queue, 4)
        assert await reader.committed(group, queue) == 3
        assert await reader.committed(f"{group}-other", queue) == 4


async def test_a_group_begins_at_the_offset_that_was_set(
    target: Target, topic: str, group: str
) -> None:
    queue = await filled(target, topic, 5)
    async with target.reader() as reader:
        await reader.commit(group, queue, 3)
    async with target.consumer(group, topic) as consumer:
        assert bodies(await take(consumer, 2)) == [b"3", b"4"]


async def test_a_consumer_s_offset_is_committed_with_its_pulls(
    target: Target, topic: str, group: str
) -> None:
    queue = await filled(target, topic, 5)
    async with (
        target.consumer(group, topic) as consumer,
        target.producer() as producer,
        target.reader() as reader,
        asyncio.timeout(CONSUME_SECONDS),
    ):
        await take(consumer, 5)
        # The pull that is held left before these were acknowledged; the next one tells.
        await producer.send(topic, b"new")
        await take(consumer, 1)
        while (await reader.committed(group, queue) or 0) < 5:
            await asyncio.sleep(0.02)


async def reset(target: Target, topic: str, group: str, timestamp_ms: int) -> None:
    """As `mqadmin resetOffsetByTime` does, when the broker has an offset of the group."""
    fields = {"topic": topic, "group": group, "timestamp": timestamp_ms, "isForce": "true"}
    answer = await asyncio.to_thread(target.ask, RESET_OFFSET, fields)
    assert answer.code == 0, answer


async def test_an_administrator_sets_a_running_group_back(
    target: Target, topic: str, group: str
) -> None:
    queue = await filled(target, topic, 5)
    async with target.reader() as reader:
        await reader.commit(group, queue, 0)
    async with target.consumer(group, topic) as consumer:
        assert bodies(await take(consumer, 5)) == numbers(5)
        await reset(target, topic, group, 0)
        assert bodies(await take(consumer, 5)) == numbers(5)
    await target.committed(group, topic, 5)


async def test_an_administrator_lets_a_running_group_skip_what_is_there(
    target: Target, topic: str, group: str
) -> None:
    queue = await filled(target, topic, 5)
    async with target.reader() as reader:
        await reader.commit(group, queue, 0)
    async with target.consumer(group, topic, batch_size=1) as consumer:
        held = await consumer.get()
        await reset(target, topic, group, -1)
        # The queue is not this member's for a moment.
        await until(lambda: queue in consumer.assigned() and consumer.position(queue) == 5)
        held.ack()
        async with target.producer() as producer:
            await producer.send(topic, b"new")
        assert bodies(await take(consumer, 1)) == [b"new"]
    await target.committed(group, topic, 6)


async def test_an_administrator_sets_a_broadcasting_member_back(
    target: Target, topic: str, group: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    queue = await filled(target, topic, 5)
    async with target.reader() as reader:
        await reader.commit(group, queue, 0)
    folder = tmp_path_factory.mktemp("offsets")
    async with target.broadcasting(group, topic, folder) as member:
        assert bodies(await take(member, 5)) == numbers(5)
        await reset(target, topic, group, 0)
        assert bodies(await take(member, 5)) == numbers(5)
