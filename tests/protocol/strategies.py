"""What may stand in messages, commands and bodies."""

from __future__ import annotations

import string

from hypothesis import strategies as st

from roquet.protocol.bodies.tables import DataVersion, Registration, TopicConfig, TopicTable
from roquet.protocol.records.layout import (
    HOST_BITS,
    MAGIC,
    MAGIC_V2,
    OFFSETS,
    RECORD_MAGICS,
    SIZE_MIN,
    fields_struct,
    fixed_fields,
    offset_of,
)
from roquet.protocol.records.message import BORN_HOST_V6, STORE_HOST_V6
from roquet.protocol.records.record import Record, decode
from roquet.protocol.remoting.codes import LANGUAGES
from roquet.protocol.remoting.command import BINARY, JSON, Command

int32 = st.integers(-(2**31), 2**31 - 1)
int64 = st.integers(-(2**63), 2**63 - 1)
text = st.text(st.characters(exclude_categories=["Cs"]), max_size=30)
filled_text = text.filter(bool)
names = st.text(string.ascii_letters + string.digits + "%|_-", min_size=1, max_size=30)
hosts = st.one_of(st.binary(min_size=8, max_size=8), st.binary(min_size=20, max_size=20))


def commands(header_type: int) -> st.SearchStrategy[Command]:
    """Those that the form can carry: in the binary one an empty text is the same as none."""
    is_json = header_type == JSON
    values = text if is_json else filled_text
    return st.builds(
        Command,
        code=int32 if is_json else st.integers(-(2**15), 2**15 - 1),
        fields=st.dictionaries(text, values, max_size=5),
        body=st.binary(max_size=100),
        opaque=int32,
        flag=st.integers(0, 3),
        remark=st.none() | values,
        language=st.sampled_from(LANGUAGES),
        version=st.integers(0, 2**15 - 1),
        header_type=st.just(header_type),
    )


any_command = st.one_of(commands(JSON), commands(BINARY))

records = st.builds(
    Record,
    queue_id=int32,
    flag=int32,
    queue_offset=int64.map(int),
    physical_offset=int64.map(int),
    sys_flag=int32,
    born_ms=int64,
    born_host=hosts,
    store_ms=int64,
    store_host=hosts,
    reconsume_times=int32,
    prepared_offset=int64.map(int),
    body=st.binary(max_size=200),
    topic=names,
    properties_text=text.filter(lambda text: not text.endswith("\0")),
)

topic_configs = st.builds(
    TopicConfig,
    name=names,
    read_queues=int32,
    write_queues=int32,
    perm=int32,
    filter_type=st.sampled_from(["SINGLE_TAG", "MULTI_TAG"]),
    sys_flag=int32,
    order=st.booleans(),
)
versions = st.builds(DataVersion, int64, int64)
registrations = st.builds(
    Registration,
    st.builds(
        TopicTable,
        st.lists(topic_configs, max_size=5).map(
            lambda topics: {topic.name: topic for topic in topics}
        ),
        versions,
    ),
    st.lists(text, max_size=3).map(tuple),
)


def with_long_topic_size(data: bytes) -> bytes:
    """The record as 5.x stores it: with the other magic, and 2 bytes for the topic's size."""
    record = decode(data)
    topic_size_at = fixed_fields(record.sys_flag).size + len(record.body)
    size = (len(data) + 1).to_bytes(4, "big")
    return b"".join(
        (size, MAGIC_V2.to_bytes(4, "big"), data[8:topic_size_at], b"\0", data[topic_size_at:])
    )


@st.composite
def _damaged_records(draw: st.DrawFn) -> bytes:
    """A record of either magic of which some bytes are others, or the last ones are missing."""
    data = draw(records).encode()
    if draw(st.booleans()):
        data = with_long_topic_size(data)
    changed = bytearray(data)
    after_host = offset_of("body_size")
    places = st.one_of(
        st.integers(8, len(data) - 1),
        st.integers(after_host, len(data) - 1),
        st.sampled_from([OFFSETS["sys_flag"] + 3, OFFSETS["magic"] + 3]),
    )
    for at in draw(st.lists(places, max_size=3)):
        changed[at] = draw(st.one_of(st.integers(0, 255), st.just(changed[at] ^ 0x10)))
    cut = draw(st.sampled_from([0, 0, 1, 2, 11, 12, 24]))
    del changed[max(SIZE_MIN, len(changed) - cut) :]
    return len(changed).to_bytes(4, "big") + changed[4:]


@st.composite
def _nearly_sound_records(draw: st.DrawFn) -> bytes:
    """Bytes whose parts add up, or miss it by a little, wherever the body is said to end."""
    size, sys_flag = (
        draw(st.integers(SIZE_MIN, 200)),
        draw(st.sampled_from((0, BORN_HOST_V6, STORE_HOST_V6, HOST_BITS))),
    )
    magic = draw(st.sampled_from(RECORD_MAGICS))
    data = bytearray(draw(st.binary(min_size=size, max_size=size)))
    fields_struct("size", "magic").pack_into(data, 0, size, magic)
    data[OFFSETS["sys_flag"] : OFFSETS["born_ms"]] = sys_flag.to_bytes(4, "big")
    body_at = offset_of("body", sys_flag)
    body_end = draw(st.integers(body_at - 60, size))
    topic_at = body_end + (1 if magic == MAGIC else 2)
    topic_end = topic_at + draw(st.integers(0, 100))
    properties_size = size - topic_end - 2 + draw(st.sampled_from([0, 0, 0, 1, -1, 2]))
    for at, end, value in (
        (body_at - 4, body_at, body_end - body_at),
        (body_end, topic_at, topic_end - topic_at),
        (topic_end, topic_end + 2, properties_size),
    ):
        if end <= size:
            data[at:end] = (value & 2 ** (8 * (end - at)) - 1).to_bytes(end - at, "big")
    return bytes(data)


damaged_records = _damaged_records() | _nearly_sound_records()
"""Bytes whose size is that of a record, with any magic; the parts of some of them add up."""
