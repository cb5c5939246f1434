"""What a member gets: where it begins, what its filter selects, and the ways to take messages."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from datetime import UTC, datetime, timedelta

import pytest

from roquet import CallTimeout, ClientStateError, PrefetchLimits, ReceivedMessage, Sql
from tests.interop.client.target import (
    QUIET_MS,
    RETRY_SECONDS,
    Target,
    bodies,
    consuming,
    numbers,
)
from tests.interop.taken import CONSUME_SECONDS, take, until

pytestmark = pytest.mark.interop


async def send(target: Target, topic: str, *sent: bytes) -> None:
    async with target.producer() as producer:
        for body in sent:
            await producer.send(topic, body)


# where a group begins


async def test_a_group_begins_at_the_earliest_message(
    target: Target, topic: str, group: str
) -> None:
    await send(target, topic, *numbers(5))
    async with target.consumer(group, topic, start="earliest") as consumer:
        assert bodies(await take(consumer, 5)) == numbers(5)


async def test_of_a_young_topic_a_group_gets_all_wherever_it_begins(
    target: Target, topic: str, group: str
) -> None:
    """docs/pitfalls.md#trap-29."""
    await send(target, topic, *numbers(5))
    await target.stored(topic, 5)
    async with target.consumer(group, topic, start="latest") as consumer:
        assert bodies(await take(consumer, 5)) == numbers(5)


async def test_of_a_young_topic_a_group_begins_at_a_time(
    target: Target, topic: str, group: str
) -> None:
    await send(target, topic, *numbers(5))
    await target.stored(topic, 5)
    await asyncio.sleep(0.05)  # the store times that the brokers compare are in ms
    since = datetime.now(UTC)
    await asyncio.sleep(0.05)
    await send(target, topic, *numbers(3, 5))
    await target.stored(topic, 8)
    async with target.consumer(group, topic, start=since) as consumer:
        assert bodies(await take(consumer, 3)) == numbers(3, 5)


@pytest.mark.parametrize("seeks", [False, True])
async def test_a_group_gets_nothing_older_than_its_time_be_it_the_nearest(
    target: Target, topic: str, group: str, seeks: bool
) -> None:
    """Apache's broker and ours find the last old message: it is nearer than the first new one."""
    await send(target, topic, *numbers(5))
    await target.stored(topic, 5)
    await asyncio.sleep(0.05)  # the store times that the brokers compare are in ms
    since = datetime.now(UTC)
    await asyncio.sleep(1)
    await send(target, topic, *numbers(3, 5))
    await target.stored(topic, 8)
    async with target.reader() as reader:
        (queue,) = await reader.queues(topic)
        assert await reader.offset_at(queue, since) == 4
    async with target.consumer(group, topic, start="earliest" if seeks else since) as consumer:
        if seeks:
            await until(lambda: queue in consumer.assigned())
            await consumer.seek(queue, since)
        assert bodies(await take(consumer, 3)) == numbers(3, 5)


async def test_of_a_young_topic_a_group_goes_on_at_a_stored_0(
    target: Target, topic: str, group: str
) -> None:
    await send(target, topic, *numbers(5))
    await target.stored(topic, 5)
    async with target.reader() as reader:
        (queue,) = await reader.queues(topic)
        await reader.commit(group, queue, 0)
    async with target.consumer(group, topic, start=datetime.now(UTC)) as consumer:
        assert bodies(await take(consumer, 5)) == numbers(5)


async def test_of_an_old_topic_a_group_begins_at_the_latest_message(
    strict: Target, name: str
) -> None:
    """On that broker every message counts as being on disk only, as in a topic that is old."""
    strict.make_topic(name)
    strict.make_group(f"G-{name}")
    await send(strict, name, *numbers(5))
    await strict.stored(name, 5)
    async with strict.consumer(f"G-{name}", name, start="latest") as consumer:
        await until(lambda: len(consumer.assigned()) > 0)
        (queue,) = [queue for queue in consumer.assigned() if queue.topic == name]
        while consumer.position(queue) != 5:
            await asyncio.sleep(0.02)
        await send(strict, name, b"new")
        assert bodies(await take(consumer, 1)) == [b"new"]


