"""A new record has the bytes of the message's fields, and of those that its writer computes."""

from __future__ import annotations

import random
import struct
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from roquet.protocol.records.record import Record, host_bits
from roquet.storage.new_record import NewRecord
from roquet.storage.queues.consume_queue import ConsumeQueue
from tests.protocol.strategies import records
from tests.simulation.disk import Drive


def queue(topic: str, queue_id: int) -> ConsumeQueue:
    return ConsumeQueue(Drive(random.Random(1)).mount(), Path("/s/q"), 200, topic, queue_id)


def new_record(record: Record) -> NewRecord:
    return NewRecord(
        queue(record.topic, record.queue_id), record.body, record.properties_text.encode(),
        record.flag, record.sys_flag, record.born_ms, record.born_host, record.store_host,
        record.reconsume_times, record.prepared_offset,
    )  # fmt: skip


@settings(max_examples=40)
@given(records, st.integers(0, 9))
def test_a_new_record_is_packed_as_it_is_read(record: Record, index: int) -> None:
    bits = host_bits(record.born_host, record.store_host)
    record = replace(record, sys_flag=record.sys_flag & ~0x30 | bits)
    expected = record.encode()
    made = new_record(record)
    layout = made.layout()
    assert layout.size == len(expected)
    buffer = bytearray(b"?" * (index + len(expected) + 3))
    made.pack_into(
        buffer, index, layout, record.queue_offset, record.physical_offset, record.store_ms
    )
    assert bytes(buffer) == b"?" * index + expected + b"???"


@pytest.mark.parametrize(("topic", "properties"), [("t" * 128, b""), ("T", b"x" * 32_768)])
def test_a_record_whose_parts_are_too_large_has_no_layout(topic: str, properties: bytes) -> None:
    record = NewRecord(queue(topic, 0), b"", properties, 0, 0, 1, bytes(8), bytes(8))
    with pytest.raises(ValueError, match="bytes"):
        record.layout()


@pytest.mark.parametrize(("name", "value"), [("flag", 1 << 31), ("born_ms", 1 << 63)])
def test_a_value_that_does_not_fit_its_field_is_refused(name: str, value: int) -> None:
    record = NewRecord(queue("T", 0), b"body", b"", 0, 0, 1, bytes(8), bytes(8))
    setattr(record, name, value)
    layout = record.layout()
    with pytest.raises((ValueError, struct.error)):
        record.pack_into(bytearray(layout.size), 0, layout, 0, 0, 1)
