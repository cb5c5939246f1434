"""Bloom filters: the bits that a group's filter sets in the extension units of its messages.

Brokers that use the same store must agree on the parameters, the hash and the order of bits.

See docs/storage/consume-queue.md#filter-bits.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil, e, log, log2
from typing import Final

_MASK_64: Final = 0xFFFFFFFFFFFFFFFF
_FIRST: Final = 0x87C37B91114253D5
_SECOND: Final = 0x4CF5AD432745937F


@dataclass(frozen=True, slots=True)
class BloomShape:
    """The parameters of a Bloom filter for `expected` groups per topic.

    A group that did not set its bits finds them set with a probability of `error_percent`.
    """

    error_percent: int = 20
    expected: int = 32

    @property
    def hashes(self) -> int:
        """Number of bits that each group sets."""
        return ceil(log(self.error_percent / 100) / log(0.5))

    @property
    def bits(self) -> int:
        """Number of bits of the filter, a multiple of 8."""
        wanted = ceil(self.expected * log2(100 / self.error_percent) * log2(e))
        return 8 * ceil(wanted / 8)

    def positions(self, group: str, topic: str) -> tuple[int, ...]:
        """The bits of a group's filter for a topic, in the order in which Apache saves them."""
        return self.positions_of(f"{group}#{topic}")

    def positions_of(self, text: str) -> tuple[int, ...]:
        """The bits of any text; a bit may occur twice."""
        low, _ = murmur3_128(text.encode())
        first, second = low & 0xFFFFFFFF, low >> 32
        hashes = ((first + number * second) & 0xFFFFFFFF for number in range(1, self.hashes + 1))
        return tuple(
            (hash32 ^ 0xFFFFFFFF if hash32 >> 31 else hash32) % self.bits for hash32 in hashes
        )


def mask_of(positions: tuple[int, ...], bits: int) -> bytes:
    """The filter's bytes with these bits set: bit p is in byte p / 8, the lowest bit first."""
    mask = 0
    for position in positions:
        mask |= 1 << position
    return mask.to_bytes(bits // 8, "little")


def murmur3_128(data: bytes) -> tuple[int, int]:
    """MurmurHash3, x64, 128 bits, seed 0: both halves, unsigned."""
    high = low = 0
    whole = len(data) - len(data) % 16
    for at in range(0, whole, 16):
        low ^= _first_mixed(int.from_bytes(data[at : at + 8], "little"))
        low = (_rotated(low, 27) + high) * 5 + 0x52DCE729 & _MASK_64
        high ^= _second_mixed(int.from_bytes(data[at + 8 : at + 16], "little"))
        high = (_rotated(high, 31) + low) * 5 + 0x38495AB5 & _MASK_64
    low ^= _first_mixed(int.from_bytes(data[whole : whole + 8], "little")) ^ len(data)
    high ^= _second_mixed(int.from_bytes(data[whole + 8 :], "little")) ^ len(data)
    low = low + high & _MASK_64
    high = high + low & _MASK_64
    low, high = _final(low), _final(high)
    low = low + high & _MASK_64
    return low, high + low & _MASK_64


def _rotated(value: int, count: int) -> int:
    return (value << count | value >> 64 - count) & _MASK_64


def _first_mixed(block: int) -> int:
    return _rotated(block * _FIRST & _MASK_64, 31) * _SECOND & _MASK_64


def _second_mixed(block: int) -> int:
    return _rotated(block * _SECOND & _MASK_64, 33) * _FIRST & _MASK_64


def _final(value: int) -> int:
    value = (value ^ value >> 33) * 0xFF51AFD7ED558CCD & _MASK_64
    value = (value ^ value >> 33) * 0xC4CEB9FE1A85EC53 & _MASK_64
    return value ^ value >> 33
