"""The bytes of a stored message."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from roquet.errors import CorruptRecord
from roquet.protocol.records import layout
from roquet.protocol.records.layout import blank, checksum
from roquet.protocol.records.message import BORN_HOST_V6, STORE_HOST_V6
from roquet.protocol.records.record import (
    Record,
    check,
    decode,
    decode_all,
    host_bits,
    host_bytes,
    host_text,
)
from tests.protocol.examples import RECORD, STORED
from tests.protocol.strategies import records


def test_apaches_record_is_read_and_written_byte_for_byte() -> None:
    assert decode(STORED, verify=True) == RECORD
    assert RECORD.encode() == STORED
    assert RECORD.properties == {"TAGS": "TagA"}
    assert RECORD.offset_message_id == "0A00000100002A9F00000000000003E8"


@pytest.mark.parametrize(
    ("body", "crc"), [(b"hi", 1486039724), (b"123456789", 1274296614), (b"", 0)]
)
def test_the_checksum_has_no_top_bit(body: bytes, crc: int) -> None:
    assert checksum(body) == crc


@pytest.mark.parametrize(
    ("born", "store", "bits", "size"),
    [
        ("10.0.0.9", "10.0.0.1", 0, 103),
        ("::1", "10.0.0.1", BORN_HOST_V6, 115),
        ("10.0.0.9", "::1", STORE_HOST_V6, 115),
        ("fe80::1%eth0", "::1", BORN_HOST_V6 | STORE_HOST_V6, 127),
        ("::ffff:10.0.0.9", "10.0.0.1", 0, 103),
    ],
)
def test_the_hosts_decide_size_and_flag_bits(born: str, store: str, bits: int, size: int) -> None:
    born_host, store_host = host_bytes(born, 50000), host_bytes(store, 10911)
    data = replace(RECORD, born_host=born_host, store_host=store_host, sys_flag=0x33).encode()

    assert host_bits(born_host, store_host) == bits
    assert decode(data).sys_flag == bits | 0x3
    assert len(data) == size


@pytest.mark.parametrize(("host", "text"), [("10.0.0.9", "10.0.0.9:50000"), ("::1", "[::1]:50000")])
def test_a_stored_host_is_shown_as_an_address(host: str, text: str) -> None:
    assert host_text(host_bytes(host, 50000)) == text


@given(records)
def test_what_is_written_is_read_back(written: Record) -> None:
    data = written.encode()
    read = decode(data, verify=True)

    bits = BORN_HOST_V6 | STORE_HOST_V6
    assert read.sys_flag & ~bits == written.sys_flag & ~bits
    assert read.sys_flag & bits == host_bits(written.born_host, written.store_host)
    for name in set(Record.__slots__) - {"sys_flag", "body_crc"}:
        assert getattr(read, name) == getattr(written, name)
    assert read.encode() == data


@given(st.lists(records, max_size=4))
def test_a_pull_answer_is_its_records_one_after_the_other(written: list[Record]) -> None:
    data = b"".join(each.encode() for each in written)

    assert [each.encode() for each in decode_all(memoryview(data))] == [
        each.encode() for each in written
    ]


def test_a_record_is_found_inside_other_bytes() -> None:
    assert decode(b"???" + STORED + b"???", 3) == RECORD
    assert decode(memoryview(STORED)) == RECORD


def test_a_record_of_5x_with_a_long_topic_length_is_read() -> None:
    data = bytearray(STORED)
    data[4:8] = layout.MAGIC_V2.to_bytes(4, "big")
    topic_size_at = 88 + 2
    data[topic_size_at:topic_size_at] = b"\x00"
    data[0:4] = len(data).to_bytes(4, "big")

    assert decode(bytes(data)) == RECORD


def test_a_body_that_does_not_fit_its_checksum_is_seen_when_asked_for() -> None:
    data = STORED.replace(b"hi", b"ho")

    assert decode(data).body == b"ho"
    with pytest.raises(CorruptRecord, match="stored checksum"):
        decode(data, verify=True)


def damaged(at: int, value: bytes) -> bytes:
    return STORED[:at] + value + STORED[at + len(value) :]


@pytest.mark.parametrize(
    "data",
    [
        b"",
        STORED[:90],
        STORED[:-1],
        damaged(4, blank(0)[4:]),
        damaged(0, bytes(4)),
        damaged(0, b"\xff\xff\xff\xff"),
        damaged(0, (102).to_bytes(4, "big")),
        damaged(36, b"\x00\x00\x00\x30"),
        damaged(84, b"\xff\xff\xff\xff"),
        damaged(84, b"\x00\x00\x10\x00"),
        damaged(90, b"\x7f"),
        damaged(90, b"\xff"),
        damaged(91, b"\xff"),
        damaged(92, b"\xff\xff"),
        damaged(92, b"\x00\x08"),
        damaged(94, b"\xff"),
    ],
)
def test_anything_else_is_no_record(data: bytes) -> None:
    with pytest.raises(CorruptRecord) as caught:
        decode(data)

    assert caught.value.at == 0


def test_the_place_of_a_corrupt_record_is_told() -> None:
    with pytest.raises(CorruptRecord, match="at physical offset 103"):
        list(decode_all(STORED + bytes(100)))


@given(st.binary(max_size=300))
def test_any_bytes_are_a_record_or_corrupt(data: bytes) -> None:
    try:
        decode(data)
    except CorruptRecord as error:
        assert error.at == 0  # noqa: PT017 - both outcomes are right


@given(st.data())
def test_any_damage_leaves_a_record_or_a_corrupt_one(data: st.DataObject) -> None:
    damaged = bytearray(STORED)
    for at in data.draw(st.lists(st.integers(0, len(STORED) - 1), max_size=4)):
        damaged[at] = data.draw(st.integers(0, 255))
    try:
        list(decode_all(bytes(damaged)))
    except CorruptRecord as error:
        assert error.at < len(damaged)  # noqa: PT017 - both outcomes are right


def one_by_one(data: bytes) -> list[Record] | tuple[str, int]:
    """What `decode` makes of each record; of a damaged one the error and its place."""
    found: list[Record] = []
    at = 0
    try:
        while at < len(data):
            found.append(decode(data, at))
            at += layout.size_and_magic(data, at)[0]
    except CorruptRecord as error:
        return str(error), error.at
    return found


def all_at_once(data: bytes) -> list[Record] | tuple[str, int]:
    try:
        return list(decode_all(data))
    except CorruptRecord as error:
        return str(error), error.at


@given(records, st.integers(3, 6), st.data())
def test_records_of_the_same_size_are_those_that_are_decoded_one_by_one(
    first: Record, count: int, data: st.DataObject
) -> None:
    """They are unpacked in one step, be they whole, damaged, of 5.x or with other hosts."""
    stored = bytearray(first.encode() * count)
    size = len(stored) // count
    if data.draw(st.booleans(), "of 5.x"):
        for at in range(0, len(stored), size):
            stored[at + 4 : at + 8] = layout.MAGIC_V2.to_bytes(4, "big")
    for at in data.draw(st.lists(st.integers(0, len(stored) - 1), max_size=4), "places"):
        stored[at] = data.draw(st.integers(0, 255), "byte")
    del stored[len(stored) - data.draw(st.integers(0, 2), "bytes missing") :]

    assert all_at_once(bytes(stored)) == one_by_one(bytes(stored))


@pytest.mark.parametrize(
    ("magic", "topic_size", "properties_size"),
    [(layout.MAGIC, 200, 0), (layout.MAGIC, 1, 40_000), (layout.MAGIC_V2, 300, 10)],
)
def test_records_with_larger_parts_than_4x_writes_are_decoded(
    magic: int, topic_size: int, properties_size: int
) -> None:
    topic_length = topic_size.to_bytes(1 if magic == layout.MAGIC else 2, "big")
    parts = b"hi" + topic_length + b"t" * topic_size
    parts += properties_size.to_bytes(2, "big") + b"p" * properties_size
    size = layout.offset_of("body") + len(parts)
    head = size.to_bytes(4, "big") + magic.to_bytes(4, "big")
    data = head + STORED[8 : layout.offset_of("body")] + parts

    found = all_at_once(data * 4)

    assert found == one_by_one(data * 4)
    assert len(found) == 4
    assert isinstance(found[3], Record)
    assert (found[3].topic, found[3].body) == ("t" * topic_size, b"hi")


@pytest.mark.parametrize(
    ("at", "byte"),
    [
        (0, 1),  # the size
        (7, layout.MAGIC_V2 & 0xFF),
        (39, BORN_HOST_V6),
        (87, 3),  # the body's size
        (90, 2),  # the topic's
        (93, 8),  # the properties'
        (91, 0xFF),  # no UTF-8
        (94, 0xFF),
    ],
)
def test_a_record_that_is_not_like_those_before_is_decoded_by_itself(at: int, byte: int) -> None:
    stored = bytearray(STORED * 4)
    stored[2 * len(STORED) + at] = byte

    assert all_at_once(bytes(stored)) == one_by_one(bytes(stored))
    assert all_at_once(bytes(stored)) != all_at_once(STORED * 4)


def test_a_record_of_which_only_the_beginning_was_written_is_never_valid() -> None:
    for written in range(len(STORED)):
        with pytest.raises(CorruptRecord):
            check(
                memoryview(STORED[:written].ljust(len(STORED), b"\0")),
                RECORD.physical_offset,
                verify=True,
            )
    check(memoryview(STORED), RECORD.physical_offset, verify=True)


def test_a_blank_names_the_rest_of_a_file() -> None:
    assert layout.size_and_magic(blank(4096), 0) == (4096, layout.BLANK_MAGIC)
    assert len(blank(4096)) == layout.BLANK_SIZE
