"""A block that is read in columns says the same of each record as reading it alone."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from roquet.protocol.records import message as m
from roquet.protocol.records.block import RecordBlock, record_starts
from roquet.protocol.records.record import Record
from roquet.storage.dispatch.columns import QueuePart, Rows, read_rows
from roquet.storage.log.dispatch_request import DispatchRequest, read_dispatch_request
from roquet.storage.queues.consume_queue import ENTRY

AT = 70_000
"""Physical offset of a block's first record."""
KINDS = (0, 0, 0, m.TRANSACTION_PREPARED, m.TRANSACTION_COMMIT, m.TRANSACTION_ROLLBACK)


@dataclass(frozen=True)
class Message:
    """The fields of a record that dispatch reads."""

    properties: str = ""
    topic: str = "T"
    queue_id: int = 0
    offset: int = 0
    kind: int = 0
    store_ms: int = 1_700_000_000_000


def block_of(messages: Sequence[Message]) -> RecordBlock:
    parts: list[bytes] = []
    at = AT
    for each in messages:
        record = Record(
            each.queue_id, 0, each.offset, at, each.kind, 1, bytes(8), each.store_ms, bytes(8), 0, 0,
            b"body", each.topic, each.properties,
        )  # fmt: skip
        parts.append(record.encode())
        at += len(parts[-1])
    data = b"".join(parts)
    return RecordBlock(AT, data, *record_starts(data))


def requests_of(block: RecordBlock) -> list[DispatchRequest]:
    return [read_dispatch_request(at, data) for at, data in block.records()]


def rows_of(block: RecordBlock) -> Rows:
    rows = read_rows(block)
    assert rows is not None
    return rows


def keys_of(rows: Rows) -> list[tuple[int, str, bytes]]:
    """Number of the record, topic and key."""
    found = list[tuple[int, str, bytes]]()
    for topic, keys, numbers in rows.keys:
        size = len(keys) // len(numbers)
        found += [
            (number, topic, keys[place * size : place * size + size])
            for place, number in enumerate(numbers.tolist())
        ]
    return sorted(found)


def assert_as_alone(messages: Sequence[Message]) -> None:
    block = block_of(messages)
    rows, requests = rows_of(block), requests_of(block)
    assert [rows.topics[number] for number in rows.topic_ids] == [each.topic for each in requests]
    codes = [m.tag_code(each.properties.get(m.TAGS)) for each in requests]
    assert rows.tag_codes.tolist() == codes
    assert rows.store_ms.tolist() == [each.store_ms for each in requests]
    assert keys_of(rows) == sorted(
        (number, each.topic, key) for number, each in enumerate(requests) for key in each.keys
    )
    assert sorted((number, level) for level, of in rows.delayed for number in of.tolist()) == [
        (number, each.delay_level)
        for number, each in enumerate(requests)
        if each.delay_level is not None
    ]
    assert entries_in(rows.by_queue(block)) == expected_entries(requests)


def entries_in(parts: Iterable[QueuePart]) -> dict[tuple[str, int], list[tuple[int, int, int]]]:
    """Queue offset, physical offset and size of each entry; checks what a part says of itself."""
    found: dict[tuple[str, int], list[tuple[int, int, int]]] = {}
    for part in parts:
        name = part.topic, part.queue_id
        assert name not in found, "a queue has one part of a block"
        offsets = part.offsets.tolist()
        entries = list(ENTRY.iter_unpack(part.entries))
        assert (part.offset, part.at) == (offsets[0], entries[0][0])
        assert part.log_end == entries[-1][0] + entries[-1][1]
        first = part.offset
        assert part.is_unbroken == (offsets == list(range(first, first + len(offsets))))
        assert len(part.store_ms) == len(offsets)
        found[name] = [(n, at, size) for n, (at, size, _) in zip(offsets, entries, strict=True)]
    return found


def expected_entries(
    requests: Sequence[DispatchRequest],
) -> dict[tuple[str, int], list[tuple[int, int, int]]]:
    expected: dict[tuple[str, int], list[tuple[int, int, int]]] = {}
    for each in requests:
        if each.is_queued:
            entry = each.queue_offset, each.physical, each.size
            expected.setdefault((each.topic, each.queue_id), []).append(entry)
    return expected


words = st.sampled_from(("a", "bb", "größer", "k l", " ", "x  y", "", "=", "12"))
pairs = st.tuples(st.sampled_from((m.TAGS, m.KEYS, m.UNIQ_KEY, m.DELAY, "own", "")), words)
forms = st.lists(pairs, max_size=4)
topics = st.sampled_from(("T", "T", "U", "topic", m.SCHEDULE_TOPIC))


