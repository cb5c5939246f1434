"""Clients that share one session, and clients that start and end."""

from __future__ import annotations

import asyncio

import pytest

import roquet
from roquet import ClientStateError, ReceivedMessage
from tests.interop.client.target import TIMEOUT_MS, Target, bodies, consuming, numbers
from tests.interop.processes import free_port
from tests.interop.taken import take, until

pytestmark = pytest.mark.interop

PRODUCERS_OF_GROUP, CONSUMERS_OF_GROUP = 204, 203


async def test_producers_and_consumers_share_one_session(
    target: Target, topic: str, group: str
) -> None:
    async with target.connect() as mq:
        one = await mq.producer("P-one", timeout_ms=TIMEOUT_MS).start()
        other = await mq.producer("P-other", timeout_ms=TIMEOUT_MS).start()
        consumer = await mq.consumer(group, topic, start="earliest").start()
        await one.send(topic, b"one")
        await other.send(topic, b"other")
        assert bodies(await take(consumer, 2)) == [b"one", b"other"]


async def test_a_client_sends_without_a_producer_of_its_own(target: Target, topic: str) -> None:
    async with target.connect() as mq:
        results = await asyncio.gather(*(mq.send(topic, body) for body in numbers(20)))
    assert sorted(result.queue_offset for result in results) == list(range(20))


async def test_consumers_of_several_groups_share_one_session(
    target: Target, topic: str, group: str
) -> None:
    async with target.connect() as mq:
        consumers = [
            await mq.consumer(f"{group}-{number}", topic, start="earliest").start()
            for number in range(3)
        ]
        await mq.send(topic, b"one")
        for consumer in consumers:
            assert bodies(await take(consumer, 1)) == [b"one"]


async def test_one_client_id_is_in_all_groups_of_a_session(
    target: Target, topic: str, group: str
) -> None:
    async with target.connect(client_id="127.0.0.1@shared-" + group) as mq:
        await mq.send(topic, b"one")
        await mq.producer(f"P-{group}").start()
        await mq.consumer(group, topic).start()
        await until(
            lambda: (
                b"@shared-" in target.ask(CONSUMERS_OF_GROUP, {"consumerGroup": group}).body
                and b"@shared-" in target.ask(PRODUCERS_OF_GROUP, producers(group)).body
            )
        )


def producers(group: str) -> dict[str, str]:
    return {"producerGroup": f"P-{group}"}


async def test_closing_a_producer_leaves_the_others(target: Target, topic: str, group: str) -> None:
    async with target.connect() as mq, mq.consumer(group, topic, start="earliest") as consumer:
        async with mq.producer("P-one", timeout_ms=TIMEOUT_MS) as one:
            await one.send(topic, b"one")
        async with mq.producer("P-other", timeout_ms=TIMEOUT_MS) as other:
            await other.send(topic, b"other")
        assert bodies(await take(consumer, 2)) == [b"one", b"other"]
        with pytest.raises(ClientStateError):
            await one.send(topic, b"closed")


async def test_closing_a_consumer_leaves_the_others(target: Target, topic: str, group: str) -> None:
    async with target.connect() as mq:
        other = await mq.consumer(f"{group}-other", topic, start="earliest").start()
        async with mq.consumer(group, topic, start="earliest") as consumer:
            await mq.send(topic, b"one")
            await take(consumer, 1)
        await mq.send(topic, b"two")
        assert bodies(await take(other, 2)) == [b"one", b"two"]
        with pytest.raises(ClientStateError):
            await consumer.get()


async def test_a_closed_consumer_of_a_session_starts_as_a_new_one(
    target: Target, topic: str, group: str
) -> None:
    async with target.connect() as mq:
        for body in numbers(3):
            await mq.send(topic, body)
            async with mq.consumer(group, topic, start="earliest") as consumer:
                assert bodies(await take(consumer, 1)) == [body]


async def test_the_end_of_a_session_closes_its_clients(
    target: Target, topic: str, group: str
) -> None:
    got: list[ReceivedMessage] = []
    async with target.connect() as mq:
        producer = await mq.producer().start()
        consumer = await mq.consumer(group, topic, start="earliest").start()
        await producer.send(topic, b"one")
        async with consuming(consumer, got):
            await until(lambda: len(got) == 1)
    for use in (producer.send(topic, b"closed"), consumer.get()):
        with pytest.raises(ClientStateError):
            await use
    await target.committed(group, topic, 1)


async def test_a_member_that_leaves_is_gone_from_the_broker_s_list(
    target: Target, topic: str, group: str
) -> None:
    def members() -> int:
        answer = target.ask(38, {"consumerGroup": group})
        return answer.body.count(b"127.0.0.1@") if answer.code == 0 else 0

    async with target.consumer(group, topic, client_id="127.0.0.1@one-member"):
        await until(lambda: members() == 1)
    await until(lambda: members() == 0)


async def test_a_reader_and_an_administrator_share_the_session(target: Target, topic: str) -> None:
    async with target.connect() as mq:
        await mq.send(topic, b"one")
        await target.stored(topic, 1)
        reader, admin = await mq.pull_consumer().start(), await mq.admin().start()
        (queue,) = await reader.queues(topic)
        assert bodies((await reader.pull(queue, 0)).messages) == [b"one"]
        addresses = [broker.addresses for broker in (await admin.brokers()).values()]
        assert target.broker in str(addresses)


async def test_many_clients_come_and_go(target: Target, topic: str) -> None:
    async def once(number: int) -> None:
        async with target.connect() as mq:
            await mq.send(topic, b"%d" % number)

    for start in range(0, 30, 10):
        await asyncio.gather(*(once(number) for number in range(start, start + 10)))
    assert sorted(map(int, bodies(await target.stored(topic, 30)))) == list(range(30))


async def test_a_dead_name_server_beside_a_live_one_is_passed_over(
    target: Target, topic: str
) -> None:
    dead = f"127.0.0.1:{free_port()}"
    async with roquet.connect([dead, target.namesrv]) as mq:
        await mq.send(topic, b"one")
    assert bodies(await target.stored(topic, 1)) == [b"one"]
