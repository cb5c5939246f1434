"""Records are found in bytes, each once and in order, in whichever way is fastest."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from roquet.errors import CorruptRecord
from roquet.protocol.records.block import RecordBlock
from roquet.protocol.records.record import Record
from roquet.spark._arrow.records import LARGE, Records
from tests.protocol.examples import RECORD, STORED
from tests.spark._arrow.examples import A_WHILE, RECORDS


@A_WHILE
@given(st.lists(RECORDS, max_size=6), st.integers(0, 20), st.integers(0, 20))
def test_a_range_keeps_queue_offsets_from_its_start_up_to_its_end(
    records: list[Record], start: int, end: int
) -> None:
    walked = Records.walk(b"".join(record.encode() for record in records))
    expected = [record.queue_offset for record in records if start <= record.queue_offset < end]
    assert walked.between(start, end).queue_offsets.tolist() == expected


@pytest.mark.parametrize("cut", [1, 50, len(STORED) - 1])
def test_an_answer_cut_short_is_refused(cut: int) -> None:
    with pytest.raises(CorruptRecord) as error:
        Records.walk(STORED + STORED[:cut])
    assert error.value.at == len(STORED)


@pytest.mark.parametrize("body", [b"x" * 100, b"\xda\xa3\x20\xa7" * 25, b"\xda" * 100])
def test_records_in_much_data_are_found_whatever_their_bodies_hold(body: bytes) -> None:
    stored = [
        replace(RECORD, body=body[: index % 100], queue_offset=index).encode()
        for index in range(300)
    ]
    walked = Records.walk(b"".join(stored))
    assert len(walked.data) > LARGE
    assert walked.queue_offsets.tolist() == list(range(300))
    assert walked.starts.tolist() == np.cumsum([0, *map(len, stored[:-1])]).tolist()


def test_much_data_with_a_torn_end_is_refused() -> None:
    stored = replace(RECORD, body=b"x" * 100).encode() * 300
    with pytest.raises(CorruptRecord):
        Records.walk(stored[:-1])


@A_WHILE
@given(st.lists(st.lists(RECORDS, min_size=1, max_size=6), max_size=6), st.booleans())
def test_records_of_answers_are_those_of_their_bytes(
    answers: list[list[Record]], few_expected: bool
) -> None:
    bodies = [b"".join(record.encode() for record in records) for records in answers]
    expected = Records.walk(b"".join(bodies))

    found = Records.of_answers(bodies, 1 if few_expected else 10_000)

    assert found.data == expected.data
    assert found.starts.tolist() == expected.starts.tolist()


@pytest.mark.parametrize(
    "last",
    [
        pytest.param(STORED[:-1], id="torn"),
        pytest.param(STORED[:20], id="shorter than any record"),
        pytest.param(STORED[:4] + b"\0\0\0\0" + STORED[8:], id="of unknown magic"),
        pytest.param(b"\0\0\0\x01" + STORED[4:], id="of a size that none has"),
        pytest.param(b"\xff\xff\xff\xff" + STORED[4:], id="of a negative size"),
    ],
)
def test_answers_one_of_which_ends_in_something_else_are_refused(last: bytes) -> None:
    with pytest.raises(CorruptRecord) as error:
        Records.of_answers([STORED * 2, STORED + last], 4)
    assert error.value.at == 3 * len(STORED)


def test_of_no_answers_there_are_no_records() -> None:
    assert len(Records.of_answers([], 0)) == 0


@A_WHILE
@given(st.lists(st.lists(RECORDS, max_size=4), max_size=4))
def test_records_of_several_answers_are_joined_in_their_order(answers: list[list[Record]]) -> None:
    bodies = [b"".join(record.encode() for record in records) for records in answers]

    joined = Records.joined(map(Records.walk, bodies))

    whole = Records.walk(b"".join(bodies))
    assert joined.data == whole.data
    assert joined.starts.tolist() == whole.starts.tolist()


def test_records_are_kept_by_a_mask_or_by_indices() -> None:
    records = Records.walk(
        b"".join(replace(RECORD, queue_offset=offset).encode() for offset in range(5))
    )

    by_mask = records.where(np.array([False, True, False, True, False]))
    by_index = records.where(np.array([1, 3]))

    assert by_mask.queue_offsets.tolist() == by_index.queue_offsets.tolist() == [1, 3]
    assert by_mask.data == records.data
    assert len(records.where(np.empty(0, np.int64))) == 0


def test_records_of_a_block_bring_the_layouts_that_the_block_has() -> None:
    data = b"".join(
        replace(RECORD, queue_offset=offset, body=b"x" * offset).encode() for offset in range(4)
    )
    starts = Records.walk(data).starts
    block = RecordBlock(0, data, starts, len(data))

    some = Records.of_block(block, np.array([1, 3]))

    assert some.queue_offsets.tolist() == [1, 3]
    assert some.shape is not None
    assert some.shape.topic_at.tolist() == block.shape.topic_at[[1, 3]].tolist()


def test_where_records_cease_is_told_by_the_byte() -> None:
    large = replace(RECORD, body=b"x" * LARGE).encode()
    with pytest.raises(CorruptRecord, match="the last 7 bytes begin with no complete") as error:
        Records.walk(large + b"garbage")
    assert error.value.at == len(large)


def test_nothing_has_no_records() -> None:
    assert len(Records.walk(b"")) == len(Records.joined([])) == 0
