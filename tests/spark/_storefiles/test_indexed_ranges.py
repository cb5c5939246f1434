"""Which bytes of a log are read when the queues tell to whom its records belong."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import numpy as np
import pytest

from roquet.spark._storefiles.indexed_ranges import (
    HOLE_MIN,
    READ_AT_ONCE,
    Claimed,
    Claims,
    Unclaimed,
    to_read,
)

END = 1 << 30


def laid(*records: tuple[int, int, bool]) -> Claims:
    at, size, is_wanted = zip(*records, strict=True) if records else ((), (), ())
    return Claims(np.array(at, np.int64), np.array(size, np.int64), np.array(is_wanted, np.bool_))


def end_to_end(sizes: Sequence[int], wanted: Collection[int]) -> Claims:
    starts = np.cumsum([0, *sizes]).tolist()
    return laid(*((starts[number], size, number in wanted) for number, size in enumerate(sizes)))


def spans(claims: Claims, end: int) -> list[tuple[int, int]]:
    """Bytes read, and those of no queue as they are."""
    found = to_read(claims, 0, end)
    return [
        span
        for each in found
        for span in (each.spans if isinstance(each, Claimed) else [(each.start, each.end)])
    ]


def test_what_no_queue_claims_is_read() -> None:
    claims = laid((100, 50, False), (150, 50, False), (300, 100, False))

    assert to_read(claims, 0, 1000) == [
        Unclaimed(0, 100),
        Unclaimed(200, 300),
        Unclaimed(400, 1000),
    ]
    assert to_read(laid(), 0, 1000) == [Unclaimed(0, 1000)]


def test_what_others_claim_is_left_out_where_it_is_large() -> None:
    sizes = [500, HOLE_MIN, 700, 600, HOLE_MIN - 1, 100]

    assert spans(end_to_end(sizes, {0, 2, 3, 5}), sum(sizes)) == [
        (0, 500),
        (500 + HOLE_MIN, sum(sizes)),
    ]


def test_nothing_is_read_where_others_claim_all() -> None:
    assert to_read(end_to_end([500, 600], ()), 0, 1100) == []


def test_records_come_together_and_in_the_order_of_the_log() -> None:
    size = READ_AT_ONCE // 2
    claims = end_to_end([size] * 5, range(5))

    found = to_read(claims, 0, 5 * size + 40)

    assert [each.at.tolist() for each in found if isinstance(each, Claimed)] == [
        [0, size],
        [2 * size, 3 * size],
        [4 * size],
    ]
    assert found[-1] == Unclaimed(5 * size, 5 * size + 40)


def test_a_gap_parts_what_is_read_together() -> None:
    claims = laid((0, 100, True), (100, 100, True), (300, 100, True))

    first, gap, last = to_read(claims, 0, 400)

    assert isinstance(first, Claimed)
    assert first.spans == [(0, 200)]
    assert gap == Unclaimed(200, 300)
    assert isinstance(last, Claimed)
    assert last.spans == [(300, 400)]


@pytest.mark.parametrize("seed", range(20))
def test_every_wanted_record_and_every_gap_is_read_once(seed: int) -> None:
    random = np.random.default_rng(seed)
    sizes = random.integers(91, 2 * HOLE_MIN, 200)
    ends = np.cumsum(sizes)
    is_there, is_wanted = random.random(200) < 0.9, random.random(200) < 0.2
    at = ends - sizes
    claims = Claims(at[is_there], sizes[is_there], is_wanted[is_there])

    read = np.zeros(int(ends[-1]), np.int8)
    for start, end in spans(claims, len(read)):
        read[start:end] += 1

    assert read.max() == 1
    assert all(
        read[start:end].all()
        for start, end in zip(at, ends, strict=True)
        if is_wanted[at == start][0]
    )
    must = [(at[each], ends[each]) for each in range(200) if is_wanted[each] or not is_there[each]]
    assert all(read[start:end].all() for start, end in must)
    assert read.sum() < len(read)
