"""Requests that wait for a reply."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from roquet import CallTimeout, Message, MessageError, Producer, ResponseError
from tests.interop.client.target import TIMEOUT_MS, Target, numbers
from tests.interop.taken import take

pytestmark = pytest.mark.interop


@asynccontextmanager
async def answering(target: Target, group: str, topic: str) -> AsyncIterator[Producer]:
    """A task that replies with the request's body and an exclamation mark."""
    async with target.producer(group) as producer, target.consumer(group, topic) as consumer:

        async def answer() -> None:
            async for request in consumer:
                await producer.reply(request, request.body + b"!", tags="R", keys="kr")

        task = asyncio.create_task(answer())
        yield producer
        task.cancel()
        await asyncio.wait([task])


async def test_a_request_gets_its_reply(target: Target, topic: str, group: str) -> None:
    async with answering(target, group, topic), target.producer() as producer:
        reply = await producer.request(Message(topic, b"hello"), timeout_ms=TIMEOUT_MS)
    assert (reply.body, reply.tags, reply.keys) == (b"hello!", "R", ("kr",))


async def test_requests_at_once_get_their_own_replies(
    target: Target, wide: str, group: str
) -> None:
    async with answering(target, group, wide), target.producer() as producer:
        replies = await asyncio.gather(
            *(producer.request(Message(wide, body), timeout_ms=TIMEOUT_MS) for body in numbers(50))
        )
    assert [reply.body for reply in replies] == [body + b"!" for body in numbers(50)]


async def test_two_requesters_get_their_own_replies(target: Target, topic: str, group: str) -> None:
    async with (
        answering(target, group, topic),
        target.producer("P-requests") as one,
        target.producer("P-requests") as other,
    ):
        first, second = await asyncio.gather(
            one.request(Message(topic, b"one"), timeout_ms=TIMEOUT_MS),
            other.request(Message(topic, b"other"), timeout_ms=TIMEOUT_MS),
        )
    assert (first.body, second.body) == (b"one!", b"other!")


async def test_a_client_requests_without_a_producer_of_its_own(
    target: Target, topic: str, group: str
) -> None:
    async with answering(target, group, topic), target.connect() as mq:
        assert (await mq.request(Message(topic, b"hello"), timeout_ms=TIMEOUT_MS)).body == b"hello!"


async def test_a_large_reply_arrives(target: Target, topic: str, group: str) -> None:
    async with answering(target, group, topic), target.producer() as producer:
        reply = await producer.request(Message(topic, b"large " * 50_000), timeout_ms=TIMEOUT_MS)
    assert reply.body == b"large " * 50_000 + b"!"


async def test_a_request_without_a_reply_ends_in_time(target: Target, topic: str) -> None:
    async with target.producer() as producer:
        with pytest.raises(CallTimeout, match="no reply"):
            await producer.request(Message(topic, b"hello"), timeout_ms=500)
    assert [message.body for message in await target.stored(topic, 1)] == [b"hello"]


async def test_a_reply_to_a_requester_that_is_gone_is_refused(
    target: Target, topic: str, group: str
) -> None:
    async with (
        target.consumer(group, topic) as consumer,
        target.producer(retries=0) as answering_producer,
    ):
        async with target.producer() as producer:
            with pytest.raises(CallTimeout):
                await producer.request(Message(topic, b"hello"), timeout_ms=500)
        (request,) = await take(consumer, 1)
        with pytest.raises(ResponseError) as caught:
            await answering_producer.reply(request, b"too late")
    assert caught.value.code == 1


async def test_a_message_that_is_no_request_cannot_be_replied_to(
    target: Target, topic: str, group: str
) -> None:
    async with target.producer() as producer, target.consumer(group, topic) as consumer:
        await producer.send(topic, b"no request")
        (message,) = await take(consumer, 1)
        with pytest.raises(MessageError):
            await producer.reply(message, b"reply")


async def test_a_reply_cannot_be_delayed(target: Target, topic: str, group: str) -> None:
    async with target.producer() as producer, target.consumer(group, topic) as consumer:
        asking = asyncio.create_task(
            producer.request(Message(topic, b"hello"), timeout_ms=TIMEOUT_MS)
        )
        (request,) = await take(consumer, 1)
        with pytest.raises(MessageError, match="delay"):
            await producer.reply(request, b"reply", delay_level=1)
        await producer.reply(request, b"reply")
        assert (await asking).body == b"reply"
