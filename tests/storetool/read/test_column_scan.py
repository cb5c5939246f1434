"""Records read in columns are what the broker's own code reads one by one."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from roquet.protocol.records import message as m
from roquet.protocol.records.block import RecordBlock
from roquet.protocol.records.record import Record
from roquet.storage.index.layout import key_hash
from roquet.storage.log.dispatch_request import read_dispatch_request
from roquet.storetool.read.column_scan import columns_of
from roquet.storetool.read.log_scanner import error_of
from tests.storetool.stores import V4, V6

WORDS = st.text(st.sampled_from("ab \x01\x02é中\U0001f600"), max_size=4)
NAMES = st.sampled_from(["TAGS", "KEYS", "UNIQ_KEY", "DELAY", "other", ""])
PAIRS = st.lists(st.tuples(NAMES, WORDS), max_size=4)
MESSAGES = st.tuples(
    st.binary(max_size=3),
    st.sampled_from(["T", "topic-two", m.SCHEDULE_TOPIC, "thème"]),
    PAIRS,
    st.sampled_from([0, 1, m.TRANSACTION_PREPARED, m.TRANSACTION_COMMIT, m.TRANSACTION_ROLLBACK]),
    st.sampled_from([V4, V4, V4, V6]),
)


def encoded(
    messages: list[tuple[bytes, str, list[tuple[str, str]], int, bytes]], base: int
) -> tuple[bytes, list[int]]:
    data, starts = bytearray(), []
    for number, (body, topic, pairs, sys_flag, host) in enumerate(messages):
        starts.append(len(data))
        text = "\x02".join(f"{name}\x01{value}" for name, value in pairs)
        at = base + len(data)
        values = (
            number % 3,
            0,
            number,
            at,
            sys_flag,
            1,
            host,
            1000 + number,
            V4,
            0,
            0,
        )
        data += Record(*values, body, topic, text).encode()
    return bytes(data), starts


@given(
    st.lists(MESSAGES, min_size=1, max_size=6), st.integers(1, 12), st.sampled_from([0, 1 << 40])
)
def test_columns_say_what_the_records_say(
    messages: list[tuple[bytes, str, list[tuple[str, str]], int, bytes]], times: int, base: int
) -> None:
    data, starts = encoded(messages * times, base)

    rows = columns_of(RecordBlock(base, data, starts, len(data)), {})

    assert rows.bad_bodies == []
    assert rows.end == base + len(data)
    keys = sorted(zip(rows.key_physical.tolist(), rows.key_hash.tolist(), strict=True))
    expected: list[tuple[int, int]] = []
    for row, (start, end) in enumerate(zip(starts, [*starts[1:], len(data)], strict=True)):
        request = read_dispatch_request(base + start, memoryview(data)[start:end])
        assert rows.topics[int(rows.topic[row])] == request.topic
        assert (rows.physical[row], rows.size[row], rows.queue_id[row]) == (
            base + start,
            end - start,
            request.queue_id,
        )
        assert (rows.queue_offset[row], rows.store_ms[row]) == (
            request.queue_offset,
            request.store_ms,
        )
        assert rows.tag_code[row] == m.tag_code(request.properties.get(m.TAGS))
        assert rows.is_queued[row] == request.is_queued
        assert rows.is_delayed[row] == (
            request.topic == m.SCHEDULE_TOPIC and m.DELAY in request.properties
        )
        expected += [(base + start, key_hash(request.topic, key.decode())) for key in request.keys]
    assert keys == sorted(expected)


@given(st.lists(MESSAGES, min_size=1, max_size=4), st.integers(0, 2000), st.integers(1, 255))
def test_a_changed_byte_ends_the_rows_or_leaves_valid_ones(
    messages: list[tuple[bytes, str, list[tuple[str, str]], int, bytes]], place: int, bits: int
) -> None:
    data, starts = encoded(messages * 8, 0)
    hit = max(row for row, start in enumerate(starts) if start <= place % len(data))
    changed = bytearray(data)
    changed[max(place % len(data), starts[hit] + 8)] ^= (
        bits  # sizes and magics were looked at before
    )

    block = RecordBlock(0, bytes(changed), starts, len(data))
    count = block.sound_count(verify=False)
    rows = columns_of(block.first(count), {})

    assert len(rows) == count
    assert count in (hit, len(starts))
    assert count == len(starts) or error_of(block, count).at == starts[count]
    assert rows.bad_bodies in ([], [hit])
