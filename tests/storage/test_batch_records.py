"""A batch's records have the bytes that each would have by itself."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from roquet.protocol.records.record import Record, decode, host_bits
from roquet.storage.batch_records import BatchItem, BatchRecords
from tests.protocol.strategies import hosts, int32, int64, names, records

STORE_MS = 1_700_000_000_123


@given(
    st.lists(records, min_size=1, max_size=8), names, int32, int64, hosts, hosts, st.integers(0, 99)
)
def test_records_of_a_batch_are_encoded_as_single_ones(
    messages: list[Record],
    topic: str,
    queue_id: int,
    born_ms: int,
    born_host: bytes,
    store_host: bytes,
    times: int,
) -> None:
    sys_flag = host_bits(born_host, store_host)
    batch = BatchRecords(topic.encode(), queue_id, sys_flag, born_ms, born_host, store_host, times)
    for each in messages:
        batch.add(BatchItem(each.flag, each.body, each.properties_text.encode(), (), 0))

    physical = batch.place(7, 5000, STORE_MS)

    alone = [
        replace(
            each,
            topic=topic,
            queue_id=queue_id,
            queue_offset=7 + number,
            physical_offset=at,
            sys_flag=sys_flag,
            born_ms=born_ms,
            born_host=born_host,
            store_ms=STORE_MS,
            store_host=store_host,
            reconsume_times=times,
            prepared_offset=0,
        ).encode()
        for number, (each, at) in enumerate(zip(messages, physical.tolist(), strict=True))
    ]
    assert bytes(batch.data) == b"".join(alone)
    assert batch.sizes.tolist() == [len(each) for each in alone]
    assert decode(bytes(batch.data), verify=True).physical_offset == 5000


@pytest.mark.parametrize(
    ("item", "reason"),
    [
        (BatchItem(2**31, b"x", b"", (), 0), "does not fit its field"),
        (BatchItem(0, b"x", b"", (), 2**63), "does not fit its field"),
        (BatchItem(0, b"x", bytes(32_768), (), 0), "at most 32767|32767"),
        (BatchItem(0, b"x", b"TAGS\x01A\0", (), 0), "end with a zero byte"),
    ],
)
def test_a_value_that_does_not_fit_is_refused(item: BatchItem, reason: str) -> None:
    batch = BatchRecords(b"t", 0, 0, 0, bytes(8), bytes(8))

    with pytest.raises(ValueError, match=reason):
        batch.add(item)
