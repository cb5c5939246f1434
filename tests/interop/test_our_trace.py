"""The message trace of our clients, as Apache's tools show it, beside that of Apache's clients."""

from __future__ import annotations

import asyncio

import pytest

from roquet.client.consumer import Consumer
from roquet.client.producer import Producer
from roquet.client.transactions import TransactionProducer, TransactionState
from roquet.protocol.records.message import TRACE_TOPIC, Message
from tests.interop.apache import mqadmin, wait_until
from tests.interop.scene import Pull, Scene
from tests.interop.stage import JavaError
from tests.interop.taken import take

pytestmark = pytest.mark.interop

TIMEOUT_MS = 20_000
WAIT_SECONDS = 60


async def shown(scene: Scene, message_id: str, *expected: str) -> str:
    """What Apache's tool shows of a message, as soon as these words are in it."""
    output = ""

    def is_complete() -> bool:
        nonlocal output
        output = mqadmin("queryMsgTraceById", "-i", message_id, namesrv=scene.namesrv).out
        return all(word in output for word in expected)

    await asyncio.to_thread(wait_until, is_complete, f"{expected} in the trace", WAIT_SECONDS)
    return output


async def test_a_trace_has_our_producer_and_both_consumers(scene: Scene) -> None:
    topic, ours, javas = scene.topic(), scene.group(), scene.group()
    java = await asyncio.to_thread(scene.push, javas, topic, trace=True)
    async with (
        Producer(scene.namesrv, "P-ours", timeout_ms=TIMEOUT_MS, trace=True) as producer,
        Consumer(scene.namesrv, ours, topic, "earliest", trace=True) as consumer,
    ):
        single = await producer.send(topic, b"traced", tags="a", keys=("k1", "k2"))
        _, second = await producer.send_batch([Message(topic, b"1"), Message(topic, b"2")])
        messages = await take(consumer, 3)
    assert len(messages) == 3
    await asyncio.to_thread(java.messages, 3)

    for result in (single, second):
        output = await shown(scene, result.message_id, "P-ours", ours, javas)
        lines = [line.split() for line in output.splitlines() if line]
        assert [(words[0], words[-1]) for words in lines if words[0] in ("Pub", "Sub")] == [
            ("Pub", "success"), ("Sub", "success"), ("Sub", "success")
        ]  # fmt: skip


def records(scene: Scene, reader: Pull, message_id: str, count: int) -> list[list[str]]:
    """The fields of the records of a message, found by its id, as soon as there are so many."""
    found: list[list[str]] = []

    def are_there() -> bool:
        nonlocal found
        try:
            lines = reader.ask("query", TRACE_TOPIC, key=message_id)
        except JavaError:
            return False
        texts = (text for line in lines for text in line["body"].split("\x02") if text)
        found = [text.split("\x01") for text in texts]
        return len(found) >= count

    scene.wait(are_there, f"{count} records of {message_id}")
    return found


async def test_a_transaction_leaves_the_records_that_java_s_producer_leaves(scene: Scene) -> None:
    """Ours are compared with Java's but for times, costs and ids."""
    topic = scene.topic()

    async def commit(*_: object) -> TransactionState:
        return TransactionState.COMMIT

    java = await asyncio.to_thread(scene.producer, group="P-half", check="commit", trace=True)
    (theirs,) = await asyncio.to_thread(java.transact, topic, "commit", keys="k", tags="a")
    producer = TransactionProducer(
        scene.namesrv, "P-half", commit, timeout_ms=TIMEOUT_MS, trace=True
    )
    async with producer:
        message = Message(topic, b"half", keys="k", tags="a")
        ours = await producer.send_in_transaction(message, commit)

    reader = await asyncio.to_thread(scene.pull)
    seen = []
    for message_id in (theirs["msgId"], ours.transaction_id):
        found = await asyncio.to_thread(records, scene, reader, message_id, 2)
        half, end = (
            [word.replace(message_id, "ID") for word in record]
            for record in sorted(found, reverse=True)
        )
        assert int(half[1]) > 0
        seen.append((half[:1] + half[2:9] + half[11:12] + half[13:], end[:1] + end[2:]))
    assert seen[0] == seen[1]


async def test_a_failed_message_is_traced_as_failed(scene: Scene) -> None:
    topic, group = scene.topic(), scene.group()
    async with (
        Producer(scene.namesrv, "P-ours", timeout_ms=TIMEOUT_MS) as producer,
        Consumer(scene.namesrv, group, topic, "earliest", trace=True) as consumer,
    ):
        result = await producer.send(topic, b"fails")
        (await consumer.get(timeout_ms=TIMEOUT_MS)).retry()
    output = await shown(scene, result.message_id, group)
    (line,) = [line for line in output.splitlines() if group in line]
    assert line.split()[-1] == "failed"
