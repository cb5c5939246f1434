"""What a client is told when something cannot be."""

from __future__ import annotations

import asyncio

import pytest

from roquet import (
    Message,
    MessageError,
    MessageQueue,
    PullStatus,
    ResponseError,
    RoquetError,
    RouteNotFound,
    Sql,
)
from tests.interop.client.target import READ, WRITE, Target, bodies, numbers
from tests.interop.taken import take, until

pytestmark = pytest.mark.interop

SYSTEM_ERROR, MESSAGE_ILLEGAL, NO_PERMISSION = 1, 13, 16
SUBSCRIPTION_PARSE_FAILED, GROUP_NOT_EXIST = 23, 26
TOO_LONG = "x" * 32_710
"""A property that the protocol can carry, but that leaves a broker no room for its own."""

# topics that are not there


async def test_a_send_to_an_unknown_topic_fails(strict: Target, name: str) -> None:
    async with strict.producer() as producer:
        with pytest.raises(RouteNotFound, match=name):
            await producer.send(name, b"x", timeout_ms=1000)
        with pytest.raises(RouteNotFound):
            await producer.send_batch([Message(name, b"x")], timeout_ms=1000)


async def test_queues_of_an_unknown_topic_are_not_found(strict: Target, name: str) -> None:
    async with strict.reader() as reader:
        with pytest.raises(RouteNotFound, match=name):
            await reader.queues(name)


async def test_a_topic_that_is_made_can_be_sent_to_by_the_same_producer(
    strict: Target, name: str
) -> None:
    async with strict.producer() as producer:
        with pytest.raises(RouteNotFound):
            await producer.send(name, b"x", timeout_ms=500)
        strict.make_topic(name)
        await producer.send(name, b"y")
    assert bodies(await strict.stored(name, 1)) == [b"y"]


async def test_a_member_waits_for_a_topic_that_is_made_later(strict: Target, name: str) -> None:
    strict.make_group(f"G-{name}")
    async with strict.consumer(f"G-{name}", name) as consumer:
        strict.make_topic(name)
        async with strict.producer() as producer:
            await producer.send(name, b"first")
        assert bodies(await take(consumer, 1)) == [b"first"]


async def test_a_queue_that_does_not_exist_is_refused(target: Target, topic: str) -> None:
    async with target.producer() as producer:
        broker = (await producer.queues(topic))[0].broker_name
        with pytest.raises(ResponseError) as caught:
            await producer.send(topic, b"x", queue=MessageQueue(topic, broker, 7), timeout_ms=1000)
    assert caught.value.code == SYSTEM_ERROR


async def test_a_queue_of_an_unknown_broker_is_not_found(target: Target, topic: str) -> None:
    async with target.producer() as producer:
        with pytest.raises(RoquetError, match="nobody"):
            await producer.send(
                topic, b"x", queue=MessageQueue(topic, "nobody", 0), timeout_ms=1000
            )


async def test_a_pull_of_a_queue_that_does_not_exist_is_refused(target: Target, topic: str) -> None:
    async with target.reader() as reader:
        (queue,) = await reader.queues(topic)
        with pytest.raises(ResponseError) as caught:
            await reader.pull(MessageQueue(topic, queue.broker_name, 7), 0)
    assert caught.value.code == SYSTEM_ERROR


# what may not be done


async def test_a_read_only_topic_is_not_written(target: Target, name: str) -> None:
    target.make_topic(name, perm=READ)
    async with target.producer() as producer, target.reader() as reader:
        with pytest.raises(RouteNotFound, match="no writable queue"):
            await producer.send(name, b"x", timeout_ms=1000)
        (queue,) = await reader.queues(name)
        assert (await reader.pull(queue, 0)).status is PullStatus.NO_NEW


async def test_a_write_only_topic_is_not_read(target: Target, name: str) -> None:
    target.make_topic(name, perm=WRITE)
    async with target.producer() as producer, target.reader() as reader:
        queue = (await producer.send(name, b"x")).queue
        assert await reader.queues(name) == []
        with pytest.raises(ResponseError) as caught:
            await reader.pull(queue, 0)
    assert caught.value.code == NO_PERMISSION


async def test_a_group_that_may_not_consume_is_refused(
    target: Target, topic: str, group: str
) -> None:
    target.make_group(group, consumeEnable=False)
    async with target.reader(group) as reader:
        (queue,) = await reader.queues(topic)
        with pytest.raises(ResponseError) as caught:
            await reader.pull(queue, 0)
    assert caught.value.code == NO_PERMISSION


async def test_a_group_goes_on_when_it_may_consume_again(
    target: Target, topic: str, group: str
) -> None:
    target.make_group(group, consumeEnable=False)
    async with target.producer() as producer, target.consumer(group, topic) as consumer:
        await producer.send(topic, b"one")
        assert await consumer.get_many(timeout_ms=300) == []
        target.make_group(group, consumeEnable=True)
        assert bodies(await take(consumer, 1)) == [b"one"]


