"""The body of a batch."""

from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from roquet.protocol.records.batch import batch_item, split_batch
from tests.protocol.strategies import int32

APACHE = bytes.fromhex("000000210000000000000000000000000000000268690009544147530154616741")


def test_apaches_element_is_read_and_written_byte_for_byte() -> None:
    assert list(split_batch(APACHE)) == [(0, b"hi", b"TAGS\x01TagA")]
    assert batch_item(0, b"hi", b"TAGS\x01TagA") == APACHE


@given(st.lists(st.tuples(int32, st.binary(max_size=50), st.binary(max_size=50)), max_size=5))
def test_a_batch_is_its_messages_one_after_the_other(
    messages: list[tuple[int, bytes, bytes]],
) -> None:
    assert list(split_batch(b"".join(batch_item(*message) for message in messages))) == messages


@pytest.mark.parametrize(
    "data",
    [
        APACHE[:-1],
        APACHE + b"\x00",
        bytes(40),
        b"\xff" * 40,
        APACHE[:16] + b"\xff\xff\xff\xff" + APACHE[20:],
        APACHE[:22] + b"\x00\x0a" + APACHE[24:],
    ],
)
def test_sizes_that_do_not_add_up_are_refused(data: bytes) -> None:
    with pytest.raises(ValueError, match="batch: "):
        list(split_batch(data))


@given(st.binary(max_size=100))
def test_any_bytes_are_a_batch_or_refused(data: bytes) -> None:
    with suppress(ValueError):
        list(split_batch(data))
