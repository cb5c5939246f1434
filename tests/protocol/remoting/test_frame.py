"""Whole frames, however the stream arrives."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from roquet.errors import PeerError
from roquet.protocol.remoting.frame import FRAME_SIZE_MAX, SIZE, FrameBuffer

frames = st.lists(st.binary(min_size=4, max_size=60), max_size=8)


def on_the_wire(frames: Sequence[bytes]) -> bytes:
    return b"".join(SIZE.pack(len(frame)) + frame for frame in frames)


def pieces(stream: bytes, cuts: Sequence[int]) -> list[bytes]:
    at = [0, *sorted(cut % (len(stream) + 1) for cut in cuts), len(stream)]
    return [stream[start:end] for start, end in itertools.pairwise(at)]


@given(frames, st.lists(st.integers(0, 1000), max_size=20))
def test_any_split_of_the_stream_gives_the_same_frames(
    frames: list[bytes], cuts: list[int]
) -> None:
    buffer = FrameBuffer()

    found = [frame for piece in pieces(on_the_wire(frames), cuts) for frame in buffer.feed(piece)]

    assert found == frames
    assert {type(frame) for frame in found} <= {bytes}


@given(frames)
def test_a_frame_is_given_as_soon_as_its_last_byte_is_there(frames: list[bytes]) -> None:
    buffer = FrameBuffer()

    for frame in frames:
        *before, last = [bytes((byte,)) for byte in on_the_wire([frame])]
        assert all(buffer.feed(byte) == [] for byte in before)
        assert buffer.feed(last) == [frame]


@pytest.mark.parametrize("size", [FRAME_SIZE_MAX - 3, 2**31 - 1, 3, 0, -1, -(2**31)])
def test_a_size_that_no_frame_can_have_is_refused_before_anything_is_stored(size: int) -> None:
    with pytest.raises(PeerError, match=f"frame of {size} bytes"):
        FrameBuffer().feed(SIZE.pack(size))


@pytest.mark.parametrize(
    ("stream", "told"),
    [
        (
            b"GET / HTTP/1.1\r\n",
            'frame of 1195725856 bytes, allowed are 4 to 16777212 (these bytes are HTTP: "GET ")',
        ),
        (
            b"\x16\x03\x01\x02\x00\x01",
            "frame of 369295618 bytes, allowed are 4 to 16777212 (these bytes are a TLS handshake)",
        ),
        (b"SSH-2.0-OpenSSH", "frame of 1397966893 bytes, allowed are 4 to 16777212"),
    ],
)
def test_another_protocol_is_named(stream: bytes, told: str) -> None:
    for before, rest in (
        (b"", stream),
        (stream[:1], stream[1:]),
        (b"", on_the_wire([b"first"]) + stream),
    ):
        buffer = FrameBuffer()
        buffer.feed(before)
        with pytest.raises(PeerError) as refused:
            buffer.feed(rest)
        assert str(refused.value) == told


def test_the_largest_frame_is_taken() -> None:
    frame = bytes(FRAME_SIZE_MAX - 4)

    assert FrameBuffer().feed(on_the_wire([frame])) == [frame]


@given(st.lists(st.binary(max_size=100), max_size=10))
def test_any_bytes_are_frames_or_the_peers_fault(stream: list[bytes]) -> None:
    buffer = FrameBuffer()
    try:
        for data in stream:
            buffer.feed(data)
    except PeerError:
        pass
