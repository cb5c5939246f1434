"""`format("ready")`: a Python data source with nothing to do but to hand Arrow files to Spark; none
is faster.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from roquet.spark._arrow.schema import ARROW_SCHEMA

BATCH_ROWS: Final = 8192
COLUMNS: Final = ["topic", "queueId", "queueOffset", "storeTimestamp", "body"]
_SCHEMA: Final = pa.schema([ARROW_SCHEMA.field(name) for name in COLUMNS])


def make_ready(rows: Path, folder: Path) -> None:
    """Arrow files with the rows of a folder of Parquet that has these columns, one for each of its
    files.
    """
    folder.mkdir()
    for number, file in enumerate(sorted(rows.glob("*.parquet"))):
        table = pq.read_table(file, coerce_int96_timestamp_unit="us").cast(_SCHEMA)
        with (
            pa.OSFile(str(folder / f"{number}.arrow"), "wb") as sink,
            pa.ipc.new_file(sink, _SCHEMA) as writer,
        ):
            writer.write_table(table, max_chunksize=BATCH_ROWS)


class ReadySource(DataSource):
    @classmethod
    def name(cls) -> str:
        return "ready"

    def reader(self, schema: StructType) -> DataSourceReader:
        return ReadyReader(Path(self.options["path"]))


class ReadyReader(DataSourceReader):
    """A task for each file."""

    def __init__(self, folder: Path) -> None:
        self._files = sorted(folder.iterdir())

    def partitions(self) -> list[InputPartition]:
        return [InputPartition(file) for file in self._files]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        with pa.memory_map(str(partition.value)) as mapped, pa.ipc.open_file(mapped) as file:
            for number in range(file.num_record_batches):
                yield file.get_batch(number)