async def test_of_an_old_topic_a_group_begins_at_the_earliest_message(
    strict: Target, name: str
) -> None:
    strict.make_topic(name)
    strict.make_group(f"G-{name}")
    await send(strict, name, *numbers(5))
    async with strict.consumer(f"G-{name}", name, start="earliest") as consumer:
        assert bodies(await take(consumer, 5)) == numbers(5)


async def test_of_an_old_topic_a_group_begins_at_a_time(strict: Target, name: str) -> None:
    strict.make_topic(name)
    strict.make_group(f"G-{name}")
    await send(strict, name, b"early")
    (early,) = await strict.stored(name, 1)
    moment = datetime.fromtimestamp(early.store_time_ms / 1000, UTC) + timedelta(seconds=1)
    while datetime.now(UTC) <= moment:
        await asyncio.sleep(0.05)
    await send(strict, name, b"late")
    await strict.stored(name, 2)
    async with strict.consumer(f"G-{name}", name, start=moment) as consumer:
        assert bodies(await take(consumer, 1)) == [b"late"]


async def test_a_group_goes_on_where_it_was(target: Target, wide: str, group: str) -> None:
    await send(target, wide, *numbers(10))
    async with target.consumer(group, wide) as consumer:
        first = await take(consumer, 10)
    await send(target, wide, *numbers(5, 10))
    async with target.consumer(group, wide) as consumer:
        second = await take(consumer, 5)
        assert await consumer.get_many(timeout_ms=QUIET_MS) == []
    assert sorted(map(int, bodies(first))) == list(range(10))
    assert sorted(map(int, bodies(second))) == list(range(10, 15))


async def test_what_was_not_acknowledged_comes_to_the_next_member(
    target: Target, topic: str, group: str
) -> None:
    await send(target, topic, *numbers(5))
    async with target.consumer(group, topic) as consumer:
        await take(consumer, 2)
        assert (await consumer.get()).body == b"2"
    async with target.consumer(group, topic) as consumer:
        assert bodies(await take(consumer, 3)) == numbers(3, 2)


async def test_a_message_behind_one_that_is_not_acknowledged_comes_again(
    target: Target, topic: str, group: str
) -> None:
    """The offset is that of the lowest message that is not acknowledged."""
    await send(target, topic, *numbers(3))
    async with target.consumer(group, topic) as consumer:
        _, middle, last = [await consumer.get() for _ in range(3)]
        middle.ack()
        last.ack()
    async with target.consumer(group, topic) as consumer:
        assert bodies(await take(consumer, 3)) == numbers(3)


# topics


async def test_a_member_of_several_topics_gets_all_of_them(
    target: Target, topic: str, wide: str, group: str
) -> None:
    await send(target, topic, b"one")
    await send(target, wide, b"other")
    async with target.consumer(group, [topic, wide]) as consumer:
        found = await take(consumer, 2)
    assert {message.topic: message.body for message in found} == {topic: b"one", wide: b"other"}


async def test_each_topic_has_its_own_filter(
    target: Target, topic: str, wide: str, group: str
) -> None:
    async with target.producer() as producer:
        for tag in "AB":
            await producer.send(topic, b"one " + tag.encode(), tags=tag)
            await producer.send(wide, b"other " + tag.encode(), tags=tag)
    async with target.consumer(group, {topic: "A", wide: "B"}) as consumer:
        assert sorted(bodies(await take(consumer, 2))) == [b"one A", b"other B"]


async def test_a_topic_that_comes_later_is_consumed(target: Target, name: str, group: str) -> None:
    async with target.consumer(group, name) as consumer:
        assert not any(queue.topic == name for queue in consumer.assigned())
        await send(target, name, b"first")
        assert bodies(await take(consumer, 1)) == [b"first"]