@settings(max_examples=30)
@given(
    st.lists(
        st.tuples(topics, forms, st.sampled_from(KINDS), st.integers(1, 15), st.booleans()),
        min_size=1,
        max_size=5,
    )
)
def test_runs_of_records_are_read_as_each_by_itself(
    runs: list[tuple[str, list[tuple[str, str]], int, int, bool]],
) -> None:
    messages = [
        Message(
            m.PROPERTY_SEPARATOR.join(
                f"{name}{m.NAME_SEPARATOR}{value}{chr(97 + number) if varies else ''}"
                for name, value in form
            ),
            topic, number % 3, number // 3, kind, 1_700_000_000_000 + number,
        )
        for topic, form, kind, count, varies in runs
        for number in range(count)
    ]  # fmt: skip
    assert_as_alone(messages)


@settings(max_examples=25)
@given(st.lists(st.text("\1\2 aTAGSKEYé", min_size=9, max_size=9), min_size=8, max_size=20))
def test_properties_of_any_form_are_read_as_each_by_itself(texts: list[str]) -> None:
    assert_as_alone([Message(text) for text in texts])


@pytest.mark.parametrize(
    ("first", "odd"),
    [
        ("KEYS\1a bc", "KEYS\1ab c"),
        ("KEYS\1abcd", "KEYS\1ab d"),
        ("KEYS\1 abc", "KEYS\1abc "),
        ("TAGS\1ab", "TAGS\1é"),
        ("TAGS\1ab", "TAGZ\1ab"),
        ("TAGS\1ab\2x\1y", "TAGS\1ab\2x\1\2"),
        ("TAGS\1abxx", "TAGS\1a\2xx"),
        ("TAGS\1a\2TAGS\1b", "TAGS\1b\2TAGS\1a"),
        ("UNIQ_KEY\1ab", "UNIQ_KEY\1b\2"),
    ],
)
def test_one_record_among_others_of_its_size_is_read_as_it_is(first: str, odd: str) -> None:
    assert len(first.encode()) == len(odd.encode())
    for place in 0, 5, 19:
        texts = [first] * 20
        texts[place] = odd
        assert_as_alone([Message(text) for text in texts])


def test_delay_levels_that_differ_are_told_apart_and_count_in_the_schedule_topic_only() -> None:
    levels = [str(number % 3) for number in range(20)]
    for topic in m.SCHEDULE_TOPIC, "T":
        assert_as_alone([Message(f"DELAY\1{level}\2TAGS\1a", topic) for level in levels])
    delayed = rows_of(block_of([Message("DELAY\x013", m.SCHEDULE_TOPIC)] * 20)).delayed
    assert [(level, numbers.tolist()) for level, numbers in delayed] == [("3", list(range(20)))]


def test_more_forms_than_are_read_together_are_read_all_the_same() -> None:
    names = [f"n{number:02d}" for number in range(12)]
    assert_as_alone([Message(f"{name}\1a\2KEYS\1k{n}") for n in range(8) for name in names])


def test_a_rolled_back_record_has_no_key_and_no_entry_among_others() -> None:
    kinds = [0, m.TRANSACTION_ROLLBACK] * 10
    messages = [Message("KEYS\1k", kind=kind, offset=n) for n, kind in enumerate(kinds)]
    rows = rows_of(block_of(messages))
    assert [number for number, _, _ in keys_of(rows)] == list(range(0, 20, 2))
    assert_as_alone(messages)


@pytest.mark.parametrize(
    ("offsets", "is_unbroken"),
    [([5, 6, 7], True), ([5, 7, 8], False), ([5, 5, 6], False), ([7, 6, 5], False), ([5], True)],
)
def test_a_part_is_unbroken_if_its_queue_offsets_are_consecutive(
    offsets: list[int], is_unbroken: bool
) -> None:
    other = Message(topic="U", offset=99)
    messages = [each for offset in offsets for each in (Message(offset=offset), other)]
    block = block_of(messages)
    part, _ = rows_of(block).by_queue(block)
    assert (part.is_unbroken, part.offsets.tolist()) == (is_unbroken, offsets)


def test_a_block_without_a_queued_record_has_no_part() -> None:
    block = block_of([Message(kind=m.TRANSACTION_PREPARED)] * 9)
    assert list(rows_of(block).by_queue(block)) == []


def test_a_block_with_a_record_whose_sizes_do_not_add_up_is_not_read() -> None:
    block = block_of([Message("TAGS\1a")] * 9)
    data = bytearray(block.data)
    data[int(block.ends[4]) - len("TAGS\1a") - 1] += 1
    assert read_rows(RecordBlock(AT, bytes(data), block.starts, len(data))) is None
