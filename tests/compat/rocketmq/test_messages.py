"""Messages to send and received ones, in the types of rocketmq-client-python."""

from __future__ import annotations

from typing import Any

import pytest

from roquet.client import received
from roquet.compat.rocketmq.consts import MessageProperty
from roquet.compat.rocketmq.exceptions import RocketMQException
from roquet.compat.rocketmq.messages import Message, ReceivedMessage
from roquet.errors import MessageError
from roquet.protocol.records import message as m
from roquet.protocol.records.message import join_properties
from roquet.protocol.records.record import Record, host_bytes

HOST = host_bytes("10.0.0.1", 10911)


def filled() -> Message:
    message = Message("orders")
    message.set_keys("k1 k2")
    message.set_tags(b"new")
    message.set_body("tea")
    message.set_property("color", "red")
    message.set_delay_time_level(3)
    return message


def delivered(**properties: str) -> ReceivedMessage:
    text = join_properties(properties)
    record = Record(3, 0, 5, 1000, 0, 17, HOST, 18, HOST, 2, 900, b"a\0b", "orders", text)
    return ReceivedMessage(received.ReceivedMessage(record, received.MessageSource("broker-a"), 2))


def test_what_is_set_is_sent() -> None:
    assert filled().to_send() == m.Message(
        "orders", b"tea", "new", ("k1", "k2"), {"color": "red"}, delay_level=3
    )


def test_a_message_that_is_changed_after_a_send_does_not_change_that_one() -> None:
    message = filled()
    sent = message.to_send()
    message.set_property("color", "blue")

    assert sent.properties == {"color": "red"}
    assert message.to_send().properties == {"color": "blue"}


@pytest.mark.parametrize("body", [None, 7, bytearray(b"x")])
def test_a_body_is_a_text_or_bytes(body: Any) -> None:
    with pytest.raises(RocketMQException, match="body is of type"):
        Message("orders").set_body(body)


def test_a_message_without_body_cannot_be_sent() -> None:
    with pytest.raises(MessageError, match="body"):
        Message("orders").to_send()


def test_a_received_message_has_all_fields() -> None:
    message = delivered(TAGS="new", KEYS="k1 k2", UNIQ_KEY="U", DELAY="3", color="red")

    assert (message.topic, message.tags, message.keys, message.body) == (
        "orders",
        b"new",
        b"k1 k2",
        b"a\0b",
    )
    assert (message.id, message.delay_time_level, message.queue_id) == ("U", 3, 3)
    assert (message.reconsume_times, message.born_timestamp, message.store_timestamp) == (2, 17, 18)
    assert (message.queue_offset, message.commit_log_offset) == (5, 1000)
    assert message.prepared_transaction_offset == 900
    assert message.store_size > len(message.body)
    assert (str(message), bytes(message)) == ("a\0b", b"a\0b")
    assert repr(message) == "<ReceivedMessage topic='orders' id='U' body=b'a\\x00b'>"


def test_properties_are_bytes_under_names_of_three_kinds() -> None:
    message = delivered(KEYS="k1", color="red")

    assert message.get_property("color") == message[b"color"] == b"red"
    assert message[MessageProperty.KEYS] == b"k1"
    assert message["size"] == b""


def test_what_a_message_does_not_have_is_empty() -> None:
    message = delivered()

    assert (message.tags, message.keys, message.delay_time_level) == (b"", b"", 0)
    assert delivered(DELAY="soon").delay_time_level == 0


def test_a_sent_message_is_there_as_it_will_be_received() -> None:
    message = ReceivedMessage.of_sent(filled().to_send(), "U")

    assert (message.topic, message.body, message.id) == ("orders", b"tea", "U")
    assert (message.tags, message.keys, message["color"]) == (b"new", b"k1 k2", b"red")
    assert (message.queue_offset, message.commit_log_offset, message.queue_id) == (-1, -1, -1)
