"""Messages that go together."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from roquet.client._send.batches import BATCH_SIZE_MAX, batches, check_batch
from roquet.errors import MessageError
from roquet.protocol.records.batch import split_batch
from roquet.protocol.records.message import Message, split_properties
from roquet.protocol.records.record import Record


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
    made = list(batches(messages, keys, size_max))
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
        for batch in batches([Message("T", bytes(1_000_000))] * 9, list("123456789"))
    ] == [4, 4, 1]


def test_one_message_too_large_for_any_batch_is_refused() -> None:
    with pytest.raises(MessageError, match="a batch takes 4194304"):
        list(batches([Message("T", bytes(BATCH_SIZE_MAX - 200))], ["KEY"]))


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
