"""Bodies as they were sent: decompressed some at a time, for what is stored in little may be much (PURE but for Arrow's
codecs).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final

import numpy as np
import pyarrow as pa

from roquet.errors import MessageError
from roquet.protocol.records.columns import Bools, Ints
from roquet.protocol.records.compression import inflated, name_of, too_large
from roquet.protocol.records.message import (
    COMPRESSED,
    COMPRESSION_LZ4,
    COMPRESSION_TYPE_BITS,
    COMPRESSION_ZLIB,
    COMPRESSION_ZSTD,
)
from roquet.protocol.records.record import SIZE_MIN, Record

PART_BYTES: Final = 8 << 20
"""Records of so many bytes, their bodies as they were sent, make one batch of rows, or one record that is larger. Spark
gets several batches of a chunk then, and a task has no more than one of them in its memory."""
_CODECS: Final = {COMPRESSION_LZ4: "lz4", COMPRESSION_ZSTD: "zstd"}


@dataclass(frozen=True)
class Part:
    """Some records, by their ascending numbers, and the bodies of those among them that were compressed."""

    rows: Ints
    plain: Sequence[bytes] = field(repr=False)


@dataclass(frozen=True)
class Unreadable:
    """The body of the record with this number cannot be had."""

    row: int
    reason: str


def parts(
    sizes: Ints, is_compressed: Bools, body: Callable[[int], bytes]
) -> Iterator[Part | Unreadable]:
    """Records in their order, as many at a time as make `PART_BYTES`.

    :param sizes: of the records as they are stored, of those that are compressed without their bodies.
    :param body: decompresses that of one record; raises `MessageError` where it cannot.
    """
    rows: list[int] = []
    plain: list[bytes] = []
    total = 0
    for row, (size, has_more) in enumerate(
        zip(sizes.tolist(), is_compressed.tolist(), strict=True)
    ):
        whole = None
        if has_more:
            try:
                whole = body(row)
            except MessageError as error:
                yield Unreadable(row, str(error))
                continue
            size += len(whole)
        if rows and total + size > PART_BYTES:
            yield Part(np.array(rows, np.int64), plain)
            rows, plain, total = [], [], 0
        rows.append(row)
        total += size
        if whole is not None:
            plain.append(whole)
    if rows:
        yield Part(np.array(rows, np.int64), plain)


def decompressed(stored: bytes, kind: int, size_max: int) -> bytes:
    """A body as it was before its sender compressed it; Arrow brings LZ4 and ZSTD along.

    :param kind: the compression bits of the sysFlag (`COMPRESSION_TYPE_BITS`).
    :raises MessageError: it is damaged, has more bytes than `size_max`, or there is no such kind in this Arrow.
    """
    if kind in (0, COMPRESSION_ZLIB):
        return inflated(stored, size_max)
    codec = _CODECS.get(kind)
    if codec is None or not pa.Codec.is_available(codec):
        raise MessageError(
            f"the body is compressed with {name_of(kind)}, which this pyarrow cannot undo"
        )
    try:
        with pa.input_stream(pa.py_buffer(stored), compression=codec) as stream:
            plain: bytes = stream.read(size_max + 1)
    except OSError as error:
        raise MessageError(f"the compressed body is damaged: {error}") from error
    if len(plain) > size_max:
        raise too_large(stored, size_max)
    return plain


def mean_size(records: Sequence[Record], size_max: int) -> int:
    """Bytes of a record on average, its body as it was sent; at least 1. A body that cannot be had counts as stored."""
    return max(1, sum(_size(record, size_max) for record in records) // max(1, len(records)))


def _size(record: Record, size_max: int) -> int:
    plain = len(record.body)
    if record.sys_flag & COMPRESSED:
        with suppress(MessageError):
            plain = len(
                decompressed(record.body, record.sys_flag & COMPRESSION_TYPE_BITS, size_max)
            )
    return SIZE_MIN + plain + len(record.topic) + len(record.properties_text)
