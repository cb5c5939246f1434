"""Options of our clients whose effect a broker shows."""

from __future__ import annotations

import pytest

from roquet import ResponseError
from roquet.protocol.remoting.codes import ResponseCode
from tests.interop.client.target import Target

pytestmark = pytest.mark.interop

INHERIT = 1
READ_WRITE = 6


# topics that a send creates


async def test_a_send_creates_a_topic_with_as_many_queues_as_the_producer_asks_for(
    target: Target, topic: str
) -> None:
    created = f"{topic}-created"
    async with target.producer(default_topic_queue_nums=2) as producer:
        await producer.send(created, b"1")
    assert (await queue_ids(target, created)) == [0, 1]


async def test_a_send_creates_a_topic_like_the_one_that_the_producer_names(
    target: Target, topic: str
) -> None:
    template = target.make_topic(f"{topic}-template", 3, READ_WRITE | INHERIT)
    created = f"{topic}-created"
    async with target.producer(create_topic_key=template) as producer:
        await producer.send(created, b"1")
    assert (await queue_ids(target, created)) == [0, 1, 2]


# sizes


async def test_a_broker_has_the_last_word_on_the_size_of_a_message(
    target: Target, topic: str
) -> None:
    large = bytes(4 * 1024 * 1024 + 1)
    async with target.producer(max_message_size=len(large), compression=None) as producer:
        with pytest.raises(ResponseError) as refused:
            await producer.send(topic, large)
    assert refused.value.code == ResponseCode.MESSAGE_ILLEGAL


async def queue_ids(target: Target, topic: str) -> list[int]:
    await target.stored(topic, 1)
    async with target.reader() as reader:
        return sorted(queue.queue_id for queue in await reader.queues(topic))
