"""Uniform messages: records made in columns are those made one by one, and a batch is taken for
uniform only if it is.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from roquet.protocol.records.batch import batch_item, split_batch
from roquet.protocol.records.columns import Bytes
from roquet.protocol.records.layout import checksum
from roquet.protocol.records.message import BORN_HOST_V6, STORE_HOST_V6, UNIQ_KEY, offset_message_id
from roquet.protocol.records.record import Record, decode_all, host_bytes
from roquet.protocol.records.uniform import (
    BatchTemplate,
    UniformBatch,
    checksums,
    learn_batch,
    message_ids,
    record_rows,
    view_rows,
)
from tests.protocol.strategies import int32, int64

KEY: Final = UNIQ_KEY.encode() + b"\x01"


# records


@st.composite
def same_sized_records(draw: st.DrawFn) -> list[Record]:
    """Records that differ in the body, in numbers, and in the last characters of the properties."""
    is_v6 = draw(st.booleans())
    host = host_bytes("::1" if is_v6 else "10.0.0.9", 50000)
    sizes = st.binary(min_size=(size := draw(st.integers(0, 20))), max_size=size)
    first = Record(
        queue_id=0,
        flag=draw(int32),
        queue_offset=0,
        physical_offset=0,
        sys_flag=BORN_HOST_V6 | STORE_HOST_V6 if is_v6 else 0,
        born_ms=0,
        born_host=host,
        store_ms=draw(int64),
        store_host=host,
        reconsume_times=draw(int32),
        prepared_offset=draw(int64),
        body=b"",
        topic="T",
        properties_text="",
    )
    properties = draw(st.sampled_from(["KEYS\x01ab", "a\x01b\x02UNIQ_KEY\x01XY"]))
    endings = st.text("abc01", min_size=2, max_size=2)
    return [
        replace(
            first,
            queue_id=draw(int32),
            queue_offset=draw(int64),
            physical_offset=draw(int64),
            born_ms=draw(int64),
            body=draw(sizes),
            properties_text=properties[:-2] + draw(endings),
        )
        for _ in range(draw(st.integers(1, 6)))
    ]


def column(records: list[Record], name: str) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    return np.array([getattr(record, name) for record in records], np.int64)


@settings(max_examples=25)
@given(same_sized_records())
def test_records_in_columns_are_the_records_one_by_one(records: list[Record]) -> None:
    count, first = len(records), records[0]
    properties = [record.properties_text.encode() for record in records]
    messages = UniformBatch(
        flag=first.flag,
        sys_flag=first.sys_flag,
        reconsume_times=first.reconsume_times,
        born_host=first.born_host,
        born_ms=[record.born_ms for record in records],
        body=first.body,
        properties=properties[0],
        bodies=view_rows(b"".join(record.body for record in records), count),
        checksums=checksums((record.body,) for record in records),
        variable_parts=[
            (len(properties[0]) - 2, view_rows(b"".join(text[-2:] for text in properties), count))
        ],
        keys=[],
        tag_codes=0,
    )

    rows = record_rows(
        messages,
        replace(first, queue_id=7, queue_offset=7, physical_offset=7, born_ms=7).encode(),
        column(records, "queue_id"),
        column(records, "queue_offset"),
        column(records, "physical_offset"),
    )

    assert len(messages) == count
    assert [row.tobytes() for row in rows] == [record.encode() for record in records]
    assert [record.body for record in decode_all(rows.tobytes())] == [
        record.body for record in records
    ]


def test_rows_are_texts_of_one_size_end_to_end() -> None:
    assert [row.tobytes() for row in view_rows(b"abcdef", 3)] == [b"ab", b"cd", b"ef"]
    assert view_rows(b"", 3).shape == (3, 0)


@pytest.mark.parametrize(("texts", "count"), [(b"abcde", 2), (b"a", 3)])
def test_texts_of_several_sizes_are_no_rows(texts: bytes, count: int) -> None:
    with pytest.raises(ValueError, match="reshape"):
        view_rows(texts, count)


@settings(max_examples=25)
@given(st.lists(st.binary(max_size=20), max_size=6))
def test_checksums_are_those_of_records(bodies: list[bytes]) -> None:
    assert checksums((body,) for body in bodies).tolist() == [checksum(body) for body in bodies]
    assert checksums((memoryview(body),) for body in bodies).dtype == np.uint32


# offset message ids


@settings(max_examples=25)
@given(
    st.one_of(st.binary(min_size=8, max_size=8), st.binary(min_size=20, max_size=20)),
    st.lists(st.integers(0, 2**63 - 1), max_size=5),
)
def test_message_ids_are_those_of_single_messages_with_a_comma_after_each(
    host: bytes, physical: list[int]
) -> None:
    digits = host.hex().upper().encode()

    ids = message_ids(digits, np.array(physical, np.int64))

    assert ids.decode() == "".join(f"{offset_message_id(host, at)}," for at in physical)


# batches

BODIES: Final = (b"one", b"two", b"333")


def properties(key: bytes) -> bytes:
    return b"a\x01b\x02" + KEY + key + b"\x02TAGS\x01T"


def batch(*bodies: bytes, keys: str = "ABC") -> bytes:
    return b"".join(
        batch_item(5, body, properties(b"K%b" % key.encode()))
        for body, key in zip(bodies, keys, strict=False)
    )


def learnt(data: bytes) -> BatchTemplate:
    template = learn_batch(data)
    assert template is not None
    return template


def texts(rows: Bytes) -> list[bytes]:
    return [row.tobytes() for row in rows]


def test_a_template_has_what_all_messages_of_the_batch_share() -> None:
    template = learnt(batch(*BODIES))

    assert (template.flag, template.body_size, template.properties) == (5, 3, properties(b"KA"))
    assert template.item_size * 3 == len(batch(*BODIES))
    assert template.key_in_properties == properties(b"").index(b"\x02TAGS")
    at = template.key_in_properties
    assert template.properties[at : at + template.key_end - template.key_at] == b"KA"


def test_batches_of_one_layout_are_a_row_per_message() -> None:
    data = batch(*BODIES) + batch(b"4st", keys="D")
    template = learnt(data)

    rows = template.rows(data)

    assert rows is not None
    assert texts(rows) == [batch_item(flag, body, rest) for flag, body, rest in split_batch(data)]
    assert texts(template.bodies(rows)) == [*BODIES, b"4st"]
    assert texts(template.unique_keys(rows)) == [b"KA", b"KB", b"KC", b"KD"]
    assert template.checksums(data).tolist() == [checksum(body) for body in (*BODIES, b"4st")]


def test_a_template_fits_batches_that_come_later() -> None:
    template = learnt(batch(*BODIES))

    assert template.rows(batch(b"new", keys="z")) is not None


@pytest.mark.parametrize(
    "other",
    [
        b"",
        batch(b"one")[:-1],
        batch(b"one") + b"\0",
        batch(b"four"),
        batch_item(6, b"one", properties(b"KA")),
        batch_item(5, b"one", properties(b"KA").replace(b"a\x01b", b"a\x01c")),
        batch_item(5, b"one", properties(b"KA").replace(b"TAGS\x01T", b"TAGS\x01U")),
        batch_item(5, b"one", properties(b"K ")),
        batch_item(5, b"one", properties(b"K\x02")),
        batch_item(5, b"one", properties("é".encode())),
        batch(b"one")[:4] + b"\x01" + batch(b"one")[5:],
    ],
    ids=[
        "nothing",
        "cut short",
        "a byte more",
        "a longer body",
        "another flag",
        "another property",
        "another tag",
        "a blank in the key",
        "a separator in the key",
        "a key that is not ASCII",
        "another magic",
    ],
)
def test_a_message_that_does_not_match_makes_no_rows(other: bytes) -> None:
    template = learnt(batch(*BODIES))

    assert template.rows(other) is None
    assert not other or template.rows(batch(*BODIES) + other) is None


def test_without_a_unique_key_messages_differ_in_the_body_only() -> None:
    data = batch_item(0, b"one", b"a\x01b") + batch_item(0, b"two", b"a\x01b")
    template = learnt(data)

    rows = template.rows(data)

    assert template.key_at == template.key_end == template.item_size
    assert template.key_in_properties == len(b"a\x01b")
    assert rows is not None
    assert texts(template.bodies(rows)) == [b"one", b"two"]
    assert template.unique_keys(rows).shape == (2, 0)
    assert template.rows(data + batch_item(0, b"one", b"a\x01c")) is None
    assert template.rows(b"") is None


@pytest.mark.parametrize("stored", [b"", KEY + b"A", b"X" + KEY + b"A"])
def test_properties_may_be_empty_or_begin_with_the_key_or_a_longer_name(stored: bytes) -> None:
    template = learnt(batch_item(0, b"", stored))

    assert template.key_end - template.key_at == (1 if stored.startswith(KEY) else 0)
    assert template.rows(batch_item(0, b"", stored)) is not None


@pytest.mark.parametrize(
    "stored",
    [
        KEY,
        KEY + b"A B",
        KEY + b"A\x01B",
        KEY + b"A\x02" + KEY + b"B",
        KEY + b"A\x02b\x01c\x02" + KEY + b"A",
        KEY + "é".encode(),
    ],
    ids=["empty", "blank", "separator", "twice", "twice the same", "not ASCII"],
)
def test_a_key_whose_place_is_not_certain_makes_no_template(stored: bytes) -> None:
    assert learn_batch(batch_item(0, b"one", stored)) is None


@settings(max_examples=25)
@given(
    st.lists(
        st.tuples(
            st.integers(0, 1),
            st.binary(max_size=2),
            st.sampled_from([b"", b"a\x01b", KEY + b"A", KEY + b"B", KEY + b"\x02", KEY + b"ABC"]),
        ),
        min_size=1,
        max_size=5,
    )
)
def test_rows_are_the_messages_that_splitting_finds(
    messages: list[tuple[int, bytes, bytes]],
) -> None:
    data = b"".join(batch_item(*message) for message in messages)
    template = learn_batch(data)
    rows = template.rows(data) if template is not None else None
    if template is None or rows is None:
        return

    assert texts(template.bodies(rows)) == [body for _, body, _ in messages]
    assert {template.flag} == {flag for flag, _, _ in messages}
    at = template.key_in_properties
    key_size = template.key_end - template.key_at
    assert texts(template.unique_keys(rows)) == [
        rest[at : at + key_size] for _, _, rest in messages
    ]
    shared = template.properties[:at], template.properties[at + key_size :]
    assert {(rest[:at], rest[at + key_size :]) for _, _, rest in messages} == {shared}
