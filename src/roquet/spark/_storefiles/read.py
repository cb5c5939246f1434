"""Reads the records of one part of a store as Arrow batches."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from roquet.errors import RoquetError
from roquet.protocol.records.block import RecordBlock
from roquet.protocol.records.columns import Ints
from roquet.protocol.records.record import BAD_CHECKSUM
from roquet.spark._arrow.columns import BadBody, decode
from roquet.spark._arrow.corrupt import CORRUPT, DamageReport, of_messages, with_corrupt
from roquet.spark._arrow.records import Records
from roquet.spark._arrow.slices import numbers, words
from roquet.spark._options.store import StoreOptions
from roquet.spark._storefiles.chunks import StorePart, read_blocks
from roquet.spark._storefiles.rows import RowChoice
from roquet.storetool.files import SegmentFiles
from roquet.storetool.read.log_scanner import Damage


class CorruptStore(RoquetError):  # noqa: N818
    """A store has bytes that should be records but are not valid; see the option mode."""


def read(part: StorePart, options: StoreOptions, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """The messages of a part as batches with the columns of `schema`.

    Files are read, not mapped. If a broker truncates or deletes a file meanwhile, the read raises
    an error; an access to a mapping would kill the process.

    :raises CorruptStore: bytes are no valid record, and mode is FAILFAST.
    """
    report = DamageReport(options.mode, schema, CorruptStore)
    rows = _Rows(part, options, schema)
    for piece in read_blocks(part, rows.choice.wants):
        for each in rows.of(piece) if isinstance(piece, RecordBlock) else [piece]:
            if not isinstance(each, Damage):
                if each.num_rows:
                    yield each
            elif (corrupt := report.skip(_in_words(part.log, each))) is not None:
                yield _corrupt_row(part, each, corrupt, schema)
    report.close(f"{part.broker_name}[{part.start}, {part.end})")


class _Rows:
    """Converts blocks of valid records to batches."""

    def __init__(self, part: StorePart, options: StoreOptions, schema: pa.Schema) -> None:
        self.choice = RowChoice(options, part.broker_name)
        self._broker_name = part.broker_name
        self._options = options
        self._schema = schema
        self._of_messages = of_messages(schema)

    def of(self, block: RecordBlock) -> Iterator[pa.RecordBatch | Damage]:
        rows = self.choice.of(block)
        if not len(rows):
            return
        if self._options.check_crc:
            bad = block.changed_bodies(rows)
            yield from (_damage(block, number, BAD_CHECKSUM) for number in bad)
            rows = np.setdiff1d(rows, bad) if bad else rows
        yield from self._decoded(block, rows)

    def _decoded(self, block: RecordBlock, rows: Ints) -> Iterator[pa.RecordBatch | Damage]:
        decoding = decode(
            Records.of_block(block, rows),
            self._of_messages,
            broker_name=self._broker_name,
            tags=self._options.tags,
            uncompressed_max=self._options.uncompressed_max,
        )
        for each in decoding:
            if isinstance(each, BadBody):
                number = int(np.searchsorted(block.starts, each.at))
                yield _damage(block, number, f"{each.place}: {each.reason}")
            else:
                yield with_corrupt(each, self._schema)


def _damage(block: RecordBlock, number: int, reason: str) -> Damage:
    start = int(block.physical[number])
    return Damage(start, start + int(block.sizes[number]), reason)


def _in_words(log: SegmentFiles, damage: Damage) -> str:
    """A text with the file, the positions of the bytes in it, and what is wrong with them."""
    path, start = log.place(damage.start)
    size = damage.end - damage.start
    where = f"{path}, bytes {start} to {start + size - 1} ({size} bytes)"
    if not path.exists():
        return (
            f"{where}: there is no such file: it was deleted meanwhile, "
            "or this machine does not have it"
        )
    return f"{where}: {damage.reason}"


def _corrupt_row(
    part: StorePart, damage: Damage, corrupt: pa.Array, schema: pa.Schema
) -> pa.RecordBatch:
    known = {
        CORRUPT: corrupt,
        "brokerName": words([part.broker_name]),
        "commitLogOffset": numbers(np.array([damage.start], np.int64), pa.int64()),
    }
    arrays = [known.get(column.name, pa.nulls(1, column.type)) for column in schema]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)
