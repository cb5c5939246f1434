"""What a send carries."""

from __future__ import annotations

import os
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from roquet.client._send.encoded_message import (
    BATCH_SIZE_MAX,
    BODY_SIZE_MAX,
    EncodedMessage,
    check_batch,
    encode_batch,
    encode_batches,
    encode_message,
)
from roquet.errors import MessageError
from roquet.protocol.headers.send import SendHeaderV2
from roquet.protocol.records.batch import split_batch
from roquet.protocol.records.message import COMPRESSED, Message, MessageQueue, split_properties
from roquet.protocol.records.record import Record
from roquet.protocol.remoting.codes import RequestCode

QUEUE = MessageQueue("T", "broker-a", 3)


def test_the_header_is_the_one_of_the_table() -> None:
    request = encode_message(Message("T", b"hi", tags="a", flag=9), "KEY").request(
        "group", QUEUE, 1_700_000_000_000
    )
    assert request.code == RequestCode.SEND_MESSAGE_V2
    assert (
        request.fields
        == SendHeaderV2(
            "group",
            "T",
            3,
            0,
            1_700_000_000_000,
            9,
            properties="UNIQ_KEY\x01KEY\x02WAIT\x01true\x02TAGS\x01a",
            bname="broker-a",
        ).write()
    )


def test_a_batch_says_so_and_brings_only_what_holds_for_all() -> None:
    request = encode_batch("T", b"...", ("K1", "K2"), wait_stored=False).request("group", QUEUE, 1)
    assert request.code == RequestCode.SEND_BATCH_MESSAGE
    assert (request.fields["m"], request.fields["i"]) == ("true", "WAIT\x01false")


def test_reconsume_times_go_with_a_retry_message() -> None:
    request = EncodedMessage(
        "%RETRY%g", b"x", ("K",), "", reconsume_times=2, max_reconsume_times=16
    ).request("g", QUEUE, 1)
    assert (request.fields["j"], request.fields["l"]) == ("2", "16")


def test_every_try_carries_the_same_id() -> None:
    message = encode_message(Message("T", b"hi"), "KEY")
    tries = [
        message.request("group", queue, now).fields["i"] for now, queue in ((1, QUEUE), (2, QUEUE))
    ]
    assert [split_properties(text)["UNIQ_KEY"] for text in tries] == ["KEY", "KEY"]


def test_a_large_body_is_compressed_in_the_way_every_reader_knows() -> None:
    sent = encode_message(Message("T", bytes(4096)), "KEY")
    assert sent.body[:2] == b"\x78\x5e"
    assert zlib.decompress(sent.body) == bytes(4096)
    assert sent.sys_flag == COMPRESSED


def test_a_small_body_and_one_that_would_not_shrink_are_sent_as_they_are() -> None:
    noise = os.urandom(5000)
    assert encode_message(Message("T", bytes(4095)), "KEY").sys_flag == 0
    assert encode_message(Message("T", noise), "KEY").body == noise
    assert encode_message(Message("T", noise), "KEY").sys_flag == 0


def test_a_body_beyond_four_mebibytes_is_refused_before_it_is_compressed() -> None:
    encode_message(Message("T", bytes(BODY_SIZE_MAX)), "KEY")
    with pytest.raises(MessageError, match="4194305 bytes"):
        encode_message(Message("T", bytes(BODY_SIZE_MAX + 1)), "KEY")


def stored_size(message: Message, unique_key: str) -> int:
    """Of the record with IPv6 hosts that a broker of a cluster with a long name makes of it."""
    properties = (
        message.wire_properties(unique_key) + "\x02CLUSTER\x01" + "c" * 32 + "\x02WAIT\x01true"
    )
    host = bytes(20)
    zero = 0
    fixed = (0, 0, 0, zero, 0, 0, host, 0, host, 0, zero)
    return len(Record(*fixed, message.body, message.topic, properties).encode())


@given(
    sizes=st.lists(st.integers(1, 900), min_size=1, max_size=40), size_max=st.integers(1300, 5000)
)
def test_all_messages_are_in_batches_in_their_order_and_no_batch_is_too_large(
    sizes: list[int], size_max: int
) -> None:
    messages = [
        Message("T", bytes([index % 256]) * size, flag=index) for index, size in enumerate(sizes)
    ]
    keys = [f"KEY{index}" for index in range(len(messages))]
    made = list(encode_batches(messages, keys, size_max))
    by_key = dict(zip(keys, messages, strict=True))
    items = [item for batch in made for item in split_batch(batch.body)]
    assert [(flag, body) for flag, body, _ in items] == [
        (each.flag, each.body) for each in messages
    ]
    assert [split_properties(text.decode())["UNIQ_KEY"] for _, _, text in items] == keys
    assert [key for batch in made for key in batch.unique_keys] == keys
    for batch in made:
        assert sum(stored_size(by_key[key], key) for key in batch.unique_keys) <= size_max
        assert len(list(split_batch(batch.body))) == len(batch.unique_keys)


def test_as_few_batches_are_made_as_the_size_allows() -> None:
    assert [
        len(batch.unique_keys)
        for batch in encode_batches([Message("T", bytes(1_000_000))] * 9, list("123456789"))
    ] == [4, 4, 1]


def test_one_message_too_large_for_any_batch_is_refused() -> None:
    with pytest.raises(MessageError, match="stored, a batch may have 4194304"):
        list(encode_batches([Message("T", bytes(BATCH_SIZE_MAX - 200))], ["KEY"]))


@pytest.mark.parametrize(
    ("messages", "why"),
    [
        ([], "at least one"),
        ([Message("T", b"1"), Message("U", b"2")], "one topic"),
        ([Message("T", b"1"), Message("T", b"2", wait_stored=False)], "wait"),
        ([Message("T", b"1", delay_level=1)], "delayed"),
        ([Message("%RETRY%g", b"1")], "retry"),
    ],
)
def test_what_cannot_go_together_is_refused_with_the_reason(
    messages: list[Message], why: str
) -> None:
    with pytest.raises(MessageError, match=why):
        check_batch(messages)
