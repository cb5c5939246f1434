"""Converts stored records to Arrow, one whole column at a time, and only the columns requested."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from roquet.protocol.records.block import (
    RecordLayouts,
    find_layouts,
    host_offsets,
    hosts_of,
)
from roquet.protocol.records.columns import gather
from roquet.protocol.records.compression import UNCOMPRESSED_MAX
from roquet.protocol.records.layout import NUMPY_TYPES, OFFSETS
from roquet.protocol.records.message import (
    COMPRESSED,
    COMPRESSION_TYPE_BITS,
    KEYS,
    TAGS,
    UNIQ_KEY,
    offset_message_id,
)
from roquet.protocol.records.record import decode as decode_record
from roquet.protocol.records.record import host_text
from roquet.spark._arrow.bodies import Part, decompressed, split_by_size
from roquet.spark._arrow.property_columns import PropertyColumns
from roquet.spark._arrow.records import Records
from roquet.spark._arrow.schema import ARROW_SCHEMA
from roquet.spark._arrow.slices import (
    Bools,
    Ints,
    binary,
    indices,
    numbers,
    slices,
    text,
    true_rows,
    words,
)

_HEAD: Final = np.dtype([(name, kind) for name, kind in NUMPY_TYPES.items() if name in OFFSETS])
"""A record up to its born host, the first field of variable size."""
_FIELDS: Final = {
    "queueId": "queue_id",
    "queueOffset": "queue_offset",
    "flag": "flag",
    "sysFlag": "sys_flag",
    "commitLogOffset": "physical_offset",
    "bodyCRC": "crc",
}
"""The columns that are fields of `_HEAD`."""
PROPERTIES_BYTES: Final = 2 << 20
"""Bytes of properties that are searched at once. A chunk of usual messages has fewer. But a client
may send properties of separators only, and the search needs forty bytes of memory for each.
"""
_OF_PROPERTIES: Final = frozenset(("msgId", "keys", "tags", "properties"))
_PLACE: Final = pa.schema(
    [ARROW_SCHEMA.field(name) for name in ("topic", "brokerName", "queueId", "queueOffset")]
)
_MICROSECONDS: Final = pa.timestamp("us", tz="UTC")


@dataclass(frozen=True)
class BadBody:
    """The one record in `records`, whose body is damaged or larger than allowed."""

    records: Records
    broker_name: str
    reason: str

    @property
    def at(self) -> int:
        """The byte position of the record in the data."""
        return int(self.records.starts[0])

    @property
    def place(self) -> str:
        """Topic, broker, queue id and queue offset, as text."""
        row = self.row(_PLACE, {}).to_pylist()[0]
        return "{topic}@{brokerName}:{queueId}, queue offset {queueOffset}".format(**row)

    def row(self, schema: pa.Schema, others: Mapping[str, pa.Array]) -> pa.RecordBatch:
        """The record's columns, with a null body.

        :param others: values of the columns that records do not have, such as `_corrupt`.
        """
        columns = _Columns(self.records, self.broker_name)
        known = {**others, "body": pa.nulls(1, pa.binary())}
        arrays = [
            known[each.name] if each.name in known else columns.named(each.name, each.type)
            for each in schema
        ]
        return pa.RecordBatch.from_arrays(arrays, schema=schema)


def decode(
    records: Records,
    schema: pa.Schema,
    *,
    broker_name: str,
    tags: frozenset[str] | None = None,
    uncompressed_max: int = UNCOMPRESSED_MAX,
) -> Iterator[pa.RecordBatch | BadBody]:
    """Convert records to batches with the columns of `schema`. No batch is empty.

    All records are in one batch, unless decompressed bodies make it too large
    (`bodies.PART_BYTES`). A record whose body is requested but cannot be decompressed becomes a
    `BadBody` between the batches.

    :param schema: names and types as in `schema.ARROW_SCHEMA`.
    :param tags: keep only messages with one of these tags; None keeps all.
    :param uncompressed_max: maximum bytes of a decompressed body.
    :raises CorruptRecord: the fields of a record do not add up to its size; `at` is its byte
        position.
    """
    whole = _Columns(records, broker_name)
    looks_at_properties = tags is not None or not _OF_PROPERTIES.isdisjoint(schema.names)
    for columns in whole.by_properties() if looks_at_properties and len(whole) else (whole,):
        if tags is not None and len(columns):
            matches = pc.is_in(columns.tags(), value_set=words(sorted(tags)))
            columns = columns.of(true_rows(matches))
        if "body" in schema.names and columns.are_compressed:
            yield from columns.in_parts(schema, uncompressed_max)
        elif len(columns):
            yield columns.batch(schema)


class _Columns:
    """The columns of some records, computed on demand. What several columns need is computed once.

    :param plain: the decompressed bodies of the compressed records, in order; for the column body
        only.
    """

    def __init__(self, records: Records, broker_name: str, plain: Sequence[bytes] = ()) -> None:
        self._plain = plain
        self._records = records
        self._data = records.data
        self._starts = records.starts
        self._broker_name = broker_name

    def __len__(self) -> int:
        return len(self._starts)

    def of(self, rows: Ints, plain: Sequence[bytes] = ()) -> _Columns:
        """The columns of the records at the indices `rows`."""
        return _Columns(self._records.where(rows), self._broker_name, plain)

    @property
    def are_compressed(self) -> bool:
        """Whether any of the bodies is compressed."""
        return len(self) > 0 and bool((self._head["sys_flag"] & COMPRESSED).any())

    def batch(self, schema: pa.Schema) -> pa.RecordBatch:
        return pa.RecordBatch.from_arrays(
            [self.named(each.name, each.type) for each in schema], schema=schema
        )

    def by_properties(self) -> Iterator[_Columns]:
        """The records split into parts with about `PROPERTIES_BYTES` of properties each."""
        ends = np.cumsum(self._ends - self._shape.properties_at)
        if ends[-1] <= PROPERTIES_BYTES:
            yield self
            return
        cuts = np.flatnonzero(np.diff(ends // PROPERTIES_BYTES)) + 1
        for rows in np.split(np.arange(len(self)), cuts):
            yield self.of(rows)

    def in_parts(
        self, schema: pa.Schema, uncompressed_max: int
    ) -> Iterator[pa.RecordBatch | BadBody]:
        is_compressed: Bools = (self._head["sys_flag"] & COMPRESSED) != 0
        stored = self._shape.body_end - self._shape.body_at
        sizes: Ints = self._head["size"] - np.where(is_compressed, stored, 0)
        for part in split_by_size(
            sizes, is_compressed, lambda row: self._decompressed(row, uncompressed_max)
        ):
            if isinstance(part, Part):
                yield self.of(part.rows, part.plain).batch(schema)
            else:
                yield BadBody(
                    self._records.where(np.array([part.row])), self._broker_name, part.reason
                )

    def named(self, name: str, kind: pa.DataType) -> pa.Array:
        if len(self._starts) == 0:
            return pa.nulls(0, kind)
        if name == "properties":
            return self._properties.maps(kind)
        if name in _MAKERS:
            return _MAKERS[name](self)
        values = self._head[_FIELDS[name]]
        return numbers(values.astype(values.dtype.newbyteorder("=")), kind)

    # Columns

    def topic(self) -> pa.Array:
        return text(slices(self._data, self._shape.topic_at, self._shape.topic_end))

    def broker_name(self) -> pa.Array:
        return words([self._broker_name]).take(indices(np.zeros(len(self._starts), np.int64)))

    def message_id(self) -> pa.Array:
        """The unique key, or the offset message id of messages without one, as Java's getMsgId.

        Few messages lack a unique key, so offset message ids are built one by one.
        """
        given = self._properties.values(UNIQ_KEY)
        if given.null_count == 0:
            return given
        missing = true_rows(given.is_null())
        made = words(self._offset_message_ids(missing))
        return _replaced(given, missing, made)

    def keys(self) -> pa.Array:
        return self._properties.values(KEYS)

    def tags(self) -> pa.Array:
        return self._properties.values(TAGS)

    def body(self) -> pa.Array:
        stored = slices(self._data, self._shape.body_at, self._shape.body_end)
        compressed = np.flatnonzero(self._head["sys_flag"] & COMPRESSED)
        return _replaced(stored, compressed, binary(self._plain)) if len(compressed) else stored

    def born_timestamp(self) -> pa.Array:
        return _timestamps(self._head["born_ms"])

    def store_timestamp(self) -> pa.Array:
        return _timestamps(gather(self._data, NUMPY_TYPES["store_ms"], self._at("store_ms")))

    def born_host(self) -> pa.Array:
        return _hosts(slices(self._data, self._starts + _HEAD.itemsize, self._at("store_ms")))

    def store_host(self) -> pa.Array:
        return _hosts(slices(self._data, self._at("store_host"), self._at("reconsume_times")))

    def reconsume_times(self) -> pa.Array:
        found = gather(self._data, NUMPY_TYPES["reconsume_times"], self._at("reconsume_times"))
        return numbers(found.astype(np.int32), pa.int32())

    # Parts of records that the columns need

    @cached_property
    def _head(self) -> npt.NDArray[np.void]:
        return gather(self._data, _HEAD, self._starts)

    @cached_property
    def _ends(self) -> Ints:
        ends: Ints = self._starts + self._head["size"]
        return ends

    @cached_property
    def _shape(self) -> RecordLayouts:
        """:raises CorruptRecord: the parts of a record do not add up to its size."""
        if self._records.shape is not None:
            return self._records.shape
        shape = find_layouts(self._data, self._starts, self._ends)
        if not shape.sound.all():
            at = int(self._starts[shape.sound.argmin()])
            decode_record(self._data, at)  # says in its error what is wrong with it
            raise AssertionError(f"the record at byte {at} can be decoded")
        return shape

    @cached_property
    def _hosts(self) -> Ints | int:
        return hosts_of(self._head["sys_flag"].astype(np.int64))

    def _at(self, name: str) -> Ints:
        """Where a field after the born host begins in each record.

        It is found from the body, which only a sound record has.
        """
        before_body = host_offsets("body", self._hosts) - host_offsets(name, self._hosts)
        return self._shape.body_at - before_body

    @cached_property
    def _properties(self) -> PropertyColumns:
        return PropertyColumns(slices(self._data, self._shape.properties_at, self._ends))

    def _decompressed(self, row: int, size_max: int) -> bytes:
        stored = self._data[self._shape.body_at[row] : self._shape.body_end[row]]
        return decompressed(
            stored, int(self._head["sys_flag"][row]) & COMPRESSION_TYPE_BITS, size_max
        )

    def _offset_message_ids(self, rows: Ints) -> list[str]:
        begins, ends = self._at("store_host")[rows], self._at("reconsume_times")[rows]
        physical = self._head["physical_offset"][rows]
        return [
            offset_message_id(self._data[begin:end], at)
            for begin, end, at in zip(
                begins.tolist(), ends.tolist(), physical.tolist(), strict=True
            )
        ]


_MAKERS: Final[Mapping[str, Callable[[_Columns], pa.Array]]] = {
    "topic": _Columns.topic,
    "brokerName": _Columns.broker_name,
    "msgId": _Columns.message_id,
    "keys": _Columns.keys,
    "tags": _Columns.tags,
    "body": _Columns.body,
    "bornTimestamp": _Columns.born_timestamp,
    "bornHost": _Columns.born_host,
    "storeTimestamp": _Columns.store_timestamp,
    "storeHost": _Columns.store_host,
    "reconsumeTimes": _Columns.reconsume_times,
}
"""The columns that are not plain fields of `_HEAD`."""


def _replaced(values: pa.Array, rows: Ints, others: pa.Array) -> pa.Array:
    """The values, with those at the indices `rows` replaced by `others`."""
    source = np.arange(len(values))
    source[rows] = len(values) + np.arange(len(others))
    return pa.concat_arrays([values, others]).take(indices(source))


def _timestamps(milliseconds: npt.NDArray[np.generic]) -> pa.Array:
    return numbers(milliseconds.astype(np.int64) * 1000, _MICROSECONDS)


def _hosts(stored: pa.Array) -> pa.Array:
    """Hosts as text. Few hosts send many messages, so each distinct host is converted once."""
    hosts = stored.dictionary_encode()
    return words([host_text(host) for host in hosts.dictionary.to_pylist()]).take(hosts.indices)
