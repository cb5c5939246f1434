"""A namespace that our clients share with Apache's, at Apache's broker."""

from __future__ import annotations

import asyncio

import pytest

from roquet.client.config import ClientConfig
from roquet.client.consumer import Consumer
from roquet.client.producer import Producer
from roquet.protocol.records.message import Message
from tests.interop.ground import BROKER
from tests.interop.scene import Producer as SceneProducer
from tests.interop.scene import Scene
from tests.interop.taken import take, until

pytestmark = pytest.mark.interop

TENANT = "tenant-a"
TIMEOUT_MS = 20_000
REQUEST_TIMEOUT_MS = 60_000


def config(scene: Scene) -> ClientConfig:
    return ClientConfig(scene.namesrv, namespace=TENANT)


def sends(producer: SceneProducer, topic: str, body: str) -> None:
    """Java's producer sends a message to a topic of its namespace."""
    producer.call("send", topic=topic, count=1, broker=BROKER, body=body)


async def test_we_consume_what_java_sends_and_java_what_we_send(scene: Scene) -> None:
    topic, ours, javas = scene.name(), scene.name(), scene.name()
    scene.ground.create_topic(f"{TENANT}%{topic}", 1)
    java = await asyncio.to_thread(scene.push, javas, topic, namespace=TENANT)
    sender = await asyncio.to_thread(scene.producer, namespace=TENANT)
    async with (
        Producer(config(scene), "P-ours", timeout_ms=TIMEOUT_MS) as producer,
        Consumer(config(scene), ours, topic, "earliest") as consumer,
    ):
        await asyncio.to_thread(sends, sender, topic, "from java")
        result = await producer.send(topic, b"from us", tags="a")
        await producer.send_batch([Message(topic, b"batch")])
        messages = await take(consumer, 3)
    lines = await asyncio.to_thread(java.messages, 3)
    bodies = ["batch", "from java", "from us"]
    assert sorted(message.body.decode() for message in messages) == bodies
    assert {message.topic for message in messages} == {topic}
    assert {message.queue for message in messages} == {result.queue}
    assert sorted(line["body"] for line in lines) == bodies
    assert {line["topic"] for line in lines} == {topic}
    properties = {line["body"]: line["properties"] for line in lines}
    assert {each["INSTANCE_ID"] for each in properties.values()} == {TENANT}


async def test_members_of_both_share_a_group(scene: Scene) -> None:
    topic, group = scene.name(), scene.name()
    scene.ground.create_topic(f"{TENANT}%{topic}", 4)
    async with Consumer(config(scene), group, topic, "earliest") as consumer:
        java = await asyncio.to_thread(scene.push, group, topic, namespace=TENANT)

        def share() -> set[int]:
            return {queue.queue_id for queue in consumer.assigned() if queue.topic == topic}

        await until(lambda: len(share()) == 2)
        rest = {0, 1, 2, 3} - share()

        def has_the_rest() -> bool:
            return bool(java.assigned(f"{TENANT}%{topic}") == rest)

        await asyncio.to_thread(scene.wait, has_the_rest, "the other two queues")


async def test_java_replies_to_our_request_and_we_to_java_s(scene: Scene) -> None:
    topic, other = scene.name(), scene.name()
    for name in (topic, other):
        scene.ground.create_topic(f"{TENANT}%{name}", 1)
    await asyncio.to_thread(
        scene.push, scene.name(), topic, namespace=TENANT, replyGroup=scene.name()
    )
    requester = await asyncio.to_thread(scene.producer, namespace=TENANT)
    async with (
        Producer(config(scene), "P-ours", timeout_ms=TIMEOUT_MS) as producer,
        Consumer(config(scene), scene.name(), other, "earliest") as consumer,
    ):
        reply = await producer.request(Message(topic, b"hello"), timeout_ms=REQUEST_TIMEOUT_MS)
        assert reply.body == b"HELLO"
        asking = asyncio.create_task(
            asyncio.to_thread(requester.request, other, "bonjour", timeout=REQUEST_TIMEOUT_MS)
        )
        message = await consumer.get(timeout_ms=TIMEOUT_MS)
        await producer.reply(message, message.body.upper())
        message.ack()
        assert (await asking)["body"] == "BONJOUR"


async def test_a_failed_message_of_java_s_producer_is_a_dead_letter_of_the_tenant(
    scene: Scene,
) -> None:
    topic, group = scene.name(), scene.name()
    scene.ground.create_topic(f"{TENANT}%{topic}", 1)
    sender = await asyncio.to_thread(scene.producer, namespace=TENANT)
    await asyncio.to_thread(sends, sender, topic, "fails")
    async with Consumer(config(scene), group, topic, "earliest") as consumer:
        message = await consumer.get(timeout_ms=REQUEST_TIMEOUT_MS)
        message.retry(-1)
        await asyncio.to_thread(
            scene.wait,
            lambda: scene.has_route(f"%DLQ%{TENANT}%{group}"),
            "a dead letter topic of the tenant",
        )
