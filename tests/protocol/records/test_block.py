"""Records that stand end to end are found, whatever their sizes."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from roquet.protocol.records.block import record_starts
from roquet.protocol.records.layout import MAGIC, MAGIC_V2, SIZE_MIN

RUNS = st.lists(
    st.tuples(
        st.integers(SIZE_MIN, SIZE_MIN + 3),
        st.sampled_from([MAGIC, MAGIC, MAGIC_V2]),
        st.integers(1, 40),
    ),
    max_size=6,
)


@given(RUNS, st.sampled_from([b"", bytes(200), b"\xff" * 200]), st.integers(0, 300))
def test_records_start_where_the_ones_before_them_end(
    runs: list[tuple[int, int, int]], behind: bytes, cut: int
) -> None:
    records = [
        size.to_bytes(4, "big") + magic.to_bytes(4, "big") + bytes(size - 8)
        for size, magic, count in runs
        for _ in range(count)
    ]
    data = b"".join(records) + behind
    data = data[: max(0, len(data) - cut)]
    starts, at = [], 0
    for record in records:
        if at + len(record) > len(data):
            break
        starts.append(at)
        at += len(record)

    assert record_starts(data) == (starts, at)
