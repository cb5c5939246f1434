"""Columns decoded in bulk say what a decoder of one record at a time says."""

from __future__ import annotations

import struct
import subprocess
import sys
import tracemalloc
import zlib
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from roquet.errors import CorruptRecord
from roquet.protocol.records.layout import MAGIC_V2
from roquet.protocol.records.message import (
    COMPRESSED,
    COMPRESSION_LZ4,
    COMPRESSION_ZLIB,
    COMPRESSION_ZSTD,
)
from roquet.protocol.records.record import Record, decode_all, host_text
from roquet.spark._arrow import bodies, columns
from roquet.spark._arrow.columns import BadBody, decode
from roquet.spark._arrow.records import Records
from roquet.spark._arrow.schema import ARROW_SCHEMA
from tests.protocol.examples import RECORD, STORED
from tests.spark._arrow.examples import A_WHILE, RECORDS, compressed, squeezed

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def table(records: Records, schema: pa.Schema = ARROW_SCHEMA, **options: Any) -> pa.Table:
    """The rows of all batches, none of which is empty."""
    batches = [each for each in decode(records, schema, **options) if not isinstance(each, BadBody)]
    assert all(batch.num_rows for batch in batches)
    return pa.Table.from_batches(batches, schema)


def bad(records: Records, **options: Any) -> list[BadBody]:
    """The records whose bodies cannot be had."""
    found = decode(records, ARROW_SCHEMA, broker_name="b", **options)
    return [each for each in found if isinstance(each, BadBody)]


def row(record: Record, broker_name: str) -> dict[str, Any]:
    """A record's columns, worked out by the plainest means."""
    properties = record.properties
    return {
        "topic": record.topic,
        "brokerName": broker_name,
        "queueId": record.queue_id,
        "queueOffset": record.queue_offset,
        "msgId": properties.get("UNIQ_KEY", record.offset_message_id),
        "keys": properties.get("KEYS"),
        "tags": properties.get("TAGS"),
        "body": zlib.decompress(record.body) if record.sys_flag & COMPRESSED else record.body,
        "properties": properties,
        "flag": record.flag,
        "sysFlag": record.sys_flag,
        "bornTimestamp": EPOCH + timedelta(milliseconds=record.born_ms),
        "bornHost": host_text(record.born_host),
        "storeTimestamp": EPOCH + timedelta(milliseconds=record.store_ms),
        "storeHost": host_text(record.store_host),
        "reconsumeTimes": record.reconsume_times,
        "commitLogOffset": record.physical_offset,
        "bodyCRC": record.body_crc,
    }


def rows(batch: pa.RecordBatch) -> list[dict[str, Any]]:
    assert batch.schema == ARROW_SCHEMA
    batch.validate(full=True)
    return [{**each, "properties": dict(each["properties"])} for each in batch.to_pylist()]


@A_WHILE
@given(st.lists(RECORDS | RECORDS.map(compressed), max_size=6), st.integers(1, 3))
def test_columns_equal_records_decoded_one_by_one(records: list[Record], answers: int) -> None:
    stored = [record.encode() for record in records]
    bodies = [b"".join(stored[part::answers]) for part in range(answers)]
    expected = [row(record, "broker-a") for body in bodies for record in decode_all(body)]
    joined = Records.joined(Records.walk(body) for body in bodies)
    assert rows(table(joined, ARROW_SCHEMA, broker_name="broker-a")) == expected


@A_WHILE
@given(st.lists(RECORDS, max_size=6))
def test_a_tag_filter_keeps_messages_with_one_of_the_tags(records: list[Record]) -> None:
    wanted = frozenset({"K", "aK", "é"})
    walked = Records.walk(b"".join(record.encode() for record in records))
    batch = table(walked, ARROW_SCHEMA, broker_name="b", tags=wanted)
    stored = decode_all(walked.data)
    assert rows(batch) == [
        row(record, "b") for record in stored if record.properties.get("TAGS") in wanted
    ]


@A_WHILE
@given(RECORDS, st.data())
def test_damaged_bytes_raise_or_decode_but_never_read_beyond_the_record(
    record: Record, data: st.DataObject
) -> None:
    stored = bytearray(record.encode())
    stored[data.draw(st.integers(0, len(stored) - 1))] = data.draw(st.integers(0, 255))
    try:
        table(Records.walk(bytes(stored)), ARROW_SCHEMA, broker_name="b").validate(full=True)
    except CorruptRecord:
        return


