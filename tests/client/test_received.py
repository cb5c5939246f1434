"""A message as the application gets it, and the ways to settle it."""

from __future__ import annotations

import asyncio
import logging
import zlib
from dataclasses import replace
from typing import Any, Final

import pytest

from roquet.client.received import DEAD_LETTER_LEVEL, MessageSource, ReceivedMessage
from roquet.errors import DamagedBody, MessageError
from roquet.protocol.records.layout import checksum
from roquet.protocol.records.message import MessageQueue, join_properties
from roquet.protocol.records.record import Record, host_bytes

HOST = host_bytes("10.0.0.1", 10911)


def record(topic: str = "T", body: bytes = b"hi", sys_flag: int = 0, **properties: str) -> Record:
    at = 1000
    text = join_properties(properties)
    record = Record(
        3,
        8,
        5,
        at,
        sys_flag,
        17,
        HOST,
        18,
        HOST,
        2,
        0,
        body,
        topic,
        text,
    )
    return replace(record, body_crc=checksum(body))


SOURCE: Final = MessageSource("broker-a")


def opened(of: Record, settled: list[int | None] | None = None) -> ReceivedMessage:
    return ReceivedMessage(of, SOURCE, 2, (settled if settled is not None else []).append)


def test_everything_the_record_has_is_there() -> None:
    message = opened(record(TAGS="a", KEYS="k1 k2", UNIQ_KEY="U", color="red"))
    assert (message.topic, message.body, message.tags, message.keys) == (
        "T",
        b"hi",
        "a",
        ("k1", "k2"),
    )
    assert message.properties["color"] == "red"
    assert (message.message_id, message.offset_message_id) == (
        "U",
        "0A00000100002A9F00000000000003E8",
    )
    assert (message.queue, message.queue_offset) == (MessageQueue("T", "broker-a", 3), 5)
    assert (message.born_time_ms, message.store_time_ms, message.reconsume_times, message.flag) == (
        17,
        18,
        2,
        8,
    )
    assert (message.born_host, message.store_host) == ("10.0.0.1:10911", "10.0.0.1:10911")


def test_its_size_is_that_of_the_stored_record() -> None:
    host_v6 = host_bytes("::1", 10911)
    for stored in (
        record(color="rosé"),
        replace(record(body=b"x" * 1000), born_host=host_v6, store_host=host_v6),
    ):
        assert opened(stored).store_size == len(stored.encode())


def test_it_says_of_which_half_message_it_was_made() -> None:
    assert opened(record()).prepared_offset == 0
    assert opened(replace(record(), prepared_offset=700)).prepared_offset == 700


def test_where_its_queue_began_and_ended_is_there_if_it_was_pulled() -> None:
    pulled = ReceivedMessage(record(), MessageSource("broker-a", (2, 9)), 0)
    assert (pulled.min_offset, pulled.max_offset) == (2, 9)
    found = ReceivedMessage(record(), SOURCE, 0)
    assert (found.min_offset, found.max_offset) == (None, None)


def test_what_is_decoded_once_stays() -> None:
    message = opened(record(body=zlib.compress(b"hello"), sys_flag=1, KEYS="k"))
    assert message.body is message.body
    assert message.properties is message.properties
    assert message.queue is message.queue


def test_its_text_names_it_and_leaves_the_body_out() -> None:
    damaged = replace(record(body=bytes(1 << 20), TAGS="a", KEYS="k", UNIQ_KEY="U"), body_crc=1)
    assert repr(opened(damaged)) == (
        "ReceivedMessage(topic='T', queue='T@broker-a:3', queue_offset=5, message_id='U', "
        "tags='a', keys=('k',), stored_body=1048576 bytes)"
    )


async def test_a_message_of_no_consumer_cannot_be_settled() -> None:
    message = ReceivedMessage(record(UNIQ_KEY="U"), SOURCE, 0)
    with pytest.raises(MessageError, match=r"ack\(\) of message U: only messages of a Consumer"):
        message.ack()
    with pytest.raises(MessageError, match=r"retry\(\) of message U: only messages of a Consumer"):
        message.retry()
    with pytest.raises(MessageError, match="only messages of a Consumer"):
        async with message:
            pytest.fail("the block must not run")


