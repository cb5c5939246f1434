"""Messages that an application could do nothing with: they go to a broker, and come again."""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from roquet.client.consumer import Consumer, ReceivedMessage
from roquet.protocol.records.message import split_properties
from roquet.protocol.remoting.codes import RequestCode
from tests.client.cluster import SILENCE, FakeBroker, FakeCluster
from tests.client.consumers import bodies, consumer, fill, stored

SEND_BACK = RequestCode.CONSUMER_SEND_MSG_BACK


@asynccontextmanager
async def failing(c: Consumer, body: bytes) -> AsyncIterator[ReceivedMessage]:
    """The message, which has failed once when the block begins."""
    async for message in c:
        async with message:
            if message.body == body and not message.reconsume_times:
                raise ValueError("cannot book")
        if message.body == body and message.reconsume_times:
            yield message
            return


def test_a_failed_message_is_sent_back_and_comes_again_from_the_retry_topic(
    cluster: FakeCluster, broker: FakeBroker
) -> None:
    async def consume() -> ReceivedMessage:
        async with consumer(cluster, max_reconsume_times=7) as c, failing(c, b"1") as message:
            return message

    fill(broker, 3)
    again = cluster.run(consume)
    assert (again.topic, again.queue.topic, again.reconsume_times) == ("T", "%RETRY%G", 1)
    (request,) = broker.requests[SEND_BACK]
    original = broker.log.queues["T", 0][1]
    assert request.fields == {
        "offset": str(original.physical_offset),
        "group": "G",
        "delayLevel": "0",
        "originMsgId": original.offset_message_id,
        "originTopic": "T",
        "unitMode": "false",
        "maxReconsumeTimes": "7",
        "bname": "broker-a",
    }
    assert stored(broker) == {0: 3}
    assert stored(broker, "%RETRY%G") == {0: 1}


def test_a_message_whose_broker_does_not_take_it_back_is_sent_anew(
    cluster: FakeCluster, broker: FakeBroker
) -> None:
    async def consume() -> ReceivedMessage:
        async with consumer(cluster) as c, failing(c, b"1") as message:
            return message

    fill(broker, 2, properties="TAGS\x01a\x02UNIQ_KEY\x01U\x02REAL_TOPIC\x01X")
    broker.script[SEND_BACK] = [1]
    again = cluster.run(consume)
    assert (again.topic, again.tags, again.message_id, again.reconsume_times) == ("T", "a", "U", 1)
    (request,) = broker.requests[RequestCode.SEND_MESSAGE_V2]
    assert (request.fields["a"], request.fields["b"]) == ("CLIENT_INNER_PRODUCER", "%RETRY%G")
    assert (request.fields["j"], request.fields["l"]) == ("1", "16")
    assert again.properties["DELAY"] == "3"
    assert "REAL_TOPIC" not in again.properties


@pytest.mark.parametrize(
    ("level", "delay", "times_max"), [(0, "3", "16"), (5, "5", "16"), (-1, "-1", "0")]
)
def test_a_consumer_may_say_how_long_a_message_waits(
    cluster: FakeCluster, broker: FakeBroker, level: int, delay: str, times_max: str
) -> None:
    async def consume() -> None:
        async with consumer(cluster) as c:
            for message in await c.get_many(2):
                message.retry(level)
            await asyncio.sleep(1)

    fill(broker, 2)
    broker.script[SEND_BACK] = [1]
    cluster.run(consume)
    assert {request.fields["delayLevel"] for request in broker.requests[SEND_BACK]} == {str(level)}
    (anew,) = broker.requests[RequestCode.SEND_MESSAGE_V2]
    assert split_properties(anew.fields["i"])["DELAY"] == delay
    assert (anew.fields["j"], anew.fields["l"]) == ("1", times_max), (
        "a dead letter is one that had a try too many"
    )


def test_the_end_waits_until_what_failed_is_taken_back(
    cluster: FakeCluster, broker: FakeBroker
) -> None:
    async def consume() -> None:
        async with consumer(cluster) as c:
            for message in await c.get_many(2):
                message.retry()

    fill(broker, 2)
    cluster.run(consume)
    assert len(broker.requests[SEND_BACK]) == 2
    assert stored(broker) == {0: 2}


def test_the_end_waits_three_seconds_at_most_for_that(
    cluster: FakeCluster, broker: FakeBroker
) -> None:
    async def consume() -> float:
        async with consumer(cluster) as c:
            for message in await c.get_many(2):
                message.retry()
            return cluster.sim.now_s

    fill(broker, 2)
    broker.script[SEND_BACK] = [SILENCE] * 2
    began_s = cluster.run(consume)
    assert cluster.sim.now_s - began_s < 4
    assert stored(broker) == {0: 0}


