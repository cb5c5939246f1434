"""Options of our clients whose effect a broker shows."""

from __future__ import annotations

import pytest

from roquet import ClientConfig, Consumer, Producer, ResponseError
from roquet.protocol.remoting.codes import ResponseCode
from tests.interop import wire
from tests.interop.client.target import TIMEOUT_MS, Target
from tests.interop.taken import until

pytestmark = pytest.mark.interop

INHERIT = 1
READ_WRITE = 6
GET_UNIT_TOPIC_LIST = 311
GET_HAS_UNIT_SUB_TOPIC_LIST = 312


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


@pytest.mark.parametrize("unit_mode", [False, True])
async def test_the_topics_of_a_unit_are_marked(target: Target, topic: str, unit_mode: bool) -> None:
    created = f"{topic}-created"
    client = ClientConfig(target.namesrv, unit_mode=unit_mode, unit_name="u")
    async with Producer(client, "P", timeout_ms=TIMEOUT_MS) as producer:
        await producer.send(created, b"1")
        async with Consumer(client, f"G-{topic}", created, "earliest") as consumer:
            assert (await consumer.get(TIMEOUT_MS)).body == b"1"

    def is_marked() -> bool:
        listed = wire.ask(target.namesrv, GET_UNIT_TOPIC_LIST, {}, b"").body.decode()
        of_groups = wire.ask(target.namesrv, GET_HAS_UNIT_SUB_TOPIC_LIST, {}, b"").body.decode()
        return created in listed and f"%RETRY%G-{topic}" in of_groups

    if unit_mode:
        await until(is_marked)
    else:
        assert not is_marked()


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
