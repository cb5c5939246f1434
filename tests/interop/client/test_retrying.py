"""Messages that fail: they come again, and end among the dead letters."""

from __future__ import annotations

import pytest

from roquet import ReceivedMessage
from tests.interop.client.target import QUIET_MS, RETRY_SECONDS, Target, bodies, numbers
from tests.interop.taken import take

pytestmark = pytest.mark.interop


async def send(target: Target, topic: str, *sent: bytes) -> None:
    async with target.producer() as producer:
        for body in sent:
            await producer.send(topic, body)


async def test_a_failed_message_comes_again_later(target: Target, topic: str, group: str) -> None:
    async with target.producer() as producer, target.consumer(group, topic) as consumer:
        sent = await producer.send(
            topic, b"poison", tags="A", keys=("k1", "k2"), properties={"color": "red"}, flag=7
        )
        first = await consumer.get()
        first.retry()
        (again,) = await take(consumer, 1)
    assert (first.reconsume_times, again.reconsume_times) == (0, 1)
    assert (again.topic, again.body, again.tags) == (topic, b"poison", "A")
    assert (again.keys, again.properties["color"], again.flag) == (("k1", "k2"), "red", 7)
    assert again.queue.topic == f"%RETRY%{group}"
    assert again.message_id == sent.message_id
    assert again.offset_message_id != first.offset_message_id
    assert again.store_time_ms - first.store_time_ms >= RETRY_SECONDS * 900
    await target.committed(group, topic, 1)


async def test_a_failure_in_a_message_s_block_is_a_retry(
    target: Target, topic: str, group: str
) -> None:
    await send(target, topic, b"one")
    async with target.consumer(group, topic) as consumer:
        async with await consumer.get():
            raise ValueError("cannot book")
        (again,) = await take(consumer, 1)
    assert (again.body, again.reconsume_times) == (b"one", 1)


async def test_a_failed_message_holds_up_no_other(target: Target, topic: str, group: str) -> None:
    await send(target, topic, *numbers(5))
    async with target.consumer(group, topic) as consumer:
        (await consumer.get()).retry()
        assert bodies(await take(consumer, 5)) == [*numbers(4, 1), b"0"]


async def test_only_the_first_word_about_a_message_counts(
    target: Target, topic: str, group: str
) -> None:
    await send(target, topic, b"one", b"two")
    async with target.consumer(group, topic) as consumer:
        one = await consumer.get()
        one.ack()
        one.retry()
        two = await consumer.get()
        two.retry()
        two.ack()
        assert bodies(await take(consumer, 1)) == [b"two"]


async def test_a_failed_message_comes_after_the_delay_that_is_asked_for(
    target: Target, topic: str, group: str
) -> None:
    await send(target, topic, b"one")
    async with target.consumer(group, topic) as consumer:
        first = await consumer.get()
        first.retry(5)
        (again,) = await take(consumer, 1)
    assert again.store_time_ms - first.store_time_ms >= 2900


async def test_after_the_last_retry_a_message_is_a_dead_letter(
    target: Target, topic: str, group: str
) -> None:
    tries: list[ReceivedMessage] = []
    async with target.producer() as producer:
        sent = await producer.send(topic, b"poison", tags="A", keys="k")
    async with target.consumer(group, topic, max_reconsume_times=1) as consumer:
        for _ in range(2):
            async with await consumer.get() as message:
                tries.append(message)
                raise ValueError("cannot book")
        dead = await target.dead_letter(group)
    assert [message.reconsume_times for message in tries] == [0, 1]
    assert (dead.body, dead.tags, dead.keys) == (b"poison", "A", ("k",))
    assert (dead.topic, dead.message_id) == (topic, sent.message_id)


async def test_without_a_retry_a_failed_message_is_a_dead_letter(
    target: Target, topic: str, group: str
) -> None:
    await send(target, topic, b"poison")
    async with target.consumer(group, topic, max_reconsume_times=0) as consumer:
        (await consumer.get()).retry()
        assert (await target.dead_letter(group)).body == b"poison"


async def test_a_message_is_a_dead_letter_at_once_if_that_is_wanted(
    target: Target, topic: str, group: str
) -> None:
    await send(target, topic, b"poison")
    async with target.consumer(group, topic) as consumer:
        (await consumer.get()).retry(-1)
        assert (await target.dead_letter(group)).body == b"poison"


async def test_dead_letters_can_be_consumed(target: Target, topic: str, group: str) -> None:
    await send(target, topic, b"poison")
    async with target.consumer(group, topic) as consumer:
        (await consumer.get()).retry(-1)
        await target.dead_letter(group)
    async with target.consumer(f"{group}-dead", f"%DLQ%{group}") as undertaker:
        (dead,) = await take(undertaker, 1)
    assert (dead.body, dead.topic, dead.queue.topic) == (b"poison", topic, f"%DLQ%{group}")


async def test_a_retry_comes_to_a_member_that_starts_later(
    target: Target, topic: str, group: str
) -> None:
    await send(target, topic, b"one")
    async with target.consumer(group, topic) as consumer:
        (await consumer.get()).retry()
    async with target.consumer(group, topic) as consumer:
        (again,) = await take(consumer, 1)
    assert (again.body, again.reconsume_times) == (b"one", 1)


async def test_a_retry_comes_to_its_group_only(target: Target, topic: str, group: str) -> None:
    await send(target, topic, b"one")
    async with (
        target.consumer(group, topic) as consumer,
        target.consumer(f"{group}-other", topic) as other,
    ):
        await take(other, 1)
        (await consumer.get()).retry()
        await take(consumer, 1)
        assert await other.get_many(timeout_ms=10) == []


async def test_a_retry_passes_a_filter_by_tags(target: Target, topic: str, group: str) -> None:
    async with target.producer() as producer:
        await producer.send(topic, b"A", tags="A")
        await producer.send(topic, b"B", tags="B")
    async with target.consumer(group, {topic: "B"}) as consumer:
        (await consumer.get()).retry()
        (again,) = await take(consumer, 1)
    assert (again.body, again.tags, again.reconsume_times) == (b"B", "B", 1)


async def test_a_compressed_message_is_the_same_when_it_comes_again(
    target: Target, topic: str, group: str
) -> None:
    await send(target, topic, b"large " * 20_000)
    async with target.consumer(group, topic) as consumer:
        (await consumer.get()).retry()
        (again,) = await take(consumer, 1)
    assert (again.body, again.reconsume_times) == (b"large " * 20_000, 1)


async def test_a_retry_is_acknowledged_like_any_message(
    target: Target, topic: str, group: str
) -> None:
    await send(target, topic, b"one")
    async with target.consumer(group, topic) as consumer:
        (await consumer.get()).retry()
        await take(consumer, 1)
    await target.committed(group, f"%RETRY%{group}", 1)
    async with target.consumer(group, topic) as consumer:
        assert await consumer.get_many(timeout_ms=QUIET_MS) == []