def test_a_message_that_nobody_takes_back_comes_again_here_after_five_seconds(
    cluster: FakeCluster, broker: FakeBroker
) -> None:
    async def consume() -> ReceivedMessage:
        async with consumer(cluster) as c, failing(c, b"1") as message:
            assert 5 <= cluster.sim.now_s - began_s < 6
            return message

    fill(broker, 2)
    broker.script[SEND_BACK] = [1]
    broker.script[RequestCode.SEND_MESSAGE_V2] = [14] * 9
    began_s = cluster.sim.now_s
    again = cluster.run(consume)
    assert (again.queue.topic, again.reconsume_times) == ("T", 1)
    assert stored(broker) == {0: 2}


def test_the_offset_does_not_pass_a_message_that_is_still_to_come_again(
    cluster: FakeCluster, broker: FakeBroker
) -> None:
    async def consume() -> None:
        async with consumer(cluster) as c:
            zero, one, two = await c.get_many(3)
            zero.ack()
            one.retry()
            two.ack()
            await asyncio.sleep(3)

    fill(broker, 3)
    broker.script[SEND_BACK] = [1]
    broker.script[RequestCode.SEND_MESSAGE_V2] = [14] * 9
    cluster.run(consume)
    assert stored(broker) == {0: 1}


DAMAGED = (b"junk", "the compressed body is damaged")
BOMB = (zlib.compress(bytes(2001)), "has more than 2000 when it is decompressed")


async def two_and_no_more(c: Consumer) -> list[bytes]:
    found = await bodies(c, 2)
    assert await c.get_many(1, timeout_ms=200) == []
    return found


@pytest.mark.parametrize(("body", "why"), [DAMAGED, BOMB])
def test_a_message_that_cannot_be_opened_goes_the_way_of_failed_ones(
    cluster: FakeCluster,
    broker: FakeBroker,
    caplog: pytest.LogCaptureFixture,
    body: bytes,
    why: str,
) -> None:
    """Back to the broker, which makes a dead letter of it in the end; it is logged once, those
    after it come.
    """

    async def consume() -> list[bytes]:
        async with consumer(cluster, uncompressed_max=2000) as c:
            return await two_and_no_more(c)

    fill(broker, 0)
    broker.store("T", 0, body, "UNIQ_KEY\x01U1", sys_flag=1)
    broker.store("T", 0, zlib.compress(bytes(2000)), sys_flag=1)
    broker.store("T", 0, b"hi")
    assert cluster.run(consume) == [bytes(2000), b"hi"]
    assert len(broker.requests[SEND_BACK]) > 1, "it came again"
    (line,) = [
        each.getMessage() for each in caplog.records if "cannot be opened" in each.getMessage()
    ]
    assert why in line
    assert "topic=T broker=broker-a queue=0 offset=0 msgId=U1 error=" in line
    assert stored(broker) == {0: 3}


def test_a_damaged_body_is_a_dead_letter_at_once(
    cluster: FakeCluster, broker: FakeBroker, caplog: pytest.LogCaptureFixture
) -> None:
    """A broker stores a retry with the checksum of the bytes that it has: as a retry it would pass
    for sound.
    """

    async def consume() -> list[bytes]:
        async with consumer(cluster) as c:
            return await two_and_no_more(c)

    fill(broker, 0)
    broker.damaged.add(b"damaged")
    broker.store("T", 0, b"damaged", "UNIQ_KEY\x01U1")
    broker.store("T", 0, b"")
    broker.store("T", 0, b"hi")
    assert cluster.run(consume) == [b"", b"hi"]
    (request,) = broker.requests[SEND_BACK]
    assert request.fields["delayLevel"] == "-1"
    (line,) = [
        each.getMessage() for each in caplog.records if "cannot be opened" in each.getMessage()
    ]
    assert "does not have the checksum stored with it" in line
    assert "topic=T broker=broker-a queue=0 offset=0 msgId=U1 error=" in line
    assert stored(broker) == {0: 3}


@pytest.mark.parametrize("damage", ["bomb", "byte"])
@pytest.mark.parametrize("kind", ["ordered", "broadcast"])
def test_what_cannot_be_opened_stops_no_queue(
    cluster: FakeCluster, broker: FakeBroker, tmp_path: Path, kind: str, damage: str
) -> None:
    async def consume() -> list[bytes]:
        options = (
            {"ordered": True}
            if kind == "ordered"
            else {"broadcast": True, "offsets_folder": tmp_path}
        )
        async with consumer(cluster, uncompressed_max=2000, host=None, **options) as c:
            return await bodies(c, 1)

    fill(broker, 0)
    if damage == "byte":
        broker.damaged.add(b"damaged")
    broker.store("T", 0, *((BOMB[0], "", 0, 1) if damage == "bomb" else (b"damaged",)))
    broker.store("T", 0, b"hi")
    assert cluster.run(consume) == [b"hi"]


def test_so_many_bodies_come_at_once_as_one_may_be_large(
    cluster: FakeCluster, broker: FakeBroker
) -> None:
    async def consume() -> list[int]:
        async with consumer(cluster, uncompressed_max=2000) as c:
            return [len(await c.get_many(32)) for _ in range(3)]

    fill(broker, 0)
    for _ in range(7):
        broker.store("T", 0, zlib.compress(bytes(900)), sys_flag=1)
    assert cluster.run(consume) == [3, 3, 1]
