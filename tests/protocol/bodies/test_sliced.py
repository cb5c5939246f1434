"""Large bodies that are encoded or decoded in parts are those that are made at once, and damaged ones
are refused as such.
"""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from roquet.common.steps import PART, finished
from roquet.protocol.bodies.sliced import (
    decode_registration,
    decode_table,
    encode_object_keys,
    encode_registration,
    encode_table,
)
from roquet.protocol.bodies.tables import (
    DataVersion,
    GroupConfig,
    GroupTable,
    OffsetTable,
    Registration,
    TopicConfig,
    TopicTable,
    parse,
)
from roquet.protocol.json.dialect import (
    ObjectKeys,
    dump_bytes,
    dump_dialect,
    dump_indented,
)
from tests.protocol.strategies import text

COUNT = 400
"""Entries of a table that is cut into many pieces."""
VERSION = DataVersion(5, 7)
ODD = ["", '"},"', "}", '{"', "\\", '},"topicConfigTable":{', ',1:{"', '"offsetTable":{', "ü"]


def topics(name: str = "T", count: int = COUNT) -> TopicTable:
    return TopicTable(
        {f"{name}{at}": TopicConfig(f"{name}{at}", at % 9) for at in range(count)}, VERSION
    )


@pytest.mark.parametrize("name", ODD)
@pytest.mark.parametrize("count", [0, 1, COUNT])
def test_topics_and_registrations_are_decoded_as_at_once(name: str, count: int) -> None:
    table = topics(name, count)
    for dump in (dump_bytes, dump_indented):
        assert finished(decode_table(TopicTable, dump(table.to_json()))) == table
        assert finished(decode_registration(dump(Registration(table).to_json()))) == table


@pytest.mark.parametrize("name", ODD)
def test_groups_are_decoded_as_at_once(name: str) -> None:
    table = GroupTable({f"{name}{at}": GroupConfig(f"{name}{at}") for at in range(COUNT)}, VERSION)
    assert finished(decode_table(GroupTable, dump_bytes(table.to_json()))) == table


@pytest.mark.parametrize("name", ODD)
@pytest.mark.parametrize("queues", [0, 3])
def test_offsets_are_decoded_as_at_once(name: str, queues: int) -> None:
    table = OffsetTable({f"{name}{at}@g": dict.fromkeys(range(queues), at) for at in range(COUNT)})
    for dump in (dump_dialect, dump_indented):
        assert finished(decode_table(OffsetTable, dump(table.to_json()))) == table


def test_a_table_of_megabytes_takes_many_short_steps() -> None:
    body = dump_bytes(topics(count=20_000).to_json())

    assert sum(1 for _ in decode_table(TopicTable, body)) > len(body) // 10_000


def test_entries_with_objects_inside_are_cut_apart_too() -> None:
    """5.x's topics have attributes."""
    entries = {
        f"T{at}": {"attributes": {}, "topicName": f"T{at}", "perm": 6} for at in range(COUNT)
    }
    body = dump_bytes({"dataVersion": VERSION.to_json(), "topicConfigTable": entries})

    assert sum(1 for _ in decode_table(TopicTable, body)) > len(body) // 10_000
    assert len(finished(decode_table(TopicTable, body)).topics) == COUNT


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"[]",
        b'{"topicConfigTable":7}',
        b'{"topicConfigTable":{"T":{"perm":6}}}',
        b'{"topicConfigTable":{"T":7}}',
        b'{"dataVersion":7,"topicConfigTable":{}}',
        dump_bytes(topics().to_json())[:-1],
        dump_bytes(topics().to_json())[:-2],
        dump_bytes(topics().to_json()) + b"}",
        dump_bytes(topics().to_json()).replace(b'"T300"', b'"T300'),
        b'{"topicConfigTable":{' + b'"a":1,' * 200_000 + b'"b":1}}',
        b'{"topicConfigTable":{"a":"' + bytes(2_000_000) + b'"}}',
    ],
)
def test_what_is_no_table_is_refused(body: bytes) -> None:
    with pytest.raises(ValueError, match=r"\w"):
        finished(decode_table(TopicTable, body))


@pytest.mark.parametrize("count", [1, COUNT])
def test_an_entry_that_is_left_out_is_logged_once(
    count: int, caplog: pytest.LogCaptureFixture
) -> None:
    document = topics(count=count).to_json()
    document["topicConfigTable"]["odd"] = {"topicName": "odd", "perm": "x"}

    table = finished(decode_table(TopicTable, dump_bytes(document)))

    assert (len(table.topics), table.left_out, len(caplog.records)) == (count, 1, 1)


def test_a_registration_says_what_reading_it_at_once_says() -> None:
    body = dump_bytes(Registration(topics()).to_json())

    assert finished(decode_registration(body)) == parse(body, Registration.from_json).table
    assert finished(encode_registration(topics())) == body


# encoding

counts = st.integers(0, 3 * PART)
versions = st.builds(DataVersion, st.integers(0, 9), st.integers(0, 9), st.integers(0, 1))


@given(counts, text, versions)
def test_topics_and_registrations_are_encoded_as_at_once(
    count: int, name: str, version: DataVersion
) -> None:
    table = TopicTable(
        {f"{name}{at}": TopicConfig(f"{name}{at}", at) for at in range(count)}, version
    )
    assert finished(encode_table(table)) == dump_bytes(table.to_json())
    assert finished(encode_registration(table)) == dump_bytes(Registration(table).to_json())


@given(counts, text, versions)
def test_groups_are_encoded_as_at_once(count: int, name: str, version: DataVersion) -> None:
    table = GroupTable({f"{name}{at}": GroupConfig(f"{name}{at}") for at in range(count)}, version)
    assert finished(encode_table(table)) == dump_bytes(table.to_json())


@given(counts, text, st.integers(0, 3))
def test_offsets_are_encoded_as_at_once(count: int, name: str, queues: int) -> None:
    table = OffsetTable({f"{name}{at}@g": dict.fromkeys(range(queues), at) for at in range(count)})
    assert finished(encode_table(table, dump_dialect)) == dump_dialect(table.to_json())


@given(counts)
def test_tables_with_objects_as_keys_are_encoded_as_at_once(count: int) -> None:
    items = {dump_bytes({"queueId": at}).decode(): {"maxOffset": at} for at in range(count)}
    assert finished(encode_object_keys(items.items())) == dump_dialect(ObjectKeys(items))


def test_encoding_thousands_of_entries_takes_many_steps() -> None:
    table = TopicTable({str(at): TopicConfig(str(at)) for at in range(100 * PART)})
    assert sum(1 for _ in encode_table(table)) == 100
