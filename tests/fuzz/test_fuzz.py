"""No bytes, however damaged, make a decoder fail otherwise than it says, run on, or take memory
without bound.
"""

from __future__ import annotations

import tracemalloc
from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.fuzz.samples import samples
from tests.fuzz.targets import ALLOWED, TARGETS

MEMORY_MAX = 1 << 20
"""Bytes that a target may take whatever it gets."""

INTERESTING = (0, 1, 2, 0x7F, 0x80, 0xFF)
EDITS = st.lists(
    st.tuples(
        st.integers(0, 1 << 16), st.one_of(st.sampled_from(INTERESTING), st.integers(0, 255))
    ),
    max_size=12,
)


@st.composite
def damaged(draw: st.DrawFn, target: str) -> bytes:
    """A sound sample with some bytes changed, a piece moved, or cut short; or just any bytes."""
    if draw(st.integers(0, 9)) == 0:
        return draw(st.binary(max_size=300))
    data = bytearray(draw(st.sampled_from(samples(target))))
    for at, value in draw(EDITS):
        data[at % len(data)] = value
    if draw(st.booleans()):
        start, end, to = (draw(st.integers(0, len(data))) for _ in range(3))
        data[to:to] = data[start:end][:4096]
    return bytes(data[: draw(st.integers(0, len(data)))] if draw(st.integers(0, 4)) == 0 else data)


@pytest.mark.parametrize("name", TARGETS)
@settings(max_examples=100)
@given(data=st.data())
def test_damaged_bytes_are_told_of(name: str, data: st.DataObject) -> None:
    with suppress(*ALLOWED):
        TARGETS[name](data.draw(damaged(name)))


@pytest.mark.parametrize("name", ["record", "batch", "checkpoint", "state_file", "settings", "sql"])
@settings(max_examples=20)
@given(data=st.data())
def test_damaged_bytes_take_no_memory_beyond_their_own_size(name: str, data: st.DataObject) -> None:
    given_bytes = data.draw(damaged(name))
    tracemalloc.start()
    with suppress(*ALLOWED):
        TARGETS[name](given_bytes)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak <= MEMORY_MAX + 20 * len(given_bytes)


@pytest.mark.parametrize("name", TARGETS)
def test_sound_bytes_are_taken(name: str) -> None:
    for sample in samples(name):
        TARGETS[name](sample)