async def test_groups_do_not_disturb_each_other(target: Target, topic: str, group: str) -> None:
    await send(target, topic, *numbers(5))
    async with (
        target.consumer(group, topic) as one,
        target.consumer(f"{group}-other", topic) as other,
    ):
        assert bodies(await take(one, 5)) == bodies(await take(other, 5)) == numbers(5)


# filters


TAGS = ("Aa", "BB", "c", None) * 3  # "Aa" and "BB" have the same hash code.


async def tagged(target: Target, topic: str) -> None:
    async with target.producer() as producer:
        for tag in TAGS:
            body = str(tag).encode()
            await producer.send(topic, body, tags=tag, properties={"price": str(len(body))})


@pytest.mark.parametrize(
    ("filter_text", "wanted"),
    [
        ("c", {b"c"}),
        ("Aa || c", {b"Aa", b"c"}),
        ("Aa||BB", {b"Aa", b"BB"}),
        ("*", {b"Aa", b"BB", b"c", b"None"}),
        ("", {b"Aa", b"BB", b"c", b"None"}),
        ("BB || never", {b"BB"}),
    ],
)
async def test_tags_select(
    target: Target, topic: str, group: str, filter_text: str, wanted: set[bytes]
) -> None:
    await tagged(target, topic)
    async with target.consumer(group, {topic: filter_text}) as consumer:
        found = await take(consumer, 3 * len(wanted))
    assert Counter(bodies(found)) == dict.fromkeys(wanted, 3)


@pytest.mark.parametrize(
    ("expression", "wanted"),
    [
        ("TAGS = 'c'", {b"c"}),
        ("price > 1 AND price < 4", {b"Aa", b"BB"}),
        ("TAGS IS NULL", {b"None"}),
        ("price BETWEEN 1 AND 2 OR TAGS IS NULL", {b"Aa", b"BB", b"c", b"None"}),
        ("TAGS IN ('Aa', 'never')", {b"Aa"}),
    ],
)
async def test_sql_selects(
    target: Target, topic: str, group: str, expression: str, wanted: set[bytes]
) -> None:
    await tagged(target, topic)
    async with target.consumer(group, {topic: Sql(expression)}) as consumer:
        found = await take(consumer, 3 * len(wanted))
    assert Counter(bodies(found)) == dict.fromkeys(wanted, 3)


async def test_what_the_filter_drops_counts_as_consumed(
    target: Target, topic: str, group: str
) -> None:
    await tagged(target, topic)
    async with target.consumer(group, {topic: "c"}) as consumer:
        await take(consumer, 3)
        async with target.producer() as producer:
            await producer.send(topic, b"last", tags="c")
        await take(consumer, 1)
    await target.committed(group, topic, len(TAGS) + 1)


# ways to take messages


async def test_a_close_right_after_the_last_message_leaves_its_offset(
    target: Target, topic: str, group: str
) -> None:
    """The next pull has just left with the offset from before it; Apache's broker stores it late."""
    async with target.producer() as producer, target.reader() as reader:
        for number in range(10):
            await producer.send(topic, b"%d" % number)
            async with target.consumer(group, topic) as consumer:
                (message,) = await take(consumer, 1)
            assert message.body == b"%d" % number
            (queue,) = await reader.queues(topic)
            assert await reader.committed(group, queue) == number + 1


async def test_asking_for_the_next_message_acknowledges_the_one_before(
    target: Target, topic: str, group: str
) -> None:
    await send(target, topic, *numbers(3))
    found: list[bytes] = []
    async with target.consumer(group, topic) as consumer, asyncio.timeout(CONSUME_SECONDS):
        async for message in consumer:
            found.append(message.body)
            if message.body == b"2":
                break
    assert found == numbers(3)
    await target.committed(group, topic, 2)


