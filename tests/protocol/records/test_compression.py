"""Bodies are decompressed as far as they may be, in no more memory than that."""

from __future__ import annotations

import tracemalloc
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from roquet.errors import DamagedBody, MessageError
from roquet.protocol.records.compression import UNCOMPRESSED_MAX, inflated, plain_body
from roquet.protocol.records.layout import checksum

MIB = 1 << 20


@pytest.mark.parametrize("sys_flag", [0x1, 0x301])
def test_a_compressed_body_is_decompressed(sys_flag: int) -> None:
    assert plain_body(zlib.compress(b"hello"), sys_flag) == b"hello"
    assert plain_body(b"as it is", sys_flag & ~1) == b"as it is"


def test_a_body_is_compared_with_its_checksum_where_one_is_stored() -> None:
    assert plain_body(b"hello", 0, crc=checksum(b"hello")) == b"hello"
    assert plain_body(b"", 0, crc=checksum(b"")) == b""
    assert plain_body(b"hello", 0, crc=0) == b"hello", "a broker that makes no checksums stores 0"
    with pytest.raises(DamagedBody):
        plain_body(b"hello", 0, crc=checksum(b"hellp"))


@pytest.mark.parametrize(
    ("sys_flag", "why"), [(0x1, "damaged"), (0x101, "LZ4"), (0x201, "ZSTD"), (0x701, "0x700")]
)
def test_a_body_that_cannot_be_decompressed_is_not_passed_off_as_one_that_can(
    sys_flag: int, why: str
) -> None:
    with pytest.raises(MessageError, match=why):
        plain_body(b"junk", sys_flag)


@pytest.mark.parametrize("sys_flag", [0x1, 0x101, 0x201, 0x301, 0x701])
def test_an_empty_body_is_not_decompressed(sys_flag: int) -> None:
    """As in Apache's clients."""
    assert plain_body(b"", sys_flag, crc=checksum(b"")) == b""


@given(st.binary(max_size=3000), st.integers(0, 3000))
def test_as_many_bytes_come_as_may_and_all_or_none(body: bytes, size_max: int) -> None:
    stored = zlib.compress(body)
    if len(body) <= size_max:
        assert inflated(stored, size_max) == body
    else:
        with pytest.raises(
            MessageError, match=f"stored in {len(stored)} bytes, has more than {size_max} when"
        ):
            inflated(stored, size_max)


@given(st.binary(max_size=300), st.data())
def test_a_body_that_ends_too_early_is_damaged(body: bytes, data: st.DataObject) -> None:
    stored = zlib.compress(body)
    cut = data.draw(st.integers(0, len(stored) - 1))
    with pytest.raises(MessageError, match="the compressed body is damaged"):
        inflated(stored[:cut], 1000)


def test_a_bomb_takes_no_more_memory_than_a_body_may() -> None:
    bomb = zlib.compress(bytes(UNCOMPRESSED_MAX + MIB))
    tracemalloc.start()
    try:
        with pytest.raises(MessageError, match=f"has more than {MIB} when it is decompressed"):
            inflated(bomb, MIB)
        assert tracemalloc.get_traced_memory()[1] < 4 * MIB
    finally:
        tracemalloc.stop()
    with pytest.raises(MessageError, match=f"has more than {UNCOMPRESSED_MAX} when"):
        plain_body(bomb, 1)
