"""The records of one part of a store as Arrow batches."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from roquet.errors import CorruptRecord
from roquet.inspect.log_walk import Damage
from roquet.protocol.columns import Ints
from roquet.protocol.record_block import RecordBlock
from roquet.spark.columns import Records, decode
from roquet.spark.store_damage import CORRUPT, DamageReport
from roquet.spark.store_options import StoreOptions
from roquet.spark.store_pieces import StorePart, pieces
from roquet.spark.store_rows import RowChoice


def read(part: StorePart, options: StoreOptions, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """The messages of a part as batches with the columns of `schema`.

    The files are read, not mapped: one that its broker cuts or deletes meanwhile is an error, not the process's end.

    :raises roquet.spark.store_damage.CorruptStore: some bytes are no record, and mode is FAILFAST.
    """
    report = DamageReport(part.log, options.mode, schema, part.broker_name)
    rows = _Rows(part, options, schema)
    for piece in pieces(part, rows.choice.wants):
        found = rows.of(piece) if isinstance(piece, RecordBlock) else [piece]
        for each in found:
            batch = report.of(each) if isinstance(each, Damage) else each
            if batch is not None and batch.num_rows:
                yield batch


class _Rows:
    """Turns blocks of sound records into batches."""

    def __init__(self, part: StorePart, options: StoreOptions, schema: pa.Schema) -> None:
        self._broker_name = part.broker_name
        self._tags, self._check_crc = options.tags, options.check_crc
        self.choice = RowChoice(options, part.broker_name)
        self._schema = schema
        self._of_messages = pa.schema([column for column in schema if column.name != CORRUPT])

    def of(self, block: RecordBlock) -> Iterator[pa.RecordBatch | Damage]:
        rows = self.choice.of(block)
        if not len(rows):
            return
        if self._check_crc:
            bad = block.changed_among(rows)
            yield from (_damage(block, number, "its body does not have the stored checksum") for number in bad)
            rows = np.setdiff1d(rows, bad) if bad else rows
        yield from self._decoded(block, rows)

    def _decoded(self, block: RecordBlock, rows: Ints) -> Iterator[pa.RecordBatch | Damage]:
        while len(rows):
            records = Records.of_block(block, rows)
            try:
                batch = decode(records, self._of_messages, broker_name=self._broker_name, tags=self._tags)
            except CorruptRecord as error:
                number = int(np.searchsorted(block.starts, error.at))
                yield _damage(block, number, error.reason)
                rows = rows[rows != number]
                continue
            yield self._with_corrupt(batch)
            return

    def _with_corrupt(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        if CORRUPT not in self._schema.names:
            return batch
        arrays = list(batch.columns)
        arrays.insert(self._schema.names.index(CORRUPT), pa.nulls(batch.num_rows, pa.string()))
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema)


def _damage(block: RecordBlock, number: int, reason: str) -> Damage:
    start = int(block.physical[number])
    return Damage(start, start + int(block.sizes[number]), reason)
