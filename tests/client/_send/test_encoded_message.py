"""What a send carries."""

from __future__ import annotations

import os
import zlib

import pytest

from roquet.client._send.encoded_message import (
    BODY_SIZE_MAX,
    EncodedMessage,
    outgoing,
    outgoing_batch,
)
from roquet.errors import MessageError
from roquet.protocol.headers.send import SendHeaderV2
from roquet.protocol.records.message import COMPRESSED, Message, MessageQueue, split_properties
from roquet.protocol.remoting.codes import RequestCode

QUEUE = MessageQueue("T", "broker-a", 3)


def test_the_header_is_the_one_of_the_table() -> None:
    request = outgoing(Message("T", b"hi", tags="a", flag=9), "KEY").request(
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
    request = outgoing_batch("T", b"...", ("K1", "K2"), wait_stored=False).request(
        "group", QUEUE, 1
    )
    assert request.code == RequestCode.SEND_BATCH_MESSAGE
    assert (request.fields["m"], request.fields["i"]) == ("true", "WAIT\x01false")


def test_reconsume_times_go_with_a_retry_message() -> None:
    request = EncodedMessage(
        "%RETRY%g", b"x", ("K",), "", reconsume_times=2, max_reconsume_times=16
    ).request("g", QUEUE, 1)
    assert (request.fields["j"], request.fields["l"]) == ("2", "16")


def test_every_try_carries_the_same_id() -> None:
    message = outgoing(Message("T", b"hi"), "KEY")
    tries = [
        message.request("group", queue, now).fields["i"] for now, queue in ((1, QUEUE), (2, QUEUE))
    ]
    assert [split_properties(text)["UNIQ_KEY"] for text in tries] == ["KEY", "KEY"]


def test_a_large_body_is_compressed_in_the_way_every_reader_knows() -> None:
    sent = outgoing(Message("T", bytes(4096)), "KEY")
    assert sent.body[:2] == b"\x78\x5e"
    assert zlib.decompress(sent.body) == bytes(4096)
    assert sent.sys_flag == COMPRESSED


def test_a_small_body_and_one_that_would_not_shrink_are_sent_as_they_are() -> None:
    noise = os.urandom(5000)
    assert outgoing(Message("T", bytes(4095)), "KEY").sys_flag == 0
    assert outgoing(Message("T", noise), "KEY").body == noise
    assert outgoing(Message("T", noise), "KEY").sys_flag == 0


def test_a_body_beyond_four_mebibytes_is_refused_before_it_is_compressed() -> None:
    outgoing(Message("T", bytes(BODY_SIZE_MAX)), "KEY")
    with pytest.raises(MessageError, match="4194305 bytes"):
        outgoing(Message("T", bytes(BODY_SIZE_MAX + 1)), "KEY")
