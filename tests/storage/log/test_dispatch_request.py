"""What dispatch reads of a record is what decoding the record gives."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from roquet.errors import CorruptRecord
from roquet.protocol.records import message as m
from roquet.protocol.records.record import Record, decode, properties_of
from roquet.storage.log.dispatch_request import (
    has_keys,
    keys_by_size,
    keys_of,
    read_dispatch_request,
)
from tests.protocol.strategies import damaged_records, records


@given(records)
def test_the_fields_of_a_request_are_those_of_the_record(record: Record) -> None:
    data = record.encode()
    read = decode(data)

    request = read_dispatch_request(4711, memoryview(data))

    assert (request.topic, request.queue_id, request.queue_offset) == (
        read.topic,
        read.queue_id,
        read.queue_offset,
    )
    assert (request.physical, request.size) == (4711, len(data))
    assert (request.sys_flag, request.store_ms) == (read.sys_flag, read.store_ms)
    assert request.properties == read.properties == properties_of(data)
    assert request.is_queued == m.is_queued(read.sys_flag)


@pytest.mark.parametrize(
    ("kind", "keys"),
    [
        (0, [b"U"]),
        (m.TRANSACTION_PREPARED, [b"U"]),
        (m.TRANSACTION_COMMIT, [b"U"]),
        (m.TRANSACTION_ROLLBACK, []),
    ],
)
def test_only_a_rolled_back_record_has_no_keys(kind: int, keys: list[bytes]) -> None:
    fields = (0, 0, 0, 0, kind, 1, bytes(8), 1, bytes(8), 0, 0, b"body", "T", "UNIQ_KEY\1U\2")
    request = read_dispatch_request(0, memoryview(Record(*fields).encode()))

    assert request.keys == keys
    assert has_keys(np.array([kind])).tolist() == [bool(keys)]


@given(damaged_records)
def test_a_record_whose_parts_do_not_add_up_has_no_request_and_no_properties(data: bytes) -> None:
    properties = properties_of(data)

    if properties is None:
        with pytest.raises(CorruptRecord) as caught:
            read_dispatch_request(4711, memoryview(data))
        assert caught.value.at == 4711
    else:
        assert read_dispatch_request(0, memoryview(data)).properties == properties


@pytest.mark.parametrize(
    ("properties", "keys"),
    [
        ({}, []),
        ({m.UNIQ_KEY: "U", m.KEYS: "a  b"}, [b"U", b"a", b"b"]),
        ({m.KEYS: " "}, []),
    ],
)
def test_keys_are_the_unique_key_and_the_words_of_keys(
    properties: dict[str, str], keys: list[bytes]
) -> None:
    assert keys_of(properties) == keys


@given(st.lists(st.binary(min_size=1, max_size=4)))
def test_keys_of_one_size_are_end_to_end_in_their_order(keys: list[bytes]) -> None:
    by_size = keys_by_size(keys)

    assert by_size == {
        size: b"".join(key for key in keys if len(key) == size) for size in map(len, keys)
    }