async def test_the_end_of_a_message_s_block_acknowledges_it(
    target: Target, topic: str, group: str
) -> None:
    await send(target, topic, b"one")
    async with target.consumer(group, topic) as consumer, await consumer.get():
        pass
    await target.committed(group, topic, 1)


async def test_get_acknowledges_nothing(target: Target, topic: str, group: str) -> None:
    await send(target, topic, *numbers(3))
    async with target.consumer(group, topic) as consumer:
        assert [(await consumer.get()).body for _ in range(3)] == numbers(3)
    async with target.consumer(group, topic) as consumer:
        assert bodies(await take(consumer, 3)) == numbers(3)


async def test_get_waits_no_longer_than_it_may(target: Target, topic: str, group: str) -> None:
    async with target.consumer(group, topic) as consumer:
        with pytest.raises(CallTimeout, match="no message"):
            await consumer.get(timeout_ms=100)
        await send(target, topic, b"one")
        assert (await consumer.get(timeout_ms=CONSUME_SECONDS * 1000)).body == b"one"


async def test_a_cancelled_get_loses_no_message(target: Target, topic: str, group: str) -> None:
    async with target.consumer(group, topic) as consumer:
        for _ in range(20):
            waiting = asyncio.create_task(consumer.get())
            await asyncio.sleep(0.001)
            waiting.cancel()
            await asyncio.wait([waiting])
        await send(target, topic, *numbers(3))
        assert bodies(await take(consumer, 3)) == numbers(3)


async def test_anext_gives_one_message(target: Target, topic: str, group: str) -> None:
    await send(target, topic, b"one")
    async with target.consumer(group, topic) as consumer, asyncio.timeout(CONSUME_SECONDS):
        message = await anext(consumer)
        message.ack()
    assert message.body == b"one"


async def test_get_many_gives_what_is_there(target: Target, topic: str, group: str) -> None:
    await send(target, topic, *numbers(10))
    found: list[ReceivedMessage] = []
    async with target.consumer(group, topic) as consumer, asyncio.timeout(CONSUME_SECONDS):
        while len(found) < 10:
            some = await consumer.get_many(max_messages=4)
            assert len(some) <= 4
            found += some
    assert bodies(found) == numbers(10)
    async with target.consumer(group, topic) as consumer:
        assert bodies(await take(consumer, 10)) == numbers(10)


async def test_the_end_of_a_batch_acknowledges_it(target: Target, topic: str, group: str) -> None:
    await send(target, topic, *numbers(10))
    found: list[ReceivedMessage] = []
    async with target.consumer(group, topic) as consumer, asyncio.timeout(CONSUME_SECONDS):
        while len(found) < 10:
            async with consumer.batch(max_messages=4) as messages:
                found += messages
    assert bodies(found) == numbers(10)
    await target.committed(group, topic, 10)


async def test_a_batch_that_fails_comes_again(target: Target, topic: str, group: str) -> None:
    await send(target, topic, *numbers(4))
    failed: list[ReceivedMessage] = []
    async with target.consumer(group, topic) as consumer:
        while not failed:
            async with consumer.batch() as messages:
                failed += messages
                if messages:
                    messages[0].ack()
                    raise ValueError("no database")
        rest = 4 - 1
        found = await take(consumer, rest)
    assert sorted(bodies(found)) == numbers(rest, 1)
    assert {message.body for message in found if message.reconsume_times} == {
        message.body for message in failed[1:]
    }


async def test_run_calls_a_handler_for_each_message(target: Target, wide: str, group: str) -> None:
    await send(target, wide, *numbers(50))
    seen: list[bytes] = []

    async def handle(message: ReceivedMessage) -> None:
        seen.append(message.body)
        if len(seen) == 50:
            consumer.stop()

    async with target.consumer(group, wide) as consumer, asyncio.timeout(CONSUME_SECONDS):
        await consumer.run(handle, concurrency=4)
    assert sorted(map(int, seen)) == list(range(50))
    async with target.consumer(group, wide) as again:
        assert await again.get_many(timeout_ms=QUIET_MS) == []


