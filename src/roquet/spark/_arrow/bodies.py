"""Decompresses bodies part by part, because small stored bodies may become large ones.

PURE except for Arrow's codecs.
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
from roquet.protocol.records.layout import SIZE_MIN
from roquet.protocol.records.message import (
    COMPRESSED,
    COMPRESSION_LZ4,
    COMPRESSION_TYPE_BITS,
    COMPRESSION_ZLIB,
    COMPRESSION_ZSTD,
)
from roquet.protocol.records.record import Record

PART_BYTES: Final = 8 << 20
"""Bytes of records, with decompressed bodies, in one batch of rows; or one record that is larger.

A task has only one batch of a chunk in memory at a time.
"""
_CODECS: Final = {COMPRESSION_LZ4: "lz4", COMPRESSION_ZSTD: "zstd"}


@dataclass(frozen=True)
class Part:
    """The records of one batch: their ascending indices, and the bodies of the compressed ones."""

    rows: Ints
    plain: Sequence[bytes] = field(repr=False)


@dataclass(frozen=True)
class Unreadable:
    """The record at index `row` has a body that cannot be decompressed."""

    row: int
    reason: str


def split_by_size(
    sizes: Ints, is_compressed: Bools, body: Callable[[int], bytes]
) -> Iterator[Part | Unreadable]:
    """Split records into parts of at most `PART_BYTES` bytes, in their order.

    :param sizes: bytes of the stored records; of compressed ones without their bodies.
    :param body: decompresses the body of the record at an index; raises `MessageError` if it
        cannot.
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
    """Decompress a body. Arrow provides LZ4 and ZSTD.

    An empty body stays empty, as Apache's clients do not decompress it.

    :param kind: the compression bits of the sysFlag (`COMPRESSION_TYPE_BITS`).
    :raises MessageError: the body is damaged, has more than `size_max` bytes, or its compression is
        not supported by this Arrow.
    """
    if not stored:
        return b""
    if kind in (0, COMPRESSION_ZLIB):
        return inflated(stored, size_max)
    codec = _CODECS.get(kind)
    if codec is None or not pa.Codec.is_available(codec):
        raise MessageError(
            f"the body is compressed with {name_of(kind)}, which this pyarrow does not support"
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
    """The average bytes of a record with its decompressed body, at least 1.

    A body that cannot be decompressed counts with its stored size.
    """
    return max(1, sum(_size(record, size_max) for record in records) // max(1, len(records)))


def _size(record: Record, size_max: int) -> int:
    plain = len(record.body)
    if record.sys_flag & COMPRESSED:
        with suppress(MessageError):
            plain = len(
                decompressed(record.body, record.sys_flag & COMPRESSION_TYPE_BITS, size_max)
            )
    return SIZE_MIN + plain + len(record.topic) + len(record.properties_text)
