"""Reads the records of one part of a store as Arrow batches."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from roquet.protocol.records.block import RecordBlock
from roquet.protocol.records.columns import Ints
from roquet.protocol.records.record import BAD_CHECKSUM
from roquet.spark._arrow.columns import BadBody, decode
from roquet.spark._arrow.corrupt import of_messages, with_corrupt
from roquet.spark._arrow.records import Records
from roquet.spark._options.store import StoreOptions
from roquet.spark._storefiles.chunks import StorePart, read_blocks
from roquet.spark._storefiles.damage import DamageReport
from roquet.spark._storefiles.rows import RowChoice
from roquet.storetool.read.log_scanner import Damage


def read(part: StorePart, options: StoreOptions, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """The messages of a part as batches with the columns of `schema`.

    Files are read, not mapped. If a broker truncates or deletes a file meanwhile, the read raises
    an error; an access to a mapping would kill the process.

    :raises roquet.spark._storefiles.damage.CorruptStore: bytes are no valid record, and mode is
        FAILFAST.
    """
    report = DamageReport(part.log, options.mode, schema, part.broker_name)
    rows = _Rows(part, options, schema)
    for piece in read_blocks(part, rows.choice.wants):
        found = rows.of(piece) if isinstance(piece, RecordBlock) else [piece]
        for each in found:
            batch = report.of(each) if isinstance(each, Damage) else each
            if batch is not None and batch.num_rows:
                yield batch
    report.close(part.start, part.end)


class _Rows:
    """Converts blocks of valid records to batches."""

    def __init__(self, part: StorePart, options: StoreOptions, schema: pa.Schema) -> None:
        self._broker_name = part.broker_name
        self._tags, self._check_crc = options.tags, options.check_crc
        self._uncompressed_max = options.uncompressed_max
        self.choice = RowChoice(options, part.broker_name)
        self._schema = schema
        self._of_messages = of_messages(schema)

    def of(self, block: RecordBlock) -> Iterator[pa.RecordBatch | Damage]:
        rows = self.choice.of(block)
        if not len(rows):
            return
        if self._check_crc:
            bad = block.changed_among(rows)
            yield from (_damage(block, number, BAD_CHECKSUM) for number in bad)
            rows = np.setdiff1d(rows, bad) if bad else rows
        yield from self._decoded(block, rows)

    def _decoded(self, block: RecordBlock, rows: Ints) -> Iterator[pa.RecordBatch | Damage]:
        decoding = decode(
            Records.of_block(block, rows),
            self._of_messages,
            broker_name=self._broker_name,
            tags=self._tags,
            uncompressed_max=self._uncompressed_max,
        )
        for each in decoding:
            if isinstance(each, BadBody):
                yield _damage(
                    block,
                    int(np.searchsorted(block.starts, each.at)),
                    f"{each.place}: {each.reason}",
                )
            else:
                yield with_corrupt(each, self._schema)


def _damage(block: RecordBlock, number: int, reason: str) -> Damage:
    start = int(block.physical[number])
    return Damage(start, start + int(block.sizes[number]), reason)
