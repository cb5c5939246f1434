"""Encodes rows as the bodies of send requests: all batches in one buffer, column by column.

See docs/protocol/messages.md#properties and docs/protocol/messages.md#batch.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator
from dataclasses import dataclass, replace
from itertools import compress
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from roquet.client._send.encoded_message import (
    BATCH_SIZE_MAX,
    BODY_SIZE_MAX,
    RECORD_OVERHEAD,
    EncodedMessage,
    encode_batch,
)
from roquet.protocol.records.batch import FIELDS, batch_item, split_batch
from roquet.protocol.records.compression import Compression
from roquet.protocol.records.message import (
    DELAY,
    KEYS,
    NAME_SEPARATOR,
    PROPERTIES_SIZE_MAX,
    PROPERTY_SEPARATOR,
    TAGS,
    UNIQ_KEY,
    WAIT,
)
from roquet.spark._arrow.slices import Bools, Ints, bits_in, constant, numbers_in
from roquet.spark._options.write import WriteOptions
from roquet.spark._write.rows import ROW_ID, SinkRows

KeyRun = Callable[[int], tuple[str, int]]
"""`UniqueKeys.run`: count -> the common prefix of that many unique keys, and the first counter."""

_HEAD: Final = np.dtype([(name, f">{code}") for name, code in FIELDS.items()])
_PROPERTIES_LENGTH: Final = np.dtype(">u2")
_BINARY: Final = pa.binary()
_NAME_END: Final = constant(NAME_SEPARATOR.encode())
_PAIR_END: Final = constant(PROPERTY_SEPARATOR.encode())
_NOTHING: Final = constant(b"")
_NULL: Final = pa.nulls(1, _BINARY)[0]
_HEX: Final = np.frombuffer(b"0123456789ABCDEF", np.uint8)
_ROW_DIGITS: Final = 10
_BROKER_ADDS: Final = 256
"""Bytes reserved for properties that the broker adds, such as the cluster's name."""


@dataclass(frozen=True)
class Piece:
    """The rows of one send request.

    `target` is the index of their queue among the topic's queues, or ANY_QUEUE. `rows` are their
    row numbers: those of a batch, or a single one.
    """

    target: int
    rows: Ints
    outgoing: EncodedMessage

    def without(self, rows: Container[int]) -> Piece:
        """A copy without the given rows."""
        kept = np.array([row not in rows for row in self.rows.tolist()])
        if kept.all() or not kept.any():
            return replace(self, rows=self.rows[kept])
        elements = (batch_item(*each) for each in split_batch(self.outgoing.body))
        body = b"".join(compress(elements, kept.tolist()))
        return replace(self, rows=self.rows[kept], outgoing=replace(self.outgoing, body=body))


def encode_pieces(
    rows: SinkRows,
    where: Ints,
    topic: str,
    options: WriteOptions,
    keys: KeyRun,
    id_prefix: str | None,
) -> Iterator[Piece]:
    """Encode rows as send requests. Rows with the same target keep their order.

    A row gets a request of its own if it is delayed, compressed, or too large for a batch.

    :param where: the target of each row.
    :param id_prefix: prefix of the row ids; None if the rows get no ids.
    :raises RowError: a row is too large.
    """
    if len(rows) == 0:
        return
    if where.min() != where.max():
        order = np.argsort(where, kind="stable")
        rows, where = rows.take(order), where[order]
    elements = _Elements(rows, topic, keys, id_prefix)
    alone = elements.alone(options)
    changes = np.flatnonzero((where[1:] != where[:-1]) | (alone[1:] != alone[:-1])) + 1
    for start, stop in zip([0, *changes.tolist()], [*changes.tolist(), len(rows)], strict=True):
        cut = elements.singles if alone[start] else elements.batches
        for first, last, outgoing in cut(start, stop, options):
            yield Piece(int(where[start]), rows.numbers[first:last], outgoing)