def test_without_a_unique_key_the_broker_s_id_is_the_id() -> None:
    message = opened(record())
    assert message.message_id == message.offset_message_id


def test_a_message_that_comes_again_has_the_topic_it_was_sent_to() -> None:
    message = opened(record("%RETRY%g", RETRY_TOPIC="T"))
    assert (message.topic, message.queue.topic) == ("T", "%RETRY%g")


def test_a_compressed_body_comes_as_it_was_if_it_is_not_too_large() -> None:
    compressed = record(body=zlib.compress(b"hello"), sys_flag=1)
    assert ReceivedMessage(compressed, MessageSource(uncompressed_max=5), 0).body == b"hello"
    too_large = ReceivedMessage(compressed, MessageSource(uncompressed_max=4), 0)
    with pytest.raises(MessageError, match="has more than 4 when it is decompressed"):
        _ = too_large.body
    assert too_large.stored_body == compressed.body


@pytest.mark.parametrize(
    "damaged",
    [
        replace(record(body=b"hi"), body=b"ho"),
        replace(record(body=b"hi"), body=b""),
        replace(record(body=zlib.compress(b"hi"), sys_flag=1), body=zlib.compress(b"ho")),
        replace(record(), body_crc=checksum(b"hi") | 1 << 31),
    ],
)
def test_a_body_that_is_not_the_one_that_was_stored_is_refused(damaged: Record) -> None:
    message = opened(damaged)
    with pytest.raises(DamagedBody, match="does not have the checksum stored with it") as raised:
        _ = message.body
    assert "message 0A00000100002A9F00000000000003E8 of T@broker-a:3 at offset 5: the body" in str(
        raised.value
    )
    assert (message.topic, message.stored_body) == ("T", damaged.body)


@pytest.mark.parametrize("body", [b"", b"hi", bytes(4096)])
def test_a_body_with_its_checksum_is_handed_out(body: bytes) -> None:
    assert opened(record(body=body)).body == body


def test_the_end_of_the_block_acknowledges() -> None:
    async def consume(message: ReceivedMessage) -> None:
        async with message:
            assert settled == []

    settled: list[int | None] = []
    asyncio.run(consume(opened(record(), settled)))
    assert settled == [None]


def test_an_exception_in_the_block_is_logged_and_asks_for_the_message_again(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def consume(message: ReceivedMessage) -> None:
        async with message:
            raise ValueError("cannot book")

    settled: list[int | None] = []
    with caplog.at_level(logging.ERROR):
        asyncio.run(consume(opened(record(UNIQ_KEY="U"), settled)))
    assert settled == [0]
    assert "message failed: msgId=U topic=T" in caplog.text
    assert "cannot book" in caplog.text


def test_cancellation_passes_through_the_block_and_settles_nothing() -> None:
    async def consume(message: ReceivedMessage) -> None:
        async with message:
            raise asyncio.CancelledError

    settled: list[int | None] = []
    with pytest.raises(asyncio.CancelledError):
        asyncio.run(consume(opened(record(), settled)))
    assert settled == []


def test_how_long_it_waits_may_be_said() -> None:
    settled: list[int | None] = []
    message = opened(record(), settled)
    message.retry(5)
    message.retry(DEAD_LETTER_LEVEL)
    assert settled == [5, -1]


@pytest.mark.parametrize("level", [1 << 31, -(1 << 31) - 1, 1 << 64, "3", None, 1.5, True])
def test_a_delay_level_that_no_broker_has_settles_nothing(level: Any) -> None:
    settled: list[int | None] = []
    message = opened(record(), settled)
    with pytest.raises(MessageError, match=f"delay_level is {level!r}"):
        message.retry(level)
    assert settled == []
    message.retry(2)
    assert settled == [2]
