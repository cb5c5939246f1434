"""A turn is ended by bytes, time or answers, and no frame is lost or given out twice."""

from __future__ import annotations

import pytest

from roquet.transport.limits import PeerLimits
from roquet.transport.peers import Peers
from roquet.transport.turn import Turn

FRAMES = [b"1", b"2", b"3"]


def turn(*, is_limited: bool = True) -> Turn:
    return Turn(Peers(PeerLimits(answer_bytes_per_connection_max=400)), is_limited=is_limited)


@pytest.mark.parametrize(
    ("frames", "size", "count"), [(11, 220_000, 4), (2, 99_000, 1), (1, 99_000, 1)]
)
def test_a_large_read_has_equal_parts(frames: int, size: int, count: int) -> None:
    assert size > turn().size_max
    assert turn().count(frames, size) == count


def test_frames_that_were_not_given_out_are_left_when_the_turn_is_ended() -> None:
    under_way = turn()
    frames = under_way.begin(FRAMES, 0.0)
    assert (next(frames), under_way.left) == (b"1", [])
    under_way.end()
    under_way.end()
    assert (list(frames), under_way.left) == ([], [b"2", b"3"])
    assert (list(under_way.begin(FRAMES, 0.0)), under_way.left) == (FRAMES, [])


def test_large_answers_end_a_turn_and_the_next_one_counts_anew() -> None:
    under_way = turn()
    assert under_way.answers_at_once == 100
    for _ in range(2):
        under_way.begin(FRAMES, 0.0)
        under_way.made(99)
        assert under_way.left == []
        under_way.made(1)
        assert under_way.left == FRAMES


def test_only_a_limited_turn_is_ended_by_bytes_and_time() -> None:
    limited, free = turn(), turn(is_limited=False)
    limited.begin(FRAMES, 5.0)
    free.begin(FRAMES, 5.0)
    assert limited.end_s == 5.004
    assert free.size_max == free.end_s == float("inf")
