"""The message that the arguments of a send mean."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from roquet.client._send.encoder import MessageEncoder, MessageFields, message_of
from roquet.client._send.unique_key import UniqueKeys
from roquet.common.runtime import Runtime
from roquet.errors import MessageError
from roquet.protocol.records.message import Message, split_properties

MESSAGE = Message("T", b"body", tags="new")


def test_a_message_is_sent_as_it_is_or_made_of_topic_body_and_fields() -> None:
    assert message_of(MESSAGE, None, {}) is MESSAGE
    assert message_of("T", b"body", {"tags": "new"}) == MESSAGE


@pytest.mark.parametrize(
    ("body", "fields", "named"),
    [
        (b"body", {}, "with body:"),
        (None, {"tags": "new"}, "with tags:"),
        (b"body", {"tags": "new", "keys": "k"}, "with body, tags, keys:"),
    ],
)
def test_a_message_and_something_else_is_refused_with_the_names(
    body: bytes | None, fields: Any, named: str
) -> None:
    with pytest.raises(MessageError, match=named):
        message_of(MESSAGE, body, fields)


def test_a_topic_alone_is_refused() -> None:
    with pytest.raises(MessageError, match="a message to T has no body: give bytes"):
        message_of("T", None, {})


def test_a_topic_of_another_type_is_refused() -> None:
    wrong: Any = b"T"
    with pytest.raises(MessageError, match="topic is b'T' of type bytes: give a topic's name, or"):
        message_of(wrong, b"body", {})


@pytest.mark.parametrize("wrong", ["T", None, ("T", b"body")])
def test_only_messages_are_encoded(wrong: Any) -> None:
    encoder = MessageEncoder(UniqueKeys.of_client("10.0.0.1@1", Runtime()), None)
    for encode in (
        lambda: encoder.encode(wrong),
        lambda: encoder.encode_half(wrong, "G"),
        lambda: encoder.encode_batches([MESSAGE, wrong]),
    ):
        with pytest.raises(MessageError, match=r"message is .* of type .*: give a Message"):
            encode()


def test_the_keyword_arguments_of_a_send_are_the_fields_of_a_message() -> None:
    after_topic_and_body = [field.name for field in dataclasses.fields(Message)][2:]
    assert list(MessageFields.__annotations__) == after_topic_and_body


def test_each_message_of_a_producer_has_another_unique_key() -> None:
    encoder = MessageEncoder(UniqueKeys.of_client("10.0.0.1@1", Runtime()), None)
    (batch,) = encoder.encode_batches([MESSAGE] * 3)
    half = encoder.encode_half(MESSAGE, "G")
    keys = {*batch.unique_keys, *half.unique_keys, *encoder.encode(MESSAGE).unique_keys}

    assert len(keys) == 5
    assert {key[:8] for key in keys} == {"0A000001"}
    assert split_properties(half.properties)["UNIQ_KEY"] == half.unique_keys[0]
