"""The layout of an index file, and the hash of a key.

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
"""Store times of the first and the last record, their physical offsets; slots in use, number of the
next entry."""
SLOT: Final = np.dtype(">i4")
ENTRY: Final = np.dtype([("hash", ">i4"), ("at", ">i8"), ("seconds", ">i4"), ("previous", ">i4")])
_NO_POSITIVE: Final = 0x80000000
"""The absolute value of the one hash that has no positive counterpart in 32 bits; Apache uses 0."""


def slot_at(number: int) -> int:
    """The byte at which a slot begins in the file."""
    return HEADER.size + number * SLOT.itemsize


def entry_at(slots: int, number: int) -> int:
    """The byte at which an entry begins in a file with `slots` slots.

    For the number of entries it is the file's size.
    """
    return slot_at(slots) + number * ENTRY.itemsize


def key_hash(topic: str, key: str) -> int:
    """Java's hash of `topic#key`, made non-negative as Apache does."""
    found = abs(java_hash(f"{topic}#{key}"))
    return 0 if found == _NO_POSITIVE else found


def key_hashes(topic: str, keys: bytes, size: int) -> Ints:
    """The hashes of keys of `size` bytes each, given end to end."""
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
