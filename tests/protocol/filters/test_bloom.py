"""The bits of a filter, as Apache's program chooses them.

See docs/storage/consume-queue.md#filter-bits.
"""

from __future__ import annotations

import json
from urllib.parse import unquote

import pytest

from roquet.protocol.filters.bloom import BloomShape, mask_of, murmur3_128
from tests.golden.collection import ROOT

LINES = (ROOT / "filters" / "bloom.txt").read_text(encoding="utf-8").splitlines()


@pytest.mark.parametrize("line", LINES)
def test_size_and_positions_are_apaches(line: str) -> None:
    _, error_percent, expected, text, bits, positions = line.split("\t")
    shape = BloomShape(int(error_percent), int(expected))

    assert shape.bits == int(bits)
    assert list(shape.positions_of(unquote(text))) == json.loads(positions)


def test_a_groups_bits_follow_from_its_name_and_the_topics() -> None:
    assert BloomShape().positions("g", "T") == BloomShape().positions_of("g#T")


def test_the_hash_is_the_one_of_that_name() -> None:
    assert murmur3_128(b"") == (0, 0)
    assert murmur3_128(b"hello") == (0xCBD8A7B341BD9B02, 0x5B1E906A48AE1D19)


def test_bit_p_stands_in_byte_p_div_8_the_lowest_first() -> None:
    assert mask_of((0, 7, 8, 23), 24) == bytes([0b1000_0001, 0b0000_0001, 0b1000_0000])
