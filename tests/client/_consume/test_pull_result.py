"""The messages of a pull's answer are those with a selected tag, whatever the broker sent."""

from __future__ import annotations

import zlib
from dataclasses import replace
from typing import Final

import pytest

from roquet.client._consume.pull_result import PullResult, PullStatus, selected_records
from roquet.errors import CorruptRecord, DamagedBody, MessageError
from roquet.protocol.filters.tags import TagFilter
from roquet.protocol.records.message import MessageQueue, java_hash
from tests.protocol.examples import RECORD, STORED

TAGS: Final = ("Aa", "BB", None)
"""Two tags of one hash, and no tag."""


def result(expression: str, body: bytes) -> PullResult:
    return PullResult(PullStatus.FOUND, 9, 0, 9, 0, body, TagFilter.parse(expression))


def tagged(tag: str | None) -> bytes:
    return replace(RECORD, properties_text=f"TAGS\x01{tag}" if tag else "").encode()


def tags(pulled: PullResult) -> list[str | None]:
    return [message.tags for message in pulled.messages]


def test_messages_whose_tag_only_has_the_same_hash_are_left_out() -> None:
    assert java_hash("Aa") == java_hash("BB")
    body = b"".join(map(tagged, TAGS))

    assert tags(result("Aa", body)) == ["Aa"]
    assert tags(result("BB || C", body)) == ["BB"]
    assert tags(result("*", body)) == ["Aa", "BB", None]


def test_an_answer_without_messages_has_none() -> None:
    assert result("*", b"").messages == []
    assert PullResult(PullStatus.NO_NEW, 9, 0, 9, 0).messages == []


def test_the_messages_are_as_they_were_stored() -> None:
    assert selected_records(result("*", STORED * 2)) == [RECORD, RECORD]
    assert selected_records(result("TagA", STORED)) == [RECORD]


def test_a_message_knows_its_queue_and_how_far_behind_it_is() -> None:
    pulled = PullResult(PullStatus.FOUND, 9, 3, 12, 0, STORED, broker_name="broker-a")
    (message,) = pulled.messages
    assert message.queue == MessageQueue(RECORD.topic, "broker-a", RECORD.queue_id)
    assert (message.min_offset, message.max_offset) == (3, 12)
    assert message.reconsume_times == RECORD.reconsume_times
    assert pulled.messages is pulled.messages


def test_a_body_that_cannot_be_decoded_is_an_error_of_its_message_only() -> None:
    bomb = replace(RECORD, body=zlib.compress(bytes(2001)), sys_flag=1).encode()
    damaged = bytearray(replace(RECORD, body=b"dama", sys_flag=0).encode())
    damaged[damaged.index(b"dama")] ^= 1
    sound = replace(RECORD, body=zlib.compress(bytes(2000)), sys_flag=1).encode()
    first, second, third = PullResult(
        PullStatus.FOUND, 9, 0, 9, 0, bomb + damaged + sound, uncompressed_max=2000
    ).messages

    with pytest.raises(MessageError, match="has more than 2000 when it is decompressed"):
        _ = first.body
    with pytest.raises(DamagedBody, match=f"message {second.message_id} of "):
        _ = second.body
    assert third.body == bytes(2000)
    assert first.keys == second.keys == third.keys


@pytest.mark.parametrize("body", [STORED[:-1], STORED + b"\0", bytes(100)])
def test_other_bytes_are_no_messages(body: bytes) -> None:
    for expression in ("*", "TagA"):
        with pytest.raises(CorruptRecord):
            _ = result(expression, body).messages