def test_a_message_stored_by_apache_decodes() -> None:
    (only,) = rows(table(Records.walk(STORED), ARROW_SCHEMA, broker_name="broker-a"))
    assert only == row(RECORD, "broker-a")
    assert only["msgId"] == "0A00000100002A9F00000000000003E8"
    assert only["bornHost"] == "10.0.0.9:50000"


def test_a_projection_has_its_columns_in_its_order() -> None:
    schema = pa.schema([ARROW_SCHEMA.field("body"), ARROW_SCHEMA.field("queueOffset")])
    batch = table(Records.walk(STORED), schema, broker_name="b")
    assert batch.to_pydict() == {"body": [b"hi"], "queueOffset": [5]}


def test_no_records_make_no_batch() -> None:
    assert (
        list(decode(Records.joined([]), ARROW_SCHEMA, broker_name="b", tags=frozenset({"A"}))) == []
    )
    assert (
        list(decode(Records.walk(STORED), ARROW_SCHEMA, broker_name="b", tags=frozenset({"B"})))
        == []
    )


def test_a_topic_length_of_two_bytes_is_read() -> None:
    longer = struct.pack(">I", len(STORED) + 1)
    stored = longer + struct.pack(">I", MAGIC_V2) + STORED[8:90] + b"\0" + STORED[90:]
    assert rows(table(Records.walk(stored), ARROW_SCHEMA, broker_name="b"))[0]["topic"] == "T"


@pytest.mark.parametrize(("codec", "kind"), [("lz4", COMPRESSION_LZ4), ("zstd", COMPRESSION_ZSTD)])
def test_lz4_and_zstd_frames_are_decompressed(codec: str, kind: int) -> None:
    body = squeezed(codec, b"hello " * 1000)
    stored = replace(RECORD, sys_flag=COMPRESSED | kind, body=body).encode()
    (only,) = rows(table(Records.walk(stored), ARROW_SCHEMA, broker_name="b"))
    assert only["body"] == b"hello " * 1000


@pytest.mark.parametrize("kind", [0, COMPRESSION_ZLIB, COMPRESSION_LZ4, COMPRESSION_ZSTD, 0x500])
def test_a_body_that_does_not_decompress_is_told_and_the_others_are_given(kind: int) -> None:
    sound = RECORD.encode()
    damaged = replace(RECORD, sys_flag=COMPRESSED | kind, body=b"no such stream", queue_offset=6)
    walked = Records.walk(sound + damaged.encode() + sound)

    (found,) = bad(walked)

    assert (found.at, found.place) == (len(sound), "T@b:3, queue offset 6")
    assert found.reason.startswith(
        "the body is compressed with kind 0x500" if kind == 0x500 else "the compressed body"
    )
    (odd,) = found.row(ARROW_SCHEMA, {}).to_pylist()
    expected = row(replace(damaged, sys_flag=0), "b") | {
        "body": None,
        "sysFlag": damaged.sys_flag,
        "bodyCRC": odd["bodyCRC"],
    }
    assert {**odd, "properties": dict(odd["properties"])} == expected
    assert table(walked, broker_name="b")["queueOffset"].to_pylist() == [5, 5]


@pytest.mark.parametrize("codec", ["zlib", "lz4", "zstd"])
def test_a_body_may_have_so_many_bytes_and_no_more(codec: str) -> None:
    kind = {"zlib": COMPRESSION_ZLIB, "lz4": COMPRESSION_LZ4, "zstd": COMPRESSION_ZSTD}[codec]
    body = zlib.compress(bytes(5000)) if codec == "zlib" else squeezed(codec, bytes(5000))
    walked = Records.walk(replace(RECORD, sys_flag=COMPRESSED | kind, body=body).encode())

    assert table(walked, broker_name="b", uncompressed_max=5000)["body"].to_pylist() == [
        bytes(5000)
    ]
    (found,) = bad(walked, uncompressed_max=4999)
    assert (
        found.reason
        == f"the body, stored in {len(body)} bytes, has more than 4999 when it is decompressed"
    )


@A_WHILE
@given(st.lists(RECORDS | RECORDS.map(compressed), min_size=1, max_size=12), st.integers(1, 400))
def test_what_becomes_large_comes_in_parts_of_a_bounded_size(
    records: list[Record], most: int
) -> None:
    walked = Records.walk(b"".join(record.encode() for record in records))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(bodies, "PART_BYTES", most)
        batches = [
            each
            for each in decode(walked, ARROW_SCHEMA, broker_name="b")
            if not isinstance(each, BadBody)
        ]

    assert rows(pa.Table.from_batches(batches)) == [
        row(record, "b") for record in decode_all(walked.data)
    ]
    if any(record.sys_flag & COMPRESSED for record in records):
        assert all(batch.num_rows == 1 or _size(batch) <= most for batch in batches)