class _Elements:
    """All rows encoded as elements of a batch.

    Invariant: row i is in `_data` from `_edges[i]` to `_edges[i + 1]`; `_stored` has the same edges
    for the records that the broker makes of the rows.
    """

    def __init__(self, rows: SinkRows, topic: str, keys: KeyRun, id_prefix: str | None) -> None:
        self._rows = rows
        self._topic = topic
        self._properties = _properties(rows, keys, id_prefix)
        body_sizes = numbers_in(pc.binary_length(rows.body), np.int32).astype(np.int64)
        properties_sizes = numbers_in(pc.binary_length(self._properties), np.int32).astype(np.int64)
        self._refuse(body_sizes > BODY_SIZE_MAX, f"its body is larger than {BODY_SIZE_MAX} bytes")
        self._refuse(
            properties_sizes > PROPERTIES_SIZE_MAX - _BROKER_ADDS,
            f"its properties are larger than {PROPERTIES_SIZE_MAX - _BROKER_ADDS} bytes",
        )
        self._body_sizes = body_sizes
        self._flags = _flags(rows)
        elements = _joined(
            _fixed(_heads(self._flags, body_sizes, properties_sizes)),
            rows.body,
            _fixed(properties_sizes.astype(_PROPERTIES_LENGTH)),
            self._properties,
        )
        self._edges: Ints = np.frombuffer(elements.buffers()[1], np.int32, len(rows) + 1).astype(
            np.int64
        )
        self._data = memoryview(elements.buffers()[2])
        self._stored = self._edges + np.arange(len(rows) + 1) * (len(topic) + RECORD_OVERHEAD)

    def alone(self, options: WriteOptions) -> Bools:
        """Which rows cannot be part of a batch."""
        is_alone: Bools = np.diff(self._stored) > BATCH_SIZE_MAX
        if options.compress_from_size is not None:
            is_alone |= self._body_sizes >= options.compress_from_size
        if self._rows.delay_level is not None:
            is_alone |= bits_in(pc.greater(self._rows.delay_level, 0))
        return is_alone

    def batches(
        self, start: int, stop: int, options: WriteOptions
    ) -> Iterator[tuple[int, int, EncodedMessage]]:
        """Split rows into batches: (first row, end row, message).

        The option batchBytes bounds the records that the broker makes of a batch, not the batch
        itself.
        """
        while start < stop:
            fitting = (
                int(
                    np.searchsorted(self._stored, self._stored[start] + options.batch_size, "right")
                )
                - 1
            )
            end = min(stop, start + options.batch_rows, max(fitting, start + 1))
            body = bytes(self._data[self._edges[start] : self._edges[end]])
            yield start, end, encode_batch(self._topic, body, (), wait_stored=True)
            start = end

    def singles(
        self, start: int, stop: int, options: WriteOptions
    ) -> Iterator[tuple[int, int, EncodedMessage]]:
        levels = self._rows.delay_level
        from_size = options.compress_from_size
        compression = None if from_size is None else Compression.of("zlib", from_size)
        for row in range(start, stop):
            body = self._rows.body[row].as_py()
            sys_flag = 0
            if compression is not None:
                body, sys_flag = compression.apply(body)
            properties = f"{WAIT}{NAME_SEPARATOR}true{PROPERTY_SEPARATOR}"
            properties += self._properties[row].as_py().decode()
            level = levels[row].as_py() if levels is not None else None
            if level:
                properties += f"{PROPERTY_SEPARATOR}{DELAY}{NAME_SEPARATOR}{level}"
            yield (
                row,
                row + 1,
                EncodedMessage(self._topic, body, (), properties, int(self._flags[row]), sys_flag),
            )

    def _refuse(self, is_wrong: Bools, reason: str) -> None:
        if is_wrong.any():
            raise self._rows.error(int(is_wrong.argmax()), reason)


