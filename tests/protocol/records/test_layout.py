"""One table says where the fields of a record are; one rule says whether its parts add up."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import fields, replace
from pathlib import Path
from struct import Struct, error

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from roquet.errors import CorruptRecord
from roquet.protocol.records import message as m
from roquet.protocol.records.block import RecordBlock, find_layouts, record_starts, scatter_field
from roquet.protocol.records.layout import (
    BLANK_MAGIC,
    FIELDS,
    HOST_BITS,
    MAGIC,
    MAGIC_V2,
    NUMPY_TYPES,
    OFFSETS,
    RECORD_MAGICS,
    SIZE_MIN,
    fields_struct,
    find_heads,
    find_parts,
    fixed_fields,
    is_record_head,
    offset_of,
    pack_into,
    record_struct,
)
from roquet.protocol.records.message import BORN_HOST_V6, STORE_HOST_V6
from roquet.protocol.records.record import Record, decode
from tests.protocol.examples import RECORD, STORED
from tests.protocol.strategies import damaged_records, records

ALL_HOSTS = (0, BORN_HOST_V6, STORE_HOST_V6, HOST_BITS)
GOLDEN = sorted(
    path
    for path in (Path(__file__).parents[2] / "golden" / "records").glob("*.bin")
    if path.stem not in ("blank", "batch-element")
)
PAGE = Path(__file__).parents[3] / "docs" / "storage" / "commit-log.md"


def is_accepted(data: bytes) -> bool:
    """Whether `find_parts` accepts one record that has all bytes of `data`."""
    magic, sys_flag = fields_struct("magic", "sys_flag").unpack_from(data)
    try:
        find_parts(data, 0, len(data), magic, sys_flag, 0)
    except CorruptRecord:
        return False
    return True


def test_the_page_about_the_commit_log_has_the_same_table() -> None:
    rows = re.findall(r"^\| (\d+) \| (8 or 20|\d) \| (\w+)", PAGE.read_text(), re.MULTILINE)
    sizes = {"I": "4", "i": "4", "q": "8", "8s": "8 or 20"}

    assert [(int(offset), size) for offset, size, _ in rows[: len(FIELDS)]] == [
        (offset_of(name), sizes[code]) for name, code in FIELDS.items()
    ]


@pytest.mark.parametrize("path", GOLDEN, ids=lambda path: path.stem)
def test_apaches_records_have_the_fields_of_the_table(path: Path) -> None:
    data = path.read_bytes()
    (sys_flag,) = fields_struct("sys_flag").unpack_from(data)
    record = decode(data, verify=True)

    values = dict(zip(FIELDS, fixed_fields(sys_flag).unpack_from(data), strict=True))

    assert values == {
        "size": len(data),
        "magic": MAGIC,
        "crc": record.body_crc,
        "body_size": len(record.body),
        **{name: getattr(record, name) for name in FIELDS if hasattr(record, name)},
    }


def test_a_record_has_the_fields_in_the_order_of_the_table() -> None:
    names = [field.name for field in fields(Record)]

    assert names[: names.index("body")] == [
        name for name in FIELDS if name not in ("size", "magic", "crc", "body_size")
    ]


@pytest.mark.parametrize("sys_flag", ALL_HOSTS)
def test_each_ipv6_host_moves_what_follows_it(sys_flag: int) -> None:
    more = {
        "store_ms": bool(sys_flag & BORN_HOST_V6),
        "reconsume_times": bool(sys_flag & BORN_HOST_V6) + bool(sys_flag & STORE_HOST_V6),
    }
    for name, hosts in more.items():
        assert offset_of(name, sys_flag) == offset_of(name) + 12 * hosts
    assert offset_of("body", sys_flag) == fixed_fields(sys_flag).size
    assert fixed_fields(sys_flag).size + 3 <= record_struct(sys_flag, 0, 0, 0).size
    assert all(offset_of(name, sys_flag) == at for name, at in OFFSETS.items())


def test_some_fields_are_read_without_the_others() -> None:
    size, queue_offset = fields_struct("size", "queue_offset").unpack_from(STORED)

    assert (size, queue_offset) == (len(STORED), RECORD.queue_offset)
    assert fields_struct("size", "queue_offset").size == 28


@given(records)
def test_what_is_packed_into_a_buffer_is_the_encoded_record(record: Record) -> None:
    data = record.encode()
    kept = decode(data)
    topic, properties = kept.topic.encode(), kept.properties_text.encode()
    struct = record_struct(kept.sys_flag, len(kept.body), len(topic), len(properties))
    buffer = bytearray(b"\xff" * (struct.size + 20))

    values = [getattr(kept, name) for name in FIELDS if hasattr(kept, name)]
    pack_into(struct, buffer, 10, *(*values, kept.body, topic, properties))

    assert bytes(buffer) == b"\xff" * 10 + data + b"\xff" * 10


@pytest.mark.parametrize(
    ("values", "properties"),
    [({"queue_id": 2**31}, b""), ({"store_ms": 2**63}, b""), ({}, b"TAGS\x01A\0")],
)
def test_a_value_that_does_not_fit_its_field_is_refused(
    values: dict[str, int], properties: bytes
) -> None:
    given = [values.get(name, getattr(RECORD, name)) for name in FIELDS if hasattr(RECORD, name)]
    struct = record_struct(0, 0, 1, len(properties))

    with pytest.raises((ValueError, error)):
        pack_into(struct, bytearray(struct.size), 0, *(*given, b"", b"t", properties))


@pytest.mark.parametrize(("topic", "properties"), [(128, 0), (0, 32_768)])
def test_a_record_with_too_large_parts_cannot_be_packed(topic: int, properties: int) -> None:
    with pytest.raises(ValueError, match=rf"a topic of {topic} and properties of {properties}"):
        record_struct(0, 0, topic, properties)


@given(st.lists(damaged_records, min_size=1, max_size=5))
def test_one_record_and_many_are_judged_alike(stored: Sequence[bytes]) -> None:
    data = b"".join(stored)
    ends = np.cumsum([len(each) for each in stored])
    starts = ends - [len(each) for each in stored]

    layouts = find_layouts(data, starts, ends)

    assert layouts.sound.tolist() == [is_accepted(each) for each in stored]
    head = fields_struct("magic", "sys_flag")
    for row in np.flatnonzero(layouts.sound).tolist():
        start, size = int(starts[row]), len(stored[row])
        magic, sys_flag = head.unpack_from(data, start)
        assert find_parts(data, start, size, magic, sys_flag, 0) == (
            layouts.body_at[row],
            layouts.body_end[row],
            layouts.topic_at[row],
            layouts.properties_at[row],
        )
        assert layouts.topic_end[row] == layouts.properties_at[row] - 2


@given(damaged_records)
def test_what_is_decoded_has_parts_that_add_up(data: bytes) -> None:
    try:
        record = decode(data)
    except CorruptRecord:
        magic = int.from_bytes(data[4:8], "big")
        assert magic not in (MAGIC, MAGIC_V2) or not is_accepted(data) or not is_text(data)
    else:
        assert is_accepted(data)
        assert len(record.body) == int.from_bytes(
            data[fixed_fields(record.sys_flag).size - 4 : fixed_fields(record.sys_flag).size], "big"
        )


def is_text(data: bytes) -> bool:
    """Whether topic and properties of a record whose parts add up are UTF-8."""
    magic, sys_flag = fields_struct("magic", "sys_flag").unpack_from(data)
    _, _, topic_at, properties_at = find_parts(data, 0, len(data), magic, sys_flag, 0)
    try:
        (data[topic_at : properties_at - 2].decode(), data[properties_at:].decode())
    except UnicodeDecodeError:
        return False
    return True


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (STORED[: SIZE_MIN + 1], "does not fit into its 92 bytes"),
        (STORED[:-1], "its parts end after 103 bytes, it has 102 bytes"),
        (STORED + b"\0", "its parts end after 103 bytes, it has 104 bytes"),
        (STORED[:84] + b"\xff\xff\xff\xff" + STORED[88:], "a body of -1 bytes"),
        (STORED[:90] + b"\x7f" + STORED[91:], "a topic of 127 bytes"),
        (STORED[:36] + b"\0\0\0\x30" + STORED[40:100], "100 bytes is too small for its hosts"),
    ],
)
def test_the_reason_says_which_part_does_not_fit(data: bytes, reason: str) -> None:
    magic, sys_flag = fields_struct("magic", "sys_flag").unpack_from(data)

    with pytest.raises(CorruptRecord, match=reason) as caught:
        find_parts(data, 0, len(data), magic, sys_flag, 4711)

    assert caught.value.at == 4711


@given(st.lists(records, min_size=1, max_size=5))
def test_columns_of_fields_have_the_values_of_each_record(stored: list[Record]) -> None:
    data = b"".join(each.encode() for each in stored)
    block = RecordBlock(0, data, *record_starts(data))
    each = [
        dict(
            zip(FIELDS, fixed_fields(decode(data, at).sys_flag).unpack_from(data, at), strict=True)
        )
        for at in block.starts.tolist()
    ]

    for name in NUMPY_TYPES:
        assert block.field(name).tolist() == [values[name] for values in each]


@given(st.lists(records, min_size=1, max_size=5), st.integers(0, 2**31 - 1))
def test_a_column_is_written_where_it_is_read(stored: list[Record], value: int) -> None:
    data = b"".join(each.encode() for each in stored)
    block = RecordBlock(0, data, *record_starts(data))
    changed = bytearray(data)

    for name in ("queue_id", "store_ms", "prepared_offset"):
        scatter_field(changed, name, block.starts, block.hosts, value)

    assert [decode(bytes(changed), at) for at in block.starts.tolist()] == [
        replace(
            decode(data, at),
            queue_id=value,
            store_ms=value,
            prepared_offset=value,
        )
        for at in block.starts.tolist()
    ]


@given(st.integers(-(2**31), 2**31 - 1))
def test_prepared_and_rolled_back_records_get_no_queue_entry(sys_flag: int) -> None:
    kind = sys_flag & m.TRANSACTION_BITS

    assert m.is_queued(sys_flag) == (kind in (0, m.TRANSACTION_COMMIT))
    assert m.is_queued(np.array([sys_flag])).tolist() == [m.is_queued(sys_flag)]


def test_the_struct_of_a_record_is_that_of_its_fields_and_parts() -> None:
    assert record_struct(0, 5, 6, 7).format == Struct(">IIIiiqqiq8sq8siqi5sB6sH7s").format


@given(
    st.lists(st.sampled_from([b"", b"\xda", b"\xda\xa3 \xa7", b"\xcb\xd41\x94", b"?"]), max_size=9)
)
def test_heads_are_found_by_their_magic(pieces: list[bytes]) -> None:
    data = b"".join(pieces)
    magics = [magic.to_bytes(4, "big") for magic in (*RECORD_MAGICS, BLANK_MAGIC)]

    assert find_heads(data) == [at - 4 for at in range(len(data)) if data[at : at + 4] in magics]


@pytest.mark.parametrize(
    ("size", "magic", "room", "is_head"),
    [
        (SIZE_MIN, MAGIC, SIZE_MIN, True),
        (SIZE_MIN, MAGIC_V2, SIZE_MIN, True),
        (SIZE_MIN - 1, MAGIC, SIZE_MIN, False),
        (SIZE_MIN + 1, MAGIC, SIZE_MIN, False),
        (SIZE_MIN, BLANK_MAGIC, SIZE_MIN, False),
    ],
)
def test_a_record_fits_into_its_room(size: int, magic: int, room: int, is_head: bool) -> None:
    assert is_record_head(size, magic, room) == is_head
