"""The two byte layouts, whole and in pieces."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from roquet.errors import PeerError
from roquet.replication.frames import (
    BODY_SIZE_MAX,
    Chunk,
    ChunkStream,
    HeartbeatFrame,
    ReportStream,
    header,
    report,
)

OFFSETS = st.integers(0, 2**63 - 1).map(int)


def cut(data: bytes, places: list[int]) -> list[bytes]:
    """`data` in pieces, cut at these places."""
    return [
        data[start:end]
        for start, end in pairwise([0, *sorted(place % (len(data) + 1) for place in places), None])
    ]


CUTS = st.lists(st.integers(0, 10_000), max_size=8)


def test_a_report_is_one_long() -> None:
    assert report(0x30010B).hex() == "000000000030010b"


def test_a_header_is_a_long_and_an_int() -> None:
    assert header(0x300000, 267).hex() == "00000000003000000000010b"


def test_only_the_last_report_of_a_read_counts() -> None:
    assert ReportStream().feed(report(1) + report(2)) == 2


def test_a_report_may_come_in_pieces() -> None:
    stream = ReportStream()
    data = report(7) + report(9)
    assert [stream.feed(data[:3]), stream.feed(data[3:12]), stream.feed(data[12:])] == [None, 7, 9]


def test_a_negative_report_is_refused() -> None:
    with pytest.raises(PeerError, match="offset=-1"):
        ReportStream().feed(b"\xff" * 8)


def test_an_end_within_a_report_is_told_of() -> None:
    stream = ReportStream()
    stream.feed(report(7))
    stream.end()
    stream.feed(b"abc")
    with pytest.raises(PeerError, match="ended after 3 of the 8 bytes"):
        stream.end()


@given(st.lists(st.integers(0, 2**56 - 1).map(int), min_size=1, max_size=6), CUTS)
def test_however_reports_are_cut_the_last_one_arrives(
    offsets: list[int], places: list[int]
) -> None:
    stream = ReportStream()
    heard = [stream.feed(piece) for piece in cut(b"".join(map(report, offsets)), places)]
    assert [offset for offset in heard if offset is not None][-1] == offsets[-1]


def test_a_body_is_passed_on_before_it_is_whole() -> None:
    stream = ChunkStream()
    assert stream.feed(header(64, 5) + b"ab") == [Chunk(64, memoryview(b"ab"))]
    assert stream.feed(b"cde") == [Chunk(66, memoryview(b"cde"))]


def test_a_body_is_not_copied() -> None:
    data = header(0, 3) + b"abc"
    (chunk,) = ChunkStream().feed(data)
    assert isinstance(chunk, Chunk)
    assert chunk.data.obj is data


@pytest.mark.parametrize(("at", "size"), [(0, -1), (0, BODY_SIZE_MAX + 1), (-8, 4)])
def test_a_header_no_master_writes_is_refused_before_its_body(at: int, size: int) -> None:
    with pytest.raises(PeerError, match="announces"):
        ChunkStream().feed(header(at, size))


@given(st.lists(st.tuples(OFFSETS, st.binary(max_size=40)), max_size=6), CUTS)
def test_however_frames_are_cut_the_same_bytes_arrive(
    frames: list[tuple[int, bytes]], places: list[int]
) -> None:
    stream = ChunkStream()
    data = b"".join(header(at, len(body)) + body for at, body in frames)
    arrived: list[tuple[int, bytes]] = []
    for frame in (frame for piece in cut(data, places) for frame in stream.feed(piece)):
        match frame:
            case HeartbeatFrame(at):
                arrived.append((at, b""))
            case Chunk(at, body):
                arrived += [
                    (at + index, body[index : index + 1].tobytes()) for index in range(len(body))
                ]
    expected: list[tuple[int, bytes]] = []
    for at, body_ in frames:
        expected += [(at + index, body_[index : index + 1]) for index in range(len(body_))] or [
            (at, b"")
        ]
    assert arrived == expected
