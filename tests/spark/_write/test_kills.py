"""A Python worker that is killed between sending and committing; with its driver, and both
deliveries: `tests/soak`.
"""

from __future__ import annotations

import os
import signal
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pyarrow as pa
import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSourceStreamWriter
from pyspark.sql.types import StructType

from roquet.spark._options.write import WriteOptions
from roquet.spark._write.send import Written
from roquet.spark._write.sink import RocketMQStreamWriter
from roquet.spark.source import RocketMQSource
from tests.interop.ground import Ground
from tests.spark.written import numbers, stored

pytestmark = [pytest.mark.spark, pytest.mark.process, pytest.mark.long]

ROWS: Final = 300


def test_a_stream_whose_worker_is_killed_before_the_commit_finds_what_that_sent(
    spark: SparkSession, ground: Ground, topic: str, tmp_path: Path
) -> None:
    class DyingWriter(RocketMQStreamWriter):
        """Its worker is killed once, when it has sent everything."""

        killed = tmp_path / "killed"

        def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
            written = super().write(iterator)
            if not self.killed.exists():
                self.killed.touch()
                os.kill(os.getpid(), signal.SIGKILL)
            return written

    class DyingSource(RocketMQSource):
        @classmethod
        def name(cls) -> str:
            return "dying-sink"

        def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: N802
            return DyingWriter(WriteOptions.of(self.options), schema, overwrite=overwrite)

    def run() -> None:
        rows = (
            spark.readStream.schema("value string")
            .text(str(tmp_path / "in"))
            .selectExpr("value AS body")
        )
        writer = (
            rows.writeStream.format("dying-sink")
            .option("nameServer", ground.namesrv)
            .option("topic", topic)
        )
        writer = writer.option("delivery", "effectively-once").option(
            "checkpointLocation", str(tmp_path / "done")
        )
        writer.trigger(availableNow=True).start().awaitTermination()

    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "rows.txt").write_text("".join(f"{number}\n" for number in range(ROWS)))
    spark.dataSource.register(DyingSource)
    with pytest.raises(StreamingQueryException, match="Python worker exited unexpectedly"):
        run()
    assert len(stored(ground.namesrv, topic)) == ROWS
    run()
    assert Counter(numbers(stored(ground.namesrv, topic))) == Counter(range(ROWS))