async def test_an_unknown_group_does_not_pull(strict: Target, name: str) -> None:
    strict.make_topic(name)
    async with strict.reader(f"G-{name}") as reader:
        (queue,) = await reader.queues(name)
        with pytest.raises(ResponseError) as caught:
            await reader.pull(queue, 0)
        assert caught.value.code == GROUP_NOT_EXIST
        strict.make_group(f"G-{name}")
        assert (await reader.pull(queue, 0)).status is PullStatus.NO_NEW


async def test_a_member_of_an_unknown_group_waits_until_it_is_made(
    strict: Target, name: str
) -> None:
    strict.make_topic(name)
    async with (
        strict.producer() as producer,
        strict.consumer(f"G-{name}", name) as consumer,
    ):
        await producer.send(name, b"one")
        await until(lambda: strict.ask(38, {"consumerGroup": f"G-{name}"}).code in (0, 1))
        strict.make_group(f"G-{name}")
        assert bodies(await take(consumer, 1)) == [b"one"]


@pytest.mark.parametrize("system_topic", ["SCHEDULE_TOPIC_XXXX", "RMQ_SYS_TRANS_HALF_TOPIC"])
async def test_a_system_topic_is_not_written(target: Target, system_topic: str) -> None:
    async with target.producer(retries=0) as producer:
        with pytest.raises(ResponseError) as caught:
            await producer.send(system_topic, b"x")
    assert caught.value.address == target.broker
    assert caught.value.code in (SYSTEM_ERROR, NO_PERMISSION)


# messages and filters that are not allowed


async def test_properties_that_leave_the_broker_no_room_are_refused(
    target: Target, topic: str
) -> None:
    async with target.producer() as producer:
        with pytest.raises(ResponseError) as caught:
            await producer.send(topic, b"x", properties={"note": TOO_LONG})
        await producer.send(topic, b"next")
    assert caught.value.code == MESSAGE_ILLEGAL
    assert bodies(await target.stored(topic, 1)) == [b"next"]


async def test_properties_beyond_what_a_message_may_have_are_not_sent(
    target: Target, topic: str
) -> None:
    async with target.producer() as producer:
        with pytest.raises(MessageError, match="32767"):
            await producer.send(topic, b"x", properties={"note": "x" * 32_767})
        with pytest.raises(MessageError, match="32767"):
            await producer.send(topic, b"x", keys=tuple(f"key-{n}" for n in range(10_000)))
        await producer.send(topic, b"next")
    assert bodies(await target.stored(topic, 1)) == [b"next"]


async def test_a_batch_with_one_bad_message_is_not_sent(target: Target, topic: str) -> None:
    async with target.producer() as producer:
        with pytest.raises(MessageError):
            await producer.send_batch(
                [*(Message(topic, body) for body in numbers(3)), Message(topic + "x", b"x")]
            )
        with pytest.raises(MessageError):
            await producer.send_batch([Message(topic, b"x", delay_level=1)])
        await producer.send(topic, b"next")
    assert bodies(await target.stored(topic, 1)) == [b"next"]


async def test_one_bad_send_does_not_disturb_those_beside_it(target: Target, topic: str) -> None:
    async with target.producer() as producer:
        results = await asyncio.gather(
            *(producer.send(topic, body) for body in numbers(10)),
            producer.send(topic, b"x", properties={"note": TOO_LONG}),
            *(producer.send(topic, body) for body in numbers(10, 10)),
            return_exceptions=True,
        )
    assert [type(result).__name__ for result in results].count("SendResult") == 20
    assert isinstance(results[10], ResponseError)
    assert len(await target.stored(topic, 20)) == 20


async def test_an_invalid_sql_expression_is_refused(target: Target, topic: str, group: str) -> None:
    with pytest.raises(ResponseError) as caught:
        await target.consumer(group, {topic: Sql("a >")}).start()
    assert caught.value.code == SUBSCRIPTION_PARSE_FAILED
    async with target.reader() as reader:
        (queue,) = await reader.queues(topic)
        with pytest.raises(ResponseError) as caught:
            await reader.pull(queue, 0, tags=Sql("a >"))
    assert caught.value.code == SUBSCRIPTION_PARSE_FAILED


async def test_a_broker_without_sql_refuses_it(strict: Target, name: str) -> None:
    strict.make_topic(name)
    strict.make_group(f"G-{name}")
    with pytest.raises(ResponseError) as caught:
        await strict.consumer(f"G-{name}", {name: Sql("a > 1")}).start()
    assert caught.value.code == SYSTEM_ERROR
    async with strict.reader(f"G-{name}") as reader:
        (queue,) = await reader.queues(name)
        with pytest.raises(ResponseError) as caught:
            await reader.pull(queue, 0, tags=Sql("a > 1"))
    assert caught.value.code == SYSTEM_ERROR


async def test_a_refusal_names_the_broker_and_the_reason(target: Target, topic: str) -> None:
    async with target.producer() as producer:
        with pytest.raises(ResponseError) as caught:
            await producer.send(topic, b"x", properties={"note": TOO_LONG})
    assert caught.value.address == target.broker
    assert caught.value.remark
    assert target.broker in str(caught.value)
