"""Records of any kind, and bodies as brokers store them."""

from __future__ import annotations

import zlib
from dataclasses import replace

import pyarrow as pa
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

from roquet.protocol.records.message import COMPRESSED
from roquet.protocol.records.record import Record

A_WHILE = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow], max_examples=60)
"""A record takes many draws, and the first batch loads Arrow's kernels."""


def ints(bits: int) -> st.SearchStrategy[int]:
    return st.integers(-(1 << bits - 1), (1 << bits - 1) - 1)


HOSTS = st.builds(
    bytes.__add__,
    st.binary(min_size=4, max_size=4) | st.binary(min_size=16, max_size=16),
    st.integers(0, 65535).map(lambda port: port.to_bytes(4, "big")),
)
MOMENTS = st.integers(0, 4_000_000_000_000)
WORDS = st.text(st.sampled_from("aKé€😀\x01\x02 "), max_size=4)
NAMES = st.sampled_from(["KEYS", "TAGS", "UNIQ_KEY", "TAG", "TAGSX", ""]) | WORDS
PROPERTIES = st.lists(
    st.builds(lambda *parts: "".join(parts), NAMES, st.sampled_from(["\x01", ""]), WORDS)
).map("\x02".join)
RECORDS = st.builds(
    Record,
    queue_id=ints(32),
    flag=ints(32),
    queue_offset=st.integers(0, 20).map(int),
    physical_offset=st.integers(0, 2**62).map(int),
    sys_flag=st.sampled_from([0, 0, 2, 8, 0x300]),
    born_ms=MOMENTS,
    born_host=HOSTS,
    store_ms=MOMENTS,
    store_host=HOSTS,
    reconsume_times=ints(32),
    prepared_offset=ints(64).map(int),
    body=st.binary(max_size=30),
    topic=st.text("aZ%é", max_size=20),
    properties_text=PROPERTIES,
)


def compressed(record: Record) -> Record:
    return replace(record, sys_flag=record.sys_flag | COMPRESSED, body=zlib.compress(record.body))


def squeezed(codec: str, body: bytes) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.CompressedOutputStream(sink, codec) as stream:
        stream.write(body)
    return bytes(sink.getvalue().to_pybytes())
