"""Blocks: records that are stored end to end, read in columns.

A hundred records of a block take little longer than ten.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from functools import cached_property
from struct import iter_unpack
from typing import Final

import numpy as np
import numpy.typing as npt

from roquet.protocol.records.columns import (
    Bools,
    Ints,
    byte_rows,
    count_leading_true,
    gather,
    scatter,
)
from roquet.protocol.records.layout import (
    FIELDS,
    HOST_BITS,
    MAGIC,
    MAGIC_V2,
    NUMPY_TYPES,
    OFFSETS,
    RECORD_MAGICS,
    SIZE_AND_MAGIC,
    SIZE_MIN,
    offset_of,
)
from roquet.protocol.records.message import BORN_HOST_V6
from roquet.protocol.records.uniform import Checksums, checksums

_HOST_OFFSETS: Final = {
    name: np.array([offset_of(name, bits) for bits in range(0, HOST_BITS + 1, BORN_HOST_V6)])
    for name in (*FIELDS, "body")
    if name not in OFFSETS
}
"""The byte positions of the fields after the born host, by the host bits of the sysFlag."""
_RUN_FROM: Final = 8
"""Records of equal size after which more of that size are looked for in one numpy call."""
_RUN_MAX: Final = 4096
"""Records looked for in one such call."""
_SMALL_MAX: Final = 512
"""Bytes of a body up to which a copy costs less than a view."""


def record_starts(data: bytes) -> tuple[list[int], int]:
    """Find the whole records at the start of `data`.

    :returns: the index of each record's first byte, and the index after the last whole record.
    """
    starts: list[int] = []
    at, end, read = 0, len(data), SIZE_AND_MAGIC.unpack_from
    size_before, alike = 0, 0
    while end - at >= SIZE_MIN:
        size, magic = read(data, at)
        # `layout.is_record_head`, whose call would make the walk take 1.24 times as long
        if size < SIZE_MIN or at + size > end or magic not in RECORD_MAGICS:
            break
        alike = alike + 1 if size == size_before else 0
        size_before = size
        if alike < _RUN_FROM:
            starts.append(at)
            at += size
        else:
            run = _run_of(data, at, size)
            starts += run
            at, alike = run[-1] + size, 0
    return starts, at


def _run_of(data: bytes, at: int, size: int) -> list[int]:
    """The starts of consecutive whole records from `at` on with the size and magic of the first."""
    places = np.arange(at, len(data) - size + 1, size)[:_RUN_MAX]
    heads = gather(data, "u8", places)
    same = heads == heads[0]
    starts: list[int] = places[: count_leading_true(same)].tolist()
    return starts


@dataclass(frozen=True, slots=True)
class RecordLayouts:
    """Where the parts of each record of a block begin and end, as indices in its data.

    `sound` says whether the sizes of a record's parts add up.
    """

    body_at: Ints
    body_end: Ints
    topic_at: Ints
    topic_end: Ints
    properties_at: Ints
    sound: Bools

    def of(self, rows: Ints) -> RecordLayouts:
        """The layouts of some records, by ascending record numbers in the block."""
        if len(rows) == len(self.sound):
            return self
        return RecordLayouts(*(getattr(self, field.name)[rows] for field in fields(self)))


def leading_field(data: bytes, name: str, starts: Ints) -> Ints:
    """The values of a field of `layout.OFFSETS`, which even the shortest record has.

    :param starts: index of each record's first byte in `data`.
    """
    return gather(data, NUMPY_TYPES[name], starts + OFFSETS[name]).astype(np.int64)


def is_record_magic(magics: npt.NDArray[np.generic]) -> Bools:
    found: Bools = (magics == MAGIC) | (magics == MAGIC_V2)
    return found


def hosts_of(sys_flags: Ints) -> Ints | int:
    """The host bits of each record; 0 if all hosts are IPv4, so that nothing is looked up."""
    hosts = sys_flags & HOST_BITS
    return hosts if hosts.any() else 0


def host_offsets(name: str, hosts: Ints | int) -> Ints:
    """The byte position in each record of a field that the hosts move, or of the body.

    :param hosts: host bits per record, or for all.
    """
    found: Ints = _HOST_OFFSETS[name][hosts // BORN_HOST_V6]
    return found


def scatter_field(
    data: bytearray, name: str, starts: Ints, hosts: Ints | int, values: npt.ArrayLike
) -> None:
    """Write a number field of records.

    :param starts: index of each record's first byte in `data`.
    :param hosts: host bits per record, or for all; `values` likewise.
    """
    offsets = OFFSETS[name] if name in OFFSETS else host_offsets(name, hosts)
    scatter(data, NUMPY_TYPES[name], starts + offsets, values)


def find_layouts(data: bytes, starts: Ints, ends: Ints) -> RecordLayouts:
    """Find the parts of records, as `layout.find_parts` does for one.

    :param starts: index of each record's first byte in `data`.
    :param ends: index after the last byte of each.
    """
    hosts = hosts_of(leading_field(data, "sys_flag", starts))
    body_at = starts + host_offsets("body", hosts)
    body_end = body_at + _column(
        data, NUMPY_TYPES["body_size"], starts + host_offsets("body_size", hosts)
    )
    topic_at, topic_size = body_end + 1, _column(data, ">u1", body_end)
    is_long = gather(data, NUMPY_TYPES["magic"], starts + OFFSETS["magic"]) != MAGIC
    if is_long.any():
        topic_at = topic_at + is_long
        topic_size = np.where(is_long, _column(data, ">u2", body_end), topic_size)
    topic_end = topic_at + topic_size
    properties_at = topic_end + 2
    adds_up = properties_at + _column(data, ">u2", topic_end) == ends
    return RecordLayouts(
        body_at, body_end, topic_at, topic_end, properties_at, adds_up & (body_at <= body_end)
    )


def _column(data: bytes, dtype: str, at: Ints) -> Ints:
    """Read a number at each index `at`; an index outside the data is moved to its edge.

    Damaged records have such indices; `RecordLayouts.sound` is False for them.
    """
    last = len(data) - np.dtype(dtype).itemsize
    if len(at) and (at.min() < 0 or at.max() > last):
        at = np.clip(at, 0, last)
    return gather(data, dtype, at).astype(np.int64)


class RecordBlock:
    """Whole records end to end, from physical offset `at` on. Columns have a value per record.

    :param data: the records' bytes; more bytes may follow them.
    :param starts: index of each record's first byte in `data`, from `record_starts`.
    :param end: index after the last record.
    """

    def __init__(self, at: int, data: bytes, starts: Sequence[int] | Ints, end: int) -> None:
        self.at = at
        self.data = data
        self.starts: Ints = np.array(starts, np.int64)
        self.ends: Ints = np.append(self.starts, end)[1:]

    def __len__(self) -> int:
        return len(self.starts)

    def records(self) -> Iterator[tuple[int, memoryview]]:
        """Yield physical offset and bytes of each record."""
        view = memoryview(self.data)
        for start, end in zip(self.starts.tolist(), self.ends.tolist(), strict=True):
            yield self.at + start, view[start:end]

    def first(self, count: int) -> RecordBlock:
        """The first `count` records."""
        return (
            self
            if count == len(self)
            else RecordBlock(self.at, self.data, self.starts[:count], self.starts[count])
        )

    @property
    def sizes(self) -> Ints:
        return self.ends - self.starts

    @property
    def physical(self) -> Ints:
        """The physical offset of each record by its position, not as stored in the record."""
        return self.starts + self.at

    def field(self, name: str) -> Ints:
        """The values of a number field, by its name in `layout.FIELDS`."""
        if name in OFFSETS:
            return leading_field(self.data, name, self.starts)
        return _column(self.data, NUMPY_TYPES[name], self.starts + host_offsets(name, self.hosts))

    @property
    def queue_ids(self) -> Ints:
        return self.field("queue_id")

    @property
    def queue_offsets(self) -> Ints:
        return self.field("queue_offset")

    @cached_property
    def sys_flags(self) -> Ints:
        return self.field("sys_flag")

    @cached_property
    def hosts(self) -> Ints | int:
        return hosts_of(self.sys_flags)

    @property
    def store_ms(self) -> Ints:
        return self.field("store_ms")

    @cached_property
    def shape(self) -> RecordLayouts:
        """The layouts of all records."""
        return find_layouts(self.data, self.starts, self.ends)

    def sound_count(self, *, verify: bool) -> int:
        """How many records, from the first on, `record.check` would accept.

        :param verify: also compare bodies with their checksums.
        """
        is_sound = self.shape.sound & (self.field("physical_offset") == self.physical)
        count = self._written_count(count_leading_true(is_sound))
        return next(iter(self.first(count).changed_bodies()), count) if verify else count

    def _written_count(self, count: int) -> int:
        """How many of the first `count` records were written completely.

        Zeros in the topic or at the end of the properties were not written (`record.check`).
        """
        topic_at, properties_at, ends = (
            self.shape.topic_at[:count],
            self.shape.properties_at[:count],
            self.ends[:count],
        )
        is_written = (properties_at == ends) | (_column(self.data, ">u1", ends - 1) != 0)
        topic_sizes = self.shape.topic_end[:count] - topic_at
        for size in np.unique(topic_sizes).tolist():
            numbers = np.flatnonzero(topic_sizes == size)
            is_written[numbers] &= byte_rows(self.data, topic_at[numbers], size).all(axis=1)
        return count_leading_true(is_written)

    def changed_bodies(self, numbers: Ints | None = None) -> list[int]:
        """Numbers of the records whose bodies do not have the stored checksum.

        :param numbers: those to compare, which must be sound; None: all.
        """
        if numbers is None:
            numbers = np.arange(len(self))
        starts = self.shape.body_at[numbers]
        sizes = self.shape.body_end[numbers] - starts
        found = np.empty(len(numbers), np.uint32)
        for size in np.unique(sizes).tolist():
            same = np.flatnonzero(sizes == size)
            found[same] = self._checksums(starts[same], size)
        changed: list[int] = numbers[found != self.field("crc")[numbers]].tolist()
        return changed

    def _checksums(self, starts: Ints, size: int) -> Checksums:
        """The checksums of bodies of one size.

        Many small bodies are first copied end to end: that costs less than a view for each.
        """
        if 0 < size <= _SMALL_MAX and len(starts) >= _RUN_FROM:
            return checksums(iter_unpack(f"{size}s", byte_rows(self.data, starts, size).data))
        view = memoryview(self.data)
        return checksums((view[at : at + size],) for at in starts.tolist())


# rewriting records for other topics and queues


def moved_sizes(block: RecordBlock, topics: Sequence[bytes]) -> Ints:
    """The size in bytes of each record with its new topic."""
    shape = block.shape
    sizes = np.fromiter(map(len, topics), np.int64, len(topics))
    return block.sizes + sizes - (shape.topic_end - shape.topic_at)


def rewritten(
    block: RecordBlock,
    topics: Sequence[bytes],
    queue_ids: Ints,
    queue_offsets: Ints,
    at: int,
    store_ms: int,
) -> RecordBlock:
    """Rewrite the records of `block` for other queues, from physical offset `at` on.

    Their prepared transaction offset becomes 0: they belong to no transaction any more.

    :param block: sound records.
    :param topics: the new topic of each record, at most 127 bytes.
    :param store_ms: the new store time of all records.
    """
    data, shape, sizes = block.data, block.shape, moved_sizes(block, topics)
    pieces: list[bytes] = []
    for start, head_end, topic, rest, end in zip(
        block.starts.tolist(),
        (shape.topic_at - 1).tolist(),
        topics,
        shape.topic_end.tolist(),
        block.ends.tolist(),
        strict=True,
    ):
        pieces += (data[start:head_end], len(topic).to_bytes(1, "big"), topic, data[rest:end])
    ends = np.cumsum(sizes)
    starts = ends - sizes
    records = bytearray().join(pieces)
    columns: tuple[tuple[str, npt.ArrayLike], ...] = (
        ("size", sizes),
        ("queue_id", queue_ids),
        ("queue_offset", queue_offsets),
        ("physical_offset", starts + at),
        ("store_ms", store_ms),
        ("prepared_offset", 0),
    )
    for name, values in columns:
        scatter_field(records, name, starts, block.hosts, values)
    return RecordBlock(at, bytes(records), starts, len(records))
