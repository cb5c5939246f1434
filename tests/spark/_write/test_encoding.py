"""Rows become the very messages that our producer would send."""

from __future__ import annotations

import zlib
from itertools import count
from typing import Any

import pyarrow as pa
import pytest

from roquet.client._send.queue_choice import queue_for_sharding_key
from roquet.protocol.records.batch import split_batch
from roquet.protocol.records.message import Message, MessageQueue, split_properties
from roquet.spark._options.write import WriteOptions
from roquet.spark._write.encoding import Piece, encode_pieces, row_number
from roquet.spark._write.rows import ROW_ID, RowError, SinkRows, sink_rows, targets
from tests.spark._write.given_rows import SCHEMA, rows

OPTIONS = WriteOptions("ns:1", "T")
QUEUES = [MessageQueue("T", broker, number) for broker in ("b", "a") for number in range(3)]


def keys(start: int) -> Any:
    """As `UniqueKeys.run` gives them, without a clock."""
    numbers = count(start)

    def run(wanted: int) -> tuple[str, int]:
        first = next(numbers)
        for _ in range(wanted - 1):
            next(numbers)
        return "AB" * 14, first

    return run


def encoded(
    given: SinkRows, options: WriteOptions = OPTIONS, id_prefix: str | None = None
) -> list[Piece]:
    return list(encode_pieces(given, targets(given, QUEUES), "T", options, keys(0xFFFE), id_prefix))


def messages(piece: Piece) -> list[tuple[bytes, dict[str, str]]]:
    return [
        (body, split_properties(text.decode()))
        for _, body, text in split_batch(piece.outgoing.body)
    ]


def test_a_row_has_the_properties_of_a_message_of_our_producer() -> None:
    given = rows(
        {
            "body": b"one",
            "tags": "A",
            "keys": "k1 k2",
            "properties": [("color", "röt"), ("size", "1")],
        },
        {"body": b"two", "tags": "", "properties": []},
        {"body": b"three"},
    )
    (piece,) = encoded(given)
    one = Message("T", b"one", "A", ("k1", "k2"), {"color": "röt", "size": "1"})
    expected = split_properties(one.wire_properties("AB" * 14 + "FFFE"))
    assert expected.pop("WAIT") == split_properties(piece.outgoing.properties)["WAIT"]
    assert messages(piece) == [
        (b"one", expected),
        (b"two", {"UNIQ_KEY": "AB" * 14 + "FFFF"}),
        (b"three", {"UNIQ_KEY": "AB" * 14 + "0000"}),
    ]


def test_a_row_has_its_flag_in_a_batch_and_alone() -> None:
    given = rows({"flag": 7}, {}, {"flag": -1}, {"flag": 9, "delayLevel": 1})
    batch, single = encoded(given)
    assert [flag for flag, _, _ in split_batch(batch.outgoing.body)] == [7, 0, -1]
    assert [flag for flag, _, _ in split_batch(batch.without([0]).outgoing.body)] == [0, -1]
    assert (single.outgoing.flag, single.outgoing.is_batch) == (9, False)


def test_rows_carry_their_numbers_where_they_shall_be_found_again() -> None:
    given = rows(*({"body": b"x"} for _ in range(3)), first=99_999)
    (piece,) = encoded(given, id_prefix="run:7:3:")
    ids = [properties[ROW_ID] for _, properties in messages(piece)]
    assert ids == ["run:7:3:0000099999", "run:7:3:0000100000", "run:7:3:0000100001"]
    assert [row_number(each) for each in ids] == piece.rows.tolist() == [99_999, 100_000, 100_001]


def test_a_batch_ends_where_its_rows_or_bytes_are_enough() -> None:
    many = rows(*({"body": b"x" * 100} for _ in range(10)))
    by_rows = encoded(many, WriteOptions("ns:1", batch_rows=4))
    assert [piece.rows.tolist() for piece in by_rows] == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]
    by_bytes = encoded(many, WriteOptions("ns:1", batch_size=1200))
    assert sum(len(piece.rows) for piece in by_bytes) == 10
    assert {len(piece.rows) for piece in by_bytes} == {3, 1}
    one_each = encoded(many, WriteOptions("ns:1", batch_size=1))
    assert [len(piece.rows) for piece in one_each] == [1] * 10


def test_delayed_large_and_compressed_rows_go_singly() -> None:
    given = rows(
        {"body": b"a"},
        {"body": b"b", "delayLevel": 3, "tags": "t"},
        {"body": b"c" * 5000},
        {"body": b"d" * (4 * 1024 * 1024 - 10)},
        {"body": b"e", "delayLevel": 0},
    )
    found = encoded(given, WriteOptions("ns:1", compress_from_size=5000))
    assert [(piece.rows.tolist(), piece.outgoing.is_batch) for piece in found] == [
        ([0], True),
        ([1], False),
        ([2], False),
        ([3], False),
        ([4], True),
    ]
    delayed = split_properties(found[1].outgoing.properties)
    assert {name: delayed[name] for name in ("DELAY", "TAGS", "WAIT")} == {
        "DELAY": "3",
        "TAGS": "t",
        "WAIT": "true",
    }
    assert (found[2].outgoing.sys_flag, zlib.decompress(found[2].outgoing.body)) == (1, b"c" * 5000)
    plain = encoded(given)
    assert [piece.rows.tolist() for piece in plain] == [[0], [1], [2], [3], [4]]
    assert plain[2].outgoing.is_batch
    assert not plain[3].outgoing.is_batch


def test_rows_of_one_sharding_key_go_to_one_queue_in_their_order() -> None:
    given = rows(
        *({"body": b"%d" % number, "shardingKey": f"k{number % 5}"} for number in range(50))
    )
    found = encoded(given)
    for piece in found:
        queues = {queue_for_sharding_key(QUEUES, f"k{row % 5}") for row in piece.rows.tolist()}
        assert queues == {QUEUES[piece.target]}
        assert sorted(piece.rows.tolist()) == piece.rows.tolist()
        assert [body for body, _ in messages(piece)] == [b"%d" % row for row in piece.rows.tolist()]
    assert sorted(row for piece in found for row in piece.rows.tolist()) == list(range(50))


@pytest.mark.parametrize(
    ("row", "words"),
    [
        ({"properties": [("a", "b" * 32_768)]}, "its properties are larger than"),
        ({"body": b"x" * (4 * 1024 * 1024 + 1)}, "its body is larger than 4194304 bytes"),
    ],
)
def test_a_row_that_is_too_large_is_named(row: dict[str, Any], words: str) -> None:
    good = {"body": b"x", "topic": "T", "tags": "t", "properties": [("a", "b"), ("c", "d")]}
    with pytest.raises(RowError) as error:
        encoded(rows(good, good, good | row, first=10))
    assert str(error.value).startswith("row 12 of partition 3: ")
    assert words in str(error.value)


def test_no_rows_make_no_pieces() -> None:
    empty = pa.RecordBatch.from_pylist(
        [], pa.schema([SCHEMA.field("body"), SCHEMA.field("shardingKey")])
    )
    assert encoded(sink_rows(empty, 0, 0)) == []


def test_stored_rows_are_taken_out_of_a_piece() -> None:
    (piece,) = encoded(rows(*({"body": b"%d" % number} for number in range(5)), first=10))
    left = piece.without({11, 12, 99})
    assert left.rows.tolist() == [10, 13, 14]
    assert messages(left) == [
        message for at, message in enumerate(messages(piece)) if at not in (1, 2)
    ]
    assert len(piece.without(set(range(10, 15))).rows) == 0
    assert messages(piece.without(set())) == messages(piece)