async def test_run_handles_so_many_at_the_same_time(target: Target, topic: str, group: str) -> None:
    await send(target, topic, *numbers(8))
    at_work: set[bytes] = set()
    full = asyncio.Event()

    async def handle(message: ReceivedMessage) -> None:
        at_work.add(message.body)
        if len(at_work) == 4:
            full.set()
        await full.wait()
        consumer.stop()

    async with target.consumer(group, topic) as consumer, asyncio.timeout(CONSUME_SECONDS):
        await consumer.run(handle, concurrency=4)
    assert len(at_work) == 4


async def test_a_handler_that_blocks_runs_in_a_thread(
    target: Target, topic: str, group: str
) -> None:
    await send(target, topic, b"one")
    threads: list[int] = []
    loop = asyncio.get_running_loop()

    def handle(message: ReceivedMessage) -> None:
        threads.append(threading.get_ident())
        loop.call_soon_threadsafe(consumer.stop)

    async with target.consumer(group, topic) as consumer, asyncio.timeout(CONSUME_SECONDS):
        await consumer.run(handle)
    assert threads != [threading.get_ident()]
    await target.committed(group, topic, 1)


async def test_a_message_whose_handler_fails_comes_again(
    target: Target, topic: str, group: str
) -> None:
    await send(target, topic, b"one")
    tries: list[int] = []

    async def handle(message: ReceivedMessage) -> None:
        tries.append(message.reconsume_times)
        if len(tries) == 1:
            raise ValueError("no database")
        consumer.stop()

    async with target.consumer(group, topic) as consumer, asyncio.timeout(CONSUME_SECONDS):
        await consumer.run(handle)
    assert tries == [0, 1]


async def test_a_stopped_consumer_delivers_nothing_more(
    target: Target, topic: str, group: str
) -> None:
    await send(target, topic, *numbers(2))
    async with target.consumer(group, topic) as consumer:
        message = await consumer.get()
        consumer.stop()
        assert [other async for other in consumer] == []
        for take_more in (consumer.get(), consumer.get_many()):
            with pytest.raises(ClientStateError):
                await take_more
        message.ack()
    await target.committed(group, topic, 1)


async def test_several_tasks_share_one_consumer(target: Target, wide: str, group: str) -> None:
    await send(target, wide, *numbers(60))
    found: list[ReceivedMessage] = []
    async with (
        target.consumer(group, wide) as consumer,
        consuming(consumer, found),
        consuming(consumer, found),
        consuming(consumer, found),
    ):
        await until(lambda: len(found) >= 60)
    assert sorted(map(int, bodies(found))) == list(range(60))


# what comes


async def test_a_message_tells_the_bounds_of_its_queue(
    target: Target, topic: str, group: str
) -> None:
    await send(target, topic, *numbers(3))
    await target.stored(topic, 3)
    async with target.consumer(group, topic) as consumer:
        found = await take(consumer, 3)
    assert [message.queue_offset for message in found] == [0, 1, 2]
    assert {message.min_offset for message in found} == {0}
    assert {message.max_offset for message in found} == {3}


async def test_compressed_bodies_of_every_kind_come_as_they_were(
    target: Target, topic: str, group: str
) -> None:
    for compression in ("zlib", "lz4", "zstd", None):
        async with target.producer(compression=compression) as producer:
            await producer.send(topic, f"{compression} ".encode() * 10_000)
    async with target.consumer(group, topic) as consumer:
        found = await take(consumer, 4)
    assert [message.body.split()[0] for message in found] == [b"zlib", b"lz4", b"zstd", b"None"]
    assert {len(message.body.split()) for message in found} == {10_000}


