"""Where things stand in an index file, and what it has for a key.

See docs/storage/index.md#files.
"""

from __future__ import annotations

from functools import lru_cache
from struct import Struct
from typing import Final

import numpy as np

from roquet.protocol.records.columns import Ints, java_hashes
from roquet.protocol.records.message import java_hash

NAME_DIGITS: Final = 17
HEADER: Final = Struct(">qqqqii")
"""Store time of the first and of the last record, where they stand; slots in use, number of the next entry."""
SLOT: Final = np.dtype(">i4")
ENTRY: Final = np.dtype([("hash", ">i4"), ("at", ">i8"), ("seconds", ">i4"), ("previous", ">i4")])
_NO_POSITIVE: Final = 0x80000000
"""The one hash that has no positive counterpart in 32 bits; Apache counts it as 0."""


def slot_at(number: int) -> int:
    """The byte in the file where a slot begins."""
    return HEADER.size + number * SLOT.itemsize


def entry_at(slots: int, number: int) -> int:
    """The byte in a file with so many slots where an entry begins; where the file ends, for the number of entries."""
    return slot_at(slots) + number * ENTRY.itemsize


def key_hash(topic: str, key: str) -> int:
    """Java's hash of `topic#key`, made non-negative as Apache does."""
    found = abs(java_hash(f"{topic}#{key}"))
    return 0 if found == _NO_POSITIVE else found


def key_hashes(topic: str, keys: bytes, size: int) -> Ints:
    """The hash of each of several keys that have `size` bytes and stand end to end."""
    if not keys.isascii():
        return np.array(
            [
                key_hash(topic, keys[at : at + size].decode("utf-8", "replace"))
                for at in range(0, len(keys), size)
            ],
            np.int64,
        )
    letters = np.frombuffer(keys, np.uint8).reshape(-1, size)
    hashes = np.abs(java_hashes(letters, _hash_before_key(topic)))
    hashes[hashes == _NO_POSITIVE] = 0
    return hashes


@lru_cache(4096)
def _hash_before_key(topic: str) -> int:
    return java_hash(topic + "#")