def _flags(rows: SinkRows) -> npt.NDArray[np.int32]:
    """The flag of each row; 0 for rows without one."""
    if rows.flag is None:
        return np.zeros(len(rows), np.int32)
    return numbers_in(pc.fill_null(rows.flag, 0), np.int32)


def _heads(
    flags: npt.NDArray[np.int32], body_sizes: Ints, properties_sizes: Ints
) -> npt.NDArray[np.void]:
    heads = np.zeros(len(body_sizes), _HEAD)
    heads["flag"] = flags
    heads["size"] = _HEAD.itemsize + body_sizes + _PROPERTIES_LENGTH.itemsize + properties_sizes
    heads["body_size"] = body_sizes
    return heads


def _properties(rows: SinkRows, keys: KeyRun, id_prefix: str | None) -> pa.Array:
    """The encoded properties of each row, without WAIT, which a batch has once for all messages."""
    parts = [_unique_keys(len(rows), keys)]
    if id_prefix is not None:
        parts.append(_row_ids(rows.numbers, id_prefix))
    if rows.tags is not None:
        parts.append(_pair(TAGS, rows.tags))
    if rows.keys is not None:
        parts.append(_pair(KEYS, rows.keys))
    if rows.properties is not None:
        parts.append(_pairs(rows.properties))
    return pc.binary_join_element_wise(*parts, _PAIR_END, null_handling="skip")


def _pair(name: str, values: pa.Array) -> pa.Array:
    """The encoded property of each row; null for rows whose value is null or empty."""
    pairs = pc.binary_join_element_wise(constant(name.encode()), values.cast(_BINARY), _NAME_END)
    return pc.if_else(pc.greater(pc.binary_length(values), 0), pairs, _NULL)


def _pairs(maps: pa.Array) -> pa.Array:
    each = pc.binary_join_element_wise(maps.keys.cast(_BINARY), maps.items.cast(_BINARY), _NAME_END)
    joined = pc.binary_join(pa.ListArray.from_arrays(maps.offsets, each), _PAIR_END)
    return pc.if_else(pc.greater(pc.binary_length(joined), 0), joined, _NULL)


def _unique_keys(count: int, keys: KeyRun) -> pa.Array:
    front, first = keys(count)
    counters = (first + np.arange(count)) & 0xFFFF
    digits = _HEX[(counters[:, None] >> np.array([12, 8, 4, 0])) & 0xF]
    return _numbered(f"{UNIQ_KEY}{NAME_SEPARATOR}{front}", digits)


def row_number(row_id: str) -> int:
    """The row number in a row id."""
    return int(row_id[-_ROW_DIGITS:])


def _row_ids(rows: Ints, front: str) -> pa.Array:
    digits = rows[:, None] // 10 ** np.arange(_ROW_DIGITS - 1, -1, -1) % 10 + ord("0")
    return _numbered(f"{ROW_ID}{NAME_SEPARATOR}{front}", digits.astype(np.uint8))


def _numbered(front: str, digits: npt.NDArray[np.uint8]) -> pa.Array:
    """A common prefix followed by the digits of each row, as a binary array."""
    rows, raw = len(digits), np.frombuffer(front.encode(), np.uint8)
    return _fixed(np.concatenate((np.broadcast_to(raw, (rows, len(raw))), digits), axis=1))


def _fixed(rows: npt.NDArray[np.generic]) -> pa.Array:
    """Rows of one fixed size, as a binary array."""
    width = rows.itemsize if rows.ndim == 1 else rows.shape[1]
    edges = np.arange(len(rows) + 1, dtype=np.int32) * np.int32(width)
    data = pa.py_buffer(np.ascontiguousarray(rows).view(np.uint8).reshape(-1))
    return pa.Array.from_buffers(_BINARY, len(rows), [None, pa.py_buffer(edges), data])


def _joined(*columns: pa.Array) -> pa.Array:
    return pc.binary_join_element_wise(*columns, _NOTHING)
