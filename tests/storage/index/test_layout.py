"""Where slots and entries stand in an index file, and which hash a key has."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from roquet.storage.index.layout import ENTRY, HEADER, SLOT, entry_at, key_hash, key_hashes, slot_at

WITHOUT_POSITIVE = "jllgvmc"
"""Java's hash of "T#" and this key is -2**31."""


def java_hash(text: str) -> int:
    found = 0
    for letter in text:
        found = (31 * found + ord(letter)) % (1 << 32)
    return found - (1 << 32) if found >= 1 << 31 else found


def test_header_slots_and_entries_follow_each_other() -> None:
    assert (HEADER.size, SLOT.itemsize, ENTRY.itemsize) == (40, 4, 20)
    assert [slot_at(number) for number in (0, 1, 50)] == [40, 44, 240]
    assert [entry_at(50, number) for number in (0, 1, 40)] == [240, 260, 1040]
    assert entry_at(5_000_000, 20_000_000) == 420_000_040, "the size of a file of Apache's"


@settings(max_examples=30)
@given(st.text("Tk%_", max_size=9), st.text("aZ 0é\n", max_size=20))
def test_a_keys_hash_is_the_absolute_value_of_javas(topic: str, key: str) -> None:
    assert key_hash(topic, key) == abs(java_hash(f"{topic}#{key}"))


def test_the_hash_without_a_positive_counterpart_is_0() -> None:
    assert java_hash(f"T#{WITHOUT_POSITIVE}") == -(1 << 31)
    assert key_hash("T", WITHOUT_POSITIVE) == 0
    keys = [WITHOUT_POSITIVE, "another"]
    expected = [0, key_hash("T", "another")]
    assert key_hashes("T", "".join(keys).encode(), 7).tolist() == expected


@settings(max_examples=30)
@given(
    st.text(max_size=9),
    st.integers(1, 8),
    st.lists(
        st.sampled_from((b"order", b"\xff\0~", "größer".encode(), b"")), min_size=1, max_size=5
    ),
)
def test_hashes_of_many_keys_are_those_of_each(topic: str, size: int, texts: list[bytes]) -> None:
    """Bytes that are no UTF-8 count as their replacement."""
    keys = [text.ljust(size, b"k")[:size] for text in texts]
    expected = [key_hash(topic, key.decode("utf-8", "replace")) for key in keys]
    assert key_hashes(topic, b"".join(keys), len(keys[0])).tolist() == expected


@pytest.mark.parametrize("key", ["", "k"])
def test_topic_and_key_are_told_apart(key: str) -> None:
    assert key_hash("T", key) != key_hash("", "T" + key)
