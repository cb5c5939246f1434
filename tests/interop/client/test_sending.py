"""What our producer sends: how it is stored, in which queue, and what the result says."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Mapping, Sequence
from typing import Final

import pytest

from roquet import Message, MessageError, MessageQueue, SendStatus
from roquet.client._send.unique_key import month_of
from roquet.protocol.records.compression import CompressionName
from tests.interop.client.target import Target, bodies, numbers
from tests.interop.taken import take

pytestmark = pytest.mark.interop

MAX_SIZE = 4 * 1024 * 1024
INT_MIN, INT_MAX = -(2**31), 2**31 - 1

# one message


async def test_a_message_is_stored_as_it_was_sent(target: Target, topic: str) -> None:
    async with target.producer() as producer:
        sent = await producer.send(
            topic, b"body", tags="A", keys=("k1", "k2"), properties={"color": "red"}, flag=7
        )
    (found,) = await target.stored(topic, 1)
    assert (found.topic, found.body, found.tags, found.keys) == (topic, b"body", "A", ("k1", "k2"))
    assert (found.properties["color"], found.flag, found.reconsume_times) == ("red", 7, 0)
    assert found.message_id == sent.message_id


async def test_a_message_object_is_sent_like_its_arguments(target: Target, topic: str) -> None:
    message = Message(topic, b"body", "A", "k", {"color": "red"}, 7)
    async with target.producer() as producer:
        await producer.send(message)
        await producer.send(topic, b"body", tags="A", keys="k", properties={"color": "red"}, flag=7)
    one, other = await target.stored(topic, 2)
    for found in (one, other):
        assert (found.body, found.tags, found.keys, found.flag) == (b"body", "A", ("k",), 7)
    assert one.properties.keys() == other.properties.keys()


async def test_the_result_tells_where_the_message_is(target: Target, wide: str) -> None:
    async with target.producer() as producer, target.reader() as reader:
        results = [await producer.send(wide, body) for body in numbers(6)]
        await target.stored(wide, 6)
        for number, result in enumerate(results):
            assert result.status is SendStatus.SEND_OK
            found = (await reader.pull(result.queue, result.queue_offset)).messages[0]
            assert found.body == b"%d" % number
            assert (found.message_id, found.offset_message_id) == (
                result.message_id,
                result.offset_message_id,
            )


async def test_a_message_without_anything_else_has_none_of_it(target: Target, topic: str) -> None:
    async with target.producer() as producer:
        await producer.send(topic, b"bare")
    (found,) = await target.stored(topic, 1)
    assert (found.tags, found.keys, found.flag, found.sys_flag) == (None, (), 0, 0)


@pytest.mark.parametrize("flag", [INT_MIN, -1, 1, INT_MAX])
async def test_any_flag_comes_back(target: Target, topic: str, flag: int) -> None:
    async with target.producer() as producer:
        await producer.send(topic, b"flagged", flag=flag)
    (found,) = await target.stored(topic, 1)
    assert found.flag == flag


async def test_properties_with_odd_characters_come_back(target: Target, topic: str) -> None:
    odd = {
        "blank inside": "a value with blanks",
        "größe": "übergroß",
        "雪": "☃ 🎉 \U0010ffff",
        "sign=of:json": '{"a": "b"}',
        "line": "one\ntwo\r\n\tthree",
        "zero": "a\x00b",
        "percent%": "%00&x=y",
    }
    async with target.producer() as producer:
        await producer.send(topic, b"odd", properties=odd)
        await producer.send_batch([Message(topic, b"odd, too", properties=odd)])
    for found in await target.stored(topic, 2):
        assert {key: found.properties.get(key) for key in odd} == odd


async def test_tags_and_keys_in_any_script_come_back(target: Target, topic: str) -> None:
    async with target.producer() as producer:
        await producer.send(topic, b"body", tags="größe 🎉", keys=("ключ", "キー"))
    (found,) = await target.stored(topic, 1)
    assert (found.tags, found.keys) == ("größe 🎉", ("ключ", "キー"))


async def test_many_keys_and_many_properties_come_back(target: Target, topic: str) -> None:
    keys = tuple(f"key-{number}" for number in range(200))
    properties = {f"name-{number}": f"value-{number}" for number in range(300)}
    async with target.producer() as producer:
        await producer.send(topic, b"body", keys=keys, properties=properties)
    (found,) = await target.stored(topic, 1)
    assert found.keys == keys
    assert properties.items() <= found.properties.items()


async def test_properties_of_almost_32_kibibytes_are_stored(target: Target, topic: str) -> None:
    value = "x" * 32_000
    async with target.producer() as producer:
        await producer.send(topic, b"body", properties={"large": value})
    (found,) = await target.stored(topic, 1)
    assert found.properties["large"] == value


async def test_times_and_hosts_of_a_message_are_known(target: Target, topic: str) -> None:
    before_ms = int(time.time() * 1000)
    async with target.producer() as producer:
        await producer.send(topic, b"now")
    after_ms = int(time.time() * 1000)
    (found,) = await target.stored(topic, 1)
    assert before_ms <= found.born_time_ms <= found.store_time_ms <= after_ms
    assert found.store_host == target.broker
    assert found.born_host.startswith("127.0.0.1:")


async def test_a_message_id_tells_when_it_was_made(target: Target, topic: str) -> None:
    async with target.producer() as producer:
        result = await producer.send(topic, b"now")
    now_ms = int(time.time() * 1000)
    made_ms = month_of(now_ms)[0] + int(result.message_id[-12:-4], 16)
    assert abs(made_ms - now_ms) < 60_000


async def test_a_send_creates_a_topic_with_four_queues(target: Target, name: str) -> None:
    async with target.producer() as producer:
        results = [await producer.send(name, body) for body in numbers(8)]
        assert len(await producer.queues(name)) == 4
    assert len({result.queue for result in results}) == 4


async def test_a_topic_of_the_longest_name_is_used(target: Target, name: str) -> None:
    longest = (name + "x" * 127)[:127]
    target.make_topic(longest)
    async with target.producer() as producer:
        await producer.send(longest, b"body")
    (found,) = await target.stored(longest, 1)
    assert found.topic == longest


async def test_a_message_that_waits_for_nothing_is_stored(target: Target, topic: str) -> None:
    async with target.producer() as producer:
        result = await producer.send(topic, b"body", wait_stored=False)
    (found,) = await target.stored(topic, 1)
    assert (result.status, found.body) == (SendStatus.SEND_OK, b"body")


# bodies


@pytest.mark.parametrize("body", [b"\x00", bytes(range(256)), "☃".encode()], ids=repr)
async def test_any_bytes_are_a_body(target: Target, topic: str, body: bytes) -> None:
    async with target.producer() as producer:
        await producer.send(topic, body)
    (found,) = await target.stored(topic, 1)
    assert found.body == body


async def test_a_body_of_four_mebibytes_is_stored(target: Target, topic: str) -> None:
    body = os.urandom(MAX_SIZE)
    async with target.producer() as producer:
        await producer.send(topic, body)
    (found,) = await target.stored(topic, 1)
    assert found.body == body


async def test_a_larger_body_is_refused_before_it_is_sent(target: Target, topic: str) -> None:
    async with target.producer() as producer:
        with pytest.raises(MessageError, match="4194304"):
            await producer.send(topic, os.urandom(MAX_SIZE + 1))
        await producer.send(topic, b"next")
    assert bodies(await target.stored(topic, 1)) == [b"next"]


BITS: Final[Mapping[CompressionName, tuple[int, ...]]] = {
    "zlib": (0x1, 0x301),
    "lz4": (0x101,),
    "zstd": (0x201,),
}
"""The sysFlag of each kind; that of zlib has two forms."""


@pytest.mark.parametrize("kind", BITS)
async def test_a_large_body_is_stored_compressed(
    target: Target, topic: str, kind: CompressionName
) -> None:
    body = b"large " * 20_000
    async with target.producer(compression=kind) as producer:
        await producer.send(topic, body)
    (found,) = await target.stored(topic, 1)
    assert found.body == body
    assert len(found.stored_body) < len(body) / 10
    assert found.sys_flag in BITS[kind]


async def test_nothing_is_compressed_if_that_is_not_wanted(target: Target, topic: str) -> None:
    async with target.producer(compression=None) as producer:
        await producer.send(topic, b"large " * 20_000)
    (found,) = await target.stored(topic, 1)
    assert (found.stored_body, found.sys_flag) == (b"large " * 20_000, 0)


async def test_a_body_is_compressed_from_the_given_size_on(target: Target, topic: str) -> None:
    async with target.producer(compress_from_size=100) as producer:
        await producer.send(topic, b"x" * 99)
        await producer.send(topic, b"x" * 100)
    found = await target.stored(topic, 2)
    assert [len(message.body) for message in found] == [99, 100]
    assert [message.sys_flag & 1 for message in found] == [0, 1]


async def test_a_body_that_does_not_shrink_stays_as_it_is(target: Target, topic: str) -> None:
    body = os.urandom(10_000)
    async with target.producer() as producer:
        await producer.send(topic, body)
    (found,) = await target.stored(topic, 1)
    assert (found.stored_body, found.sys_flag) == (body, 0)


async def test_a_compressed_body_may_be_larger_than_a_message(target: Target, topic: str) -> None:
    """Each side limits what is sent, not what it becomes."""
    async with target.producer() as producer:
        with pytest.raises(MessageError):
            await producer.send(topic, bytes(MAX_SIZE + 1))
        await producer.send(topic, bytes(MAX_SIZE))
    (found,) = await target.stored(topic, 1)
    assert found.body == bytes(MAX_SIZE)


# batches


async def test_the_messages_of_a_batch_are_next_to_each_other(target: Target, wide: str) -> None:
    async with target.producer() as producer:
        results = await producer.send_batch([Message(wide, body) for body in numbers(10)])
    found = await target.stored(wide, 10)
    assert bodies(found) == numbers(10)
    assert [result.queue_offset for result in results] == list(range(10))
    assert len({result.queue for result in results}) == 1
    assert [m.message_id for m in found] == [result.message_id for result in results]
    assert [m.offset_message_id for m in found] == [r.offset_message_id for r in results]


async def test_each_message_of_a_batch_has_its_own_fields(target: Target, topic: str) -> None:
    batch = [
        Message(topic, b"a", "A", "ka", {"color": "red"}, 1),
        Message(topic, b"b", None, ("kb", "kc"), {"größe": "🎉"}, INT_MIN),
        Message(topic, b"c"),
    ]
    async with target.producer() as producer:
        await producer.send_batch(batch)
    for sent, found in zip(batch, await target.stored(topic, 3), strict=True):
        assert (found.body, found.tags, found.flag) == (sent.body, sent.tags, sent.flag)
        assert found.keys == sent.key_list
        assert sent.properties.items() <= found.properties.items()


async def test_a_batch_may_have_one_message(target: Target, topic: str) -> None:
    async with target.producer() as producer:
        (result,) = await producer.send_batch([Message(topic, b"alone")])
    (found,) = await target.stored(topic, 1)
    assert (found.body, found.message_id) == (b"alone", result.message_id)


async def test_a_batch_of_many_small_messages_is_split(target: Target, topic: str) -> None:
    async with target.producer() as producer:
        results = await producer.send_batch([Message(topic, b"x" * 50) for _ in range(20_000)])
    assert {result.status for result in results} == {SendStatus.SEND_OK}
    assert len({result.offset_message_id for result in results}) == 20_000


async def test_a_batch_of_large_messages_is_split(target: Target, topic: str) -> None:
    async with target.producer() as producer:
        results = await producer.send_batch([Message(topic, bytes(1_300_000)) for _ in range(4)])
    assert [result.queue_offset for result in results] == [0, 1, 2, 3]
    assert [len(m.body) for m in await target.stored(topic, 4)] == [1_300_000] * 4


async def test_a_batch_goes_to_the_queue_that_is_asked_for(target: Target, wide: str) -> None:
    async with target.producer() as producer:
        queue = (await producer.queues(wide))[2]
        batch = [Message(wide, body) for body in numbers(3)]
        named = await producer.send_batch(batch, queue=queue)
        keyed = [await producer.send_batch(batch, sharding_key="k") for _ in range(2)]
    assert {result.queue for result in named} == {queue}
    assert len({result.queue for results in keyed for result in results}) == 1


# one way, and many at once


async def test_a_one_way_message_arrives_with_the_id_it_was_given(
    target: Target, topic: str
) -> None:
    async with target.producer() as producer:
        message_id = await producer.send_one_way(topic, b"one way", tags="A")
    (found,) = await target.stored(topic, 1)
    assert (found.body, found.tags, found.message_id) == (b"one way", "A", message_id)


async def test_two_thousand_sends_at_once_all_arrive(target: Target, wide: str) -> None:
    async with target.producer() as producer:
        results = await asyncio.gather(*(producer.send(wide, body) for body in numbers(2000)))
    assert len({(result.queue, result.queue_offset) for result in results}) == 2000
    assert {result.status for result in results} == {SendStatus.SEND_OK}


async def test_with_one_in_flight_sends_at_once_keep_their_order(
    target: Target, topic: str
) -> None:
    async with target.producer(max_in_flight=1) as producer:
        results = await asyncio.gather(*(producer.send(topic, body) for body in numbers(50)))
    assert [result.queue_offset for result in results] == list(range(50))
    assert bodies(await target.stored(topic, 50)) == numbers(50)


async def test_many_producers_of_a_group_send_at_once(target: Target, topic: str) -> None:
    async def send(number: int) -> None:
        async with target.producer("P-many") as producer:
            await producer.send(topic, b"%d" % number)

    await asyncio.gather(*(send(number) for number in range(10)))
    assert sorted(bodies(await target.stored(topic, 10))) == numbers(10)


# gathered


async def test_gathered_sends_are_one_batch_in_their_order(target: Target, wide: str) -> None:
    async with target.producer(linger_ms=50) as producer:
        results = await asyncio.gather(*(producer.send(wide, body) for body in numbers(100)))
    assert [result.queue_offset for result in results] == list(range(100))
    assert len({result.queue for result in results}) == 1
    assert bodies(await target.stored(wide, 100)) == numbers(100)


async def test_flush_sends_what_waits(target: Target, topic: str) -> None:
    async with target.producer(linger_ms=20_000) as producer:
        sends = [asyncio.create_task(producer.send(topic, body)) for body in numbers(3)]
        await asyncio.sleep(0)
        await producer.flush()
        results = await asyncio.gather(*sends)
    assert [result.queue_offset for result in results] == [0, 1, 2]


async def test_close_sends_what_waits(target: Target, topic: str) -> None:
    producer = await target.producer(linger_ms=20_000).start()
    sends = [asyncio.create_task(producer.send(topic, body)) for body in numbers(3)]
    await asyncio.sleep(0)
    await producer.close()
    assert [result.queue_offset for result in await asyncio.gather(*sends)] == [0, 1, 2]


async def test_what_cannot_be_gathered_is_sent_beside_it(target: Target, topic: str) -> None:
    async with target.producer(linger_ms=50) as producer:
        await asyncio.gather(
            producer.send(topic, b"1"),
            producer.send(topic, b"large " * 20_000),
            producer.send(topic, b"later", delay_level=1),
            producer.send(topic, b"2", tags="T", keys="k", properties={"a": "b"}),
        )
    found = {message.body: message for message in await target.stored(topic, 4)}
    assert found.keys() == {b"1", b"2", b"large " * 20_000, b"later"}
    assert (found[b"2"].tags, found[b"2"].keys, found[b"2"].properties["a"]) == ("T", ("k",), "b")


# the choice of a queue


async def test_without_a_choice_the_queues_are_used_in_turn(target: Target, wide: str) -> None:
    async with target.producer() as producer:
        results = [await producer.send(wide, body) for body in numbers(8)]
        queues = await producer.queues(wide)
    used = [queues.index(result.queue) for result in results]
    assert used == [(used[0] + number) % 4 for number in range(8)]


async def test_messages_of_one_key_go_to_one_queue_in_order(target: Target, wide: str) -> None:
    async with target.producer() as producer:
        results = [await producer.send(wide, body, sharding_key="order-7") for body in numbers(20)]
    assert len({result.queue for result in results}) == 1
    assert [result.queue_offset for result in results] == list(range(20))


async def test_keys_use_several_queues(target: Target, wide: str) -> None:
    async with target.producer() as producer:
        results = await asyncio.gather(
            *(producer.send(wide, b"x", sharding_key=f"key-{number}") for number in range(40))
        )
    assert len({result.queue for result in results}) == 4


async def test_a_message_goes_to_the_queue_it_is_sent_to(target: Target, wide: str) -> None:
    async with target.producer() as producer:
        for queue in await producer.queues(wide):
            assert (await producer.send(wide, b"x", queue=queue)).queue == queue


async def test_a_function_chooses_the_queue(target: Target, wide: str) -> None:
    def last(queues: Sequence[MessageQueue]) -> MessageQueue:
        return max(queues)

    async with target.producer() as producer:
        result = await producer.send(wide, b"x", queue=last)
    assert result.queue.queue_id == 3


# later


async def test_a_delayed_message_comes_after_its_delay(
    target: Target, topic: str, group: str
) -> None:
    async with target.producer() as producer, target.consumer(group, topic) as consumer:
        await producer.send(topic, b"later", delay_level=1, tags="T", keys="k")
        await producer.send(topic, b"at once")
        now, later = await take(consumer, 2)
    assert (now.body, later.body) == (b"at once", b"later")
    assert (later.topic, later.queue.topic, later.tags, later.keys) == (topic, topic, "T", ("k",))
    assert later.store_time_ms - later.born_time_ms >= 900


async def test_delayed_messages_of_a_shorter_level_come_earlier(
    target: Target, topic: str, group: str
) -> None:
    async with target.producer() as producer, target.consumer(group, topic) as consumer:
        await producer.send(topic, b"in three seconds", delay_level=5)
        await producer.send(topic, b"in one second", delay_level=1)
        assert bodies(await take(consumer, 2)) == [b"in one second", b"in three seconds"]


async def test_a_level_beyond_the_last_means_the_last(
    target: Target, topic: str, group: str
) -> None:
    async with target.producer() as producer, target.consumer(group, topic) as consumer:
        with pytest.warns(UserWarning, match="a number above the last means the last"):
            await producer.send(topic, b"later", delay_level=INT_MAX)
        (found,) = await take(consumer, 1)
    assert found.store_time_ms - found.born_time_ms >= 3900


async def test_the_result_of_a_delayed_message_has_its_id(
    target: Target, topic: str, group: str
) -> None:
    async with target.producer() as producer, target.consumer(group, topic) as consumer:
        sent = await producer.send(topic, b"later", delay_level=1)
        (found,) = await take(consumer, 1)
    assert sent.status is SendStatus.SEND_OK
    assert found.message_id == sent.message_id
    assert found.offset_message_id != sent.offset_message_id