def _size(batch: pa.RecordBatch) -> int:
    return sum(len(body) for body in batch["body"].to_pylist())


def test_the_bodies_of_a_chunk_are_not_in_memory_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """As the reader hands them on, one batch after the other."""
    monkeypatch.setattr(bodies, "PART_BYTES", 1 << 20)
    stored = replace(RECORD, sys_flag=COMPRESSED, body=zlib.compress(bytes(400_000))).encode()
    walked = Records.walk(stored * 100)
    tracemalloc.start()
    before = pa.total_allocated_bytes()
    try:
        held, count = 0, 0
        for each in decode(walked, ARROW_SCHEMA, broker_name="b"):
            assert not isinstance(each, BadBody)
            held, count = max(held, pa.total_allocated_bytes() - before), count + each.num_rows
        assert count == 100
        assert tracemalloc.get_traced_memory()[1] + held < 8 << 20, "of 40 MB"
    finally:
        tracemalloc.stop()


@A_WHILE
@given(
    st.lists(RECORDS | RECORDS.map(compressed), min_size=1, max_size=12),
    st.integers(1, 60),
    st.booleans(),
)
def test_much_of_properties_is_searched_part_by_part(
    records: list[Record], most: int, some_tags: bool
) -> None:
    walked = Records.walk(b"".join(record.encode() for record in records))
    tags = frozenset({"K", "aK", "é"}) if some_tags else None
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(columns, "PROPERTIES_BYTES", most)
        found = rows(table(walked, broker_name="b", tags=tags))

    wanted = [
        each
        for each in decode_all(walked.data)
        if tags is None or each.properties.get("TAGS") in tags
    ]
    assert found == [row(record, "b") for record in wanted]


def test_properties_of_nothing_but_separators_take_no_more_memory_than_others() -> None:
    walked = Records.walk(replace(RECORD, properties_text="\x02" * 32_000).encode() * 250)
    tracemalloc.start()
    try:
        assert table(walked, broker_name="b").num_rows == 250
        assert tracemalloc.get_traced_memory()[1] < 160 << 20, "not 400 MB"
    finally:
        tracemalloc.stop()


def test_a_body_not_asked_for_is_not_decompressed() -> None:
    schema = pa.schema([ARROW_SCHEMA.field("topic")])
    stored = replace(RECORD, sys_flag=COMPRESSED, body=b"no such stream").encode()
    assert table(Records.walk(stored), schema, broker_name="b").to_pydict() == {"topic": ["T"]}


def test_properties_that_are_no_utf8_do_not_fail_the_read() -> None:
    stored = RECORD.encode().replace(b"TagA", b"\xd6\xd0AA")
    (only,) = rows(table(Records.walk(stored), ARROW_SCHEMA, broker_name="b"))
    assert only["tags"] == "��AA"


def test_an_unknown_magic_is_refused() -> None:
    with pytest.raises(CorruptRecord, match="magic"):
        table(Records.walk(STORED[:4] + b"\0\0\0\0" + STORED[8:]), ARROW_SCHEMA, broker_name="b")


def test_a_record_that_says_it_stands_before_the_log_has_an_id_all_the_same() -> None:
    stored = replace(RECORD, physical_offset=-1, properties_text="").encode()

    (row,) = table(Records.walk(stored), ARROW_SCHEMA, broker_name="b").to_pylist()

    assert row["msgId"].endswith("F" * 16)


def test_spark_workers_are_spared_pandas() -> None:
    code = f"""
import sys
import roquet.spark._read.batch, roquet.spark._write.sink, roquet.spark._storefiles.batch, roquet.spark._read.stream
from roquet.spark._arrow.columns import decode
from roquet.spark._arrow.records import LARGE, Records
from roquet.spark._arrow.schema import ARROW_SCHEMA
records = Records.walk(bytes.fromhex("{(STORED + replace(RECORD, properties_text="").encode()).hex()}"))
assert next(decode(records, ARROW_SCHEMA, broker_name="b")).num_rows == 2
assert next(decode(records, ARROW_SCHEMA, broker_name="b", tags=frozenset(["TagA"]))).num_rows == 1
assert "pandas" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", code], check=True)
