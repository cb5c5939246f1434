"""Clients with a namespace, at a real broker: it knows full names, the application plain ones."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Sequence
from typing import Any

import pytest

from roquet.client.config import ClientConfig
from roquet.client.consumer import Consumer
from roquet.client.producer import Producer
from roquet.client.pull_consumer import PullConsumer
from roquet.client.received import ReceivedMessage
from roquet.client.transactions import TransactionProducer, TransactionState
from roquet.cluster import Client
from roquet.errors import ConfigError, MessageError
from roquet.protocol.records.message import (
    PRODUCER_GROUP,
    TRACE_TOPIC,
    Message,
    MessageQueue,
)
from tests.client.served import NAME_SERVER, Served

TENANT = "tenant-a"


def client(served: Served, namespace: str | None = TENANT, number: int = 1) -> Client:
    host = served.client
    return Client(
        NAME_SERVER,
        client_id=f"{host.address}@{number}",
        runtime=host.runtime(),
        namespace=namespace,
    )


def test_what_a_tenant_sends_only_its_consumers_get(served: Served) -> None:
    async def run() -> tuple[ReceivedMessage, list[ReceivedMessage], MessageQueue]:
        async with (
            client(served) as mq,
            client(served, "tenant-b", 2) as other,
            mq.consumer("G", "T", start="earliest") as mine,
            other.consumer("G", "T", start="earliest") as foreign,
        ):
            result = await mq.send("T", b"hello", tags="a")
            message = await mine.get()
            message.ack()
            return message, await foreign.get_many(timeout_ms=5000), result.queue

    message, foreign, queue = served.run(run)
    assert (message.topic, message.queue, queue.topic) == ("T", queue, "T")
    assert foreign == []
    (stored,) = served.records("tenant-a%T")
    assert stored.properties["INSTANCE_ID"] == TENANT
    assert served.records("T") == []


def test_queues_have_plain_names_wherever_the_application_sees_them(served: Served) -> None:
    async def run() -> list[MessageQueue]:
        async with client(served) as mq:
            async with mq.producer("P") as producer:
                queues = await producer.queues("T")
                chosen: list[MessageQueue] = []

                def last(given: Sequence[MessageQueue]) -> MessageQueue:
                    chosen.extend(given)
                    return given[-1]

                by_queue = await producer.send("T", b"0", queue=queues[0])
                by_function = await producer.send("T", b"1", queue=last)
                assert (by_queue.queue, by_function.queue) == (queues[0], queues[-1])
                assert chosen == queues
            async with mq.consumer("G", "T", start="earliest") as consumer:
                retry = MessageQueue("%RETRY%G", queues[0].broker_name, 0)
                while len(consumer.assigned()) < 3:
                    await asyncio.sleep(1)
                consumer.pause(queues[0])
                assert consumer.paused() == {queues[0]}
                consumer.resume()
                assert consumer.assigned() == {*queues, retry}
                await consumer.seek(queues[0], "earliest")
                assert consumer.position(queues[0]) == 0
                assert await consumer.committed(queues[0]) == 0
                await consumer.commit({queues[0]: 1})
                assert await consumer.committed(queues[0]) == 1
                assert set(await consumer.lag()) == {*queues, retry}
            async with mq.pull_consumer(group="R") as reader:
                assert await reader.queues("T") == queues
                (found,) = (await reader.pull(queues[0], 0)).messages
                assert (found.topic, found.queue) == ("T", queues[0])
                (again,) = await reader.pull_all(queues[0], [0])
                assert again.messages[0].body == b"0"
                assert await reader.max_offset(queues[0]) == 1
                assert await reader.min_offset(queues[0]) == 0
                assert await reader.offset_at(queues[0], 0) == 0
                await reader.commit("G2", queues[0], 1)
                assert await reader.committed("G2", queues[0]) == 1
            return queues

    queues = served.run(run)
    assert {queue.topic for queue in queues} == {"T"}
    with pytest.raises(MessageError, match="is not one of topic tenant-a%T"):
        served.run(lambda: _sends_to(served, MessageQueue("U", "b", 0)))


async def _sends_to(served: Served, queue: MessageQueue) -> None:
    async with client(served) as mq, mq.producer("P") as producer:
        await producer.send("T", b"hello", queue=queue)


def test_a_failed_message_comes_again_and_is_then_a_dead_letter_of_the_tenant(
    served: Served,
) -> None:
    async def run() -> list[tuple[str, str]]:
        seen = []
        async with client(served) as mq:
            await mq.send("T", b"fails")
            options: dict[str, Any] = {"start": "earliest", "max_reconsume_times": 1}
            async with mq.consumer("G", "T", **options) as consumer:
                for _ in range(2):
                    message = await consumer.get()
                    seen.append((message.topic, message.queue.topic))
                    message.retry()
                await asyncio.sleep(1)
        return seen

    assert served.run(run) == [("T", "T"), ("T", "%RETRY%G")]
    assert [record.body for record in served.records("%DLQ%tenant-a%G")] == [b"fails"]


def test_gathered_sends_and_batches_have_the_namespace(served: Served) -> None:
    async def run() -> set[str]:
        async with client(served) as mq, mq.producer("P", linger_ms=5) as producer:
            gathered = await asyncio.gather(*(producer.send("T", b"g") for _ in range(3)))
            batch = await producer.send_batch([Message("T", b"b"), Message("T", b"b")])
            return {result.queue.topic for result in (*gathered, *batch)}

    assert served.run(run) == {"T"}
    records = served.records("tenant-a%T")
    assert sorted(record.body for record in records) == [b"b"] * 2 + [b"g"] * 3
    assert {record.properties["INSTANCE_ID"] for record in records} == {TENANT}


def test_subscriptions_and_patterns_have_plain_names(served: Served) -> None:
    async def run() -> list[str]:
        async with client(served) as mq, client(served, "tenant-b", 2) as other:
            for topic in ("orders-1", "orders-2", "more"):
                await mq.send(topic, topic.encode())
            await other.send("orders-3", b"foreign")
            await asyncio.sleep(1)
            topics = re.compile("orders-.")
            async with mq.consumer("G", topics, start="earliest") as consumer:
                assert consumer.subscriptions() == {"orders-1": "*", "orders-2": "*"}
                await consumer.subscribe("more", "*")
                found = sorted([(await consumer.get()).topic for _ in range(3)])
                assert await consumer.get_many(timeout_ms=5000) == []
                await consumer.unsubscribe("more")
                assert consumer.subscriptions() == {"orders-1": "*", "orders-2": "*"}
                return found

    assert served.run(run) == ["more", "orders-1", "orders-2"]


def test_a_request_gets_its_reply(served: Served) -> None:
    async def run() -> bytes:
        async with (
            client(served) as mq,
            client(served, number=2) as other,
            other.consumer("G", "T", start="earliest") as consumer,
            other.producer("P2") as answers,
            asyncio.TaskGroup() as tasks,
        ):

            async def answer() -> None:
                message = await consumer.get()
                await answers.reply(message, message.body.upper())

            tasks.create_task(answer())
            return (await mq.request(Message("T", b"hello"), timeout_ms=60_000)).body

    assert served.run(run) == b"HELLO"


def test_a_transaction_is_checked_in_the_group_of_the_tenant(served: Served) -> None:
    asked: list[ReceivedMessage] = []

    async def check(message: ReceivedMessage) -> TransactionState:
        asked.append(message)
        return TransactionState.COMMIT

    async def local(*_: object) -> TransactionState:
        return TransactionState.UNKNOWN

    async def run() -> None:
        async with client(served) as mq:
            producer = TransactionProducer(mq, "P", check, trace=True)
            async with producer:
                await producer.send_in_transaction(Message("T", b"half"), local)
                while not served.records("tenant-a%T"):
                    await asyncio.sleep(1)

    served.run(run)
    assert [message.topic for message in asked] == ["T"]
    (stored,) = served.records("tenant-a%T")
    assert stored.properties[PRODUCER_GROUP] == "tenant-a%P"
    traced = [
        text.split("\x01")
        for record in served.records(TRACE_TOPIC)
        for text in record.body.decode().split("\x02")
        if text
    ]
    assert {tuple(fields[3:5]) for fields in traced} == {("P", "T")}


@pytest.mark.parametrize("namespace", ["a%b", "a b", 7])
def test_a_namespace_is_checked(namespace: Any) -> None:
    with pytest.raises(ConfigError, match="namespace"):
        ClientConfig("10.0.0.1:9876", namespace=namespace)


def test_names_that_are_too_long_with_the_namespace_are_refused() -> None:
    config = ClientConfig("10.0.0.1:9876", namespace="n" * 100)
    with pytest.raises(MessageError, match="group name of 301 characters"):
        Producer(config, "g" * 200)
    with pytest.raises(MessageError, match="group name of 301 characters"):
        PullConsumer(config, group="g" * 200)
    with pytest.raises(MessageError, match="topic name of 151 characters"):
        Consumer(config, "G", "t" * 50)
