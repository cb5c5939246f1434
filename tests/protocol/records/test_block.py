"""Records that stand end to end are found, whatever their sizes, and can be moved to other queues."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from roquet.protocol.records.block import RecordBlock, moved_sizes, record_starts, rewritten
from roquet.protocol.records.layout import HOST_BITS, MAGIC, MAGIC_V2, SIZE_MIN
from roquet.protocol.records.record import Record, decode_all, host_bits
from tests.protocol.strategies import int32, names, records

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


# moving

STORE_MS = 1_700_000_000_123
QUEUE_OFFSETS = st.integers(0, 2**50)


def block_of(stored: Sequence[Record]) -> RecordBlock:
    data = b"".join(record.encode() for record in stored)
    return RecordBlock(500, data, *record_starts(data))


def with_host_bits(record: Record) -> int:
    return record.sys_flag & ~HOST_BITS | host_bits(record.born_host, record.store_host)


@given(
    st.lists(st.tuples(records, names, int32, QUEUE_OFFSETS), min_size=1, max_size=12),
    st.integers(0, 2**50),
)
def test_only_the_place_the_store_time_and_the_transaction_change(
    moves: list[tuple[Record, str, int, int]], at: int
) -> None:
    stored, topics, queue_ids, offsets = zip(*moves, strict=True)
    block, names = block_of(stored), [topic.encode() for topic in topics]

    again = rewritten(block, names, np.array(queue_ids), np.array(offsets), at, STORE_MS)

    assert again.at == at
    assert again.sizes.tolist() == moved_sizes(block, names).tolist()
    expected = [
        replace(
            record,
            topic=topic,
            queue_id=queue_id,
            queue_offset=offset,
            physical_offset=at + start,
            sys_flag=with_host_bits(record),
            store_ms=STORE_MS,
            prepared_offset=0,
        )
        for (record, topic, queue_id, offset), start in zip(
            moves, again.starts.tolist(), strict=True
        )
    ]
    found = list(decode_all(again.data))
    assert [replace(record, body_crc=0) for record in found] == expected
    assert [record.body_crc for record in found] == [
        record.body_crc for record in decode_all(block.data)
    ]