async def test_a_thousand_messages_come_once_and_in_order(
    target: Target, topic: str, group: str
) -> None:
    # In one request: of two without a key, Apache's broker may store either first.
    async with target.producer(linger_ms=5, batch_size=1000) as producer:
        await asyncio.gather(*(producer.send(topic, body) for body in numbers(1000)))
    async with target.consumer(group, topic, batch_size=7) as consumer:
        assert bodies(await take(consumer, 1000)) == numbers(1000)


# limits


async def test_no_more_is_taken_ahead_than_the_limit_allows(
    target: Target, topic: str, group: str
) -> None:
    await send(target, topic, *numbers(30))
    limits = PrefetchLimits(count_max=4)
    async with target.consumer(group, topic, limits=limits, batch_size=5) as consumer:
        held: list[ReceivedMessage] = []
        while some := await consumer.get_many(timeout_ms=QUIET_MS):
            held += some
        assert bodies(held) == numbers(5)
        for message in held:
            message.ack()
        assert bodies(await take(consumer, 25)) == numbers(25, 5)


async def test_the_limit_of_bytes_counts(target: Target, topic: str, group: str) -> None:
    async with target.producer(compression=None) as producer:
        for _ in range(6):
            await producer.send(topic, bytes(10_000))
    limits = PrefetchLimits(size_max=15_000)
    async with target.consumer(group, topic, limits=limits, batch_size=1) as consumer:
        held: list[ReceivedMessage] = []
        while some := await consumer.get_many(timeout_ms=QUIET_MS):
            held += some
        assert len(held) == 2
        for message in held:
            message.ack()
        await take(consumer, 4)


async def test_a_message_that_is_held_too_long_comes_again(
    target: Target, topic: str, group: str
) -> None:
    await send(target, topic, b"held", b"next")
    async with target.consumer(group, topic, consume_timeout_ms=500) as consumer:
        held = await consumer.get()
        assert bodies(await take(consumer, 1)) == [b"next"]
        (again,) = await take(consumer, 1)
        held.ack()
    assert (held.body, again.body) == (b"held", b"held")
    assert (held.reconsume_times, again.reconsume_times) == (0, 1)
    assert again.store_time_ms - held.store_time_ms >= RETRY_SECONDS * 900


# control of the queues


async def test_a_paused_queue_delivers_when_it_is_resumed(
    target: Target, topic: str, group: str
) -> None:
    async with target.consumer(group, topic) as consumer:
        (queue,) = [queue for queue in consumer.assigned() if queue.topic == topic]
        consumer.pause(queue)
        await send(target, topic, *numbers(3))
        await target.stored(topic, 3)
        assert await consumer.get_many(timeout_ms=200) == []
        assert consumer.paused() == {queue}
        consumer.resume(queue)
        assert bodies(await take(consumer, 3)) == numbers(3)


async def test_seek_goes_back_and_forth(target: Target, topic: str, group: str) -> None:
    await send(target, topic, *numbers(10))
    await target.stored(topic, 10)
    async with target.consumer(group, topic) as consumer:
        await take(consumer, 2)
        (queue,) = [queue for queue in consumer.assigned() if queue.topic == topic]
        await consumer.seek(queue, 8)
        assert bodies(await take(consumer, 2)) == [b"8", b"9"]
        await consumer.seek(queue, "earliest")
        assert bodies(await take(consumer, 3)) == numbers(3)
        await consumer.seek(queue, "latest")
        assert consumer.position(queue) == await consumer.committed(queue) == 10
        await send(target, topic, b"new")
        assert bodies(await take(consumer, 1)) == [b"new"]
    await target.committed(group, topic, 11)


async def test_a_member_tells_its_lag(target: Target, topic: str, group: str) -> None:
    await send(target, topic, *numbers(10))
    await target.stored(topic, 10)
    async with target.consumer(group, topic) as consumer:
        (queue,) = [queue for queue in consumer.assigned() if queue.topic == topic]
        await take(consumer, 4)
        assert (await consumer.lag())[queue] == 6
        await take(consumer, 6)
        assert (await consumer.lag())[queue] == 0
        assert consumer.position(queue) == 10
