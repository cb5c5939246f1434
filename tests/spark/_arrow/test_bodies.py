"""Bodies are decompressed up to a size, and part by part."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from roquet.errors import MessageError
from roquet.protocol.records.layout import SIZE_MIN
from roquet.protocol.records.message import (
    COMPRESSED,
    COMPRESSION_LZ4,
    COMPRESSION_ZLIB,
    COMPRESSION_ZSTD,
)
from roquet.spark._arrow import bodies
from roquet.spark._arrow.bodies import Part, Unreadable, decompressed, mean_size, split_by_size
from tests.protocol.examples import RECORD
from tests.spark._arrow.examples import squeezed

BODY = b"hello " * 1000
STORED = {
    0: zlib.compress(BODY),
    COMPRESSION_ZLIB: zlib.compress(BODY),
    COMPRESSION_LZ4: squeezed("lz4", BODY),
    COMPRESSION_ZSTD: squeezed("zstd", BODY),
}


@pytest.mark.parametrize("kind", STORED)
def test_a_body_may_have_as_many_bytes_as_allowed_and_no_more(kind: int) -> None:
    stored = STORED[kind]

    assert decompressed(stored, kind, len(BODY)) == BODY
    with pytest.raises(
        MessageError,
        match=f"stored in {len(stored)} bytes, has more than {len(BODY) - 1} when it is decomp",
    ):
        decompressed(stored, kind, len(BODY) - 1)


@pytest.mark.parametrize("kind", STORED)
@pytest.mark.parametrize("stored", [b"no such stream", "cut"])
def test_a_body_that_is_no_whole_stream_is_damaged(kind: int, stored: bytes | str) -> None:
    given = STORED[kind][:-9] if isinstance(stored, str) else stored
    with pytest.raises(MessageError, match="the compressed body is damaged"):
        decompressed(given, kind, 10_000)


def test_a_kind_that_nobody_knows_is_named() -> None:
    with pytest.raises(MessageError, match="compressed with kind 0x500, which this pyarrow does"):
        decompressed(b"x", 0x500, 10)


@pytest.mark.parametrize("kind", [*STORED, 0x500])
def test_an_empty_body_stays_empty_whatever_its_kind(kind: int) -> None:
    assert decompressed(b"", kind, 10) == b""


def split(
    sizes: Sequence[int], plain: Sequence[int | None], most: int
) -> tuple[list[Part], list[Unreadable]]:
    """
    :param plain: bytes of the decompressed bodies; negative if a body is damaged, None if it is
        not compressed.
    """

    def body(row: int) -> bytes:
        size = plain[row]
        assert size is not None, "only compressed bodies are decompressed"
        if size < 0:
            raise MessageError(f"body {row} is damaged")
        return bytes(size)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(bodies, "PART_BYTES", most)
        found = list(
            split_by_size(
                np.array(sizes, np.int64), np.array([each is not None for each in plain]), body
            )
        )
    parts = [each for each in found if isinstance(each, Part)]
    return parts, [each for each in found if isinstance(each, Unreadable)]


RECORDS = st.lists(st.tuples(st.integers(0, 20), st.none() | st.integers(-1, 40)), max_size=12)


@given(RECORDS, st.integers(1, 60))
def test_each_record_is_in_one_part_in_order_or_unreadable(
    records: list[tuple[int, int | None]], most: int
) -> None:
    sizes, plain = [size for size, _ in records], [size for _, size in records]

    parts, unreadable = split(sizes, plain, most)

    damaged = [row for row, size in enumerate(plain) if size == -1]
    assert unreadable == [Unreadable(row, f"body {row} is damaged") for row in damaged]
    rows = [row for part in parts for row in part.rows.tolist()]
    assert rows == [row for row in range(len(records)) if row not in damaged]
    for part in parts:
        compressed = [plain[row] for row in part.rows.tolist() if plain[row] is not None]
        assert [len(body) for body in part.plain] == compressed
        assert len(part.rows) == 1 or _bytes_of(part, sizes) <= most
    for part, following in pairwise(parts):
        first = int(following.rows[0])
        assert _bytes_of(part, sizes) + sizes[first] + (plain[first] or 0) > most, "it had room"


def _bytes_of(part: Part, sizes: Sequence[int]) -> int:
    stored: list[int] = [sizes[row] for row in part.rows.tolist()]
    return sum(stored) + sum(map(len, part.plain))


def test_a_part_is_full_to_the_byte() -> None:
    parts, _ = split([10, 10, 10, 31, 1], [None] * 5, 30)

    assert [part.rows.tolist() for part in parts] == [[0, 1, 2], [3], [4]]


def test_no_records_have_no_part() -> None:
    assert split([], [], 10) == ([], [])


def test_the_mean_size_is_that_of_decompressed_records() -> None:
    others = SIZE_MIN + len(RECORD.topic) + len(RECORD.properties_text)
    plain = replace(RECORD, body=bytes(100))
    compressed = replace(RECORD, body=zlib.compress(bytes(5000)), sys_flag=COMPRESSED)
    damaged = replace(RECORD, body=b"12345", sys_flag=COMPRESSED)

    assert mean_size([plain, compressed], 5000) == others + 2550
    assert mean_size([damaged], 5000) == others + 5
    assert mean_size([compressed], 4999) == others + len(compressed.body), "it stays compressed"
    assert mean_size([], 5000) == 1
