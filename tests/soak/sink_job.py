"""A Spark program whose tasks and driver die between sending and committing, and its second life.

`python -m tests.soak.sink_job NAME_SERVER FOLDER die` writes a batch; the Python worker of one of
its tasks is killed when all its rows are stored. Then it starts two streams, one with each kind of
delivery, which hang in the commit of their first batch: whoever started this kills it there. With
`finish` the streams go on at their checkpoints.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSourceStreamWriter, DataSourceWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from roquet.spark._options.write import WriteOptions
from roquet.spark._write.send import Written
from roquet.spark._write.sink import RocketMQStreamWriter, RocketMQWriter
from roquet.spark.session import session
from roquet.spark.source import RocketMQSource

DELIVERIES: Final = ("at-least-once", "effectively-once")
BATCH_TOPIC: Final = "batch"
ROWS: Final = 1000
PARTITIONS: Final = 2
KILLED: Final = "killed"
FOLDER: Final = "SINK_JOB_FOLDER"


def is_first(name: str) -> bool:
    """Whether this was not asked before, by whatever process."""
    try:
        Path(os.environ[FOLDER], name).touch(exist_ok=False)
    except FileExistsError:
        return False
    return True


class DyingWriter(RocketMQWriter):
    """The worker of its second partition is killed once, when it has sent everything."""

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        written = super().write(iterator)
        context = TaskContext.get()
        assert context is not None
        if context.partitionId() == 1 and is_first(KILLED):
            os.kill(os.getpid(), signal.SIGKILL)
        return written


class HangingWriter(RocketMQStreamWriter):
    """Its first commit never ends."""

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        Path(os.environ[FOLDER], f"commits-{self._options.topic}").touch()
        time.sleep(600)


class DyingSource(RocketMQSource):
    """The sink under test, with an end at the worst moment."""

    @classmethod
    def name(cls) -> str:
        return "dying"

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        return DyingWriter(WriteOptions.of(self.options), schema, overwrite=overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: N802
        return HangingWriter(WriteOptions.of(self.options), schema, overwrite=overwrite)


def write_batch(spark: SparkSession, name_server: str) -> None:
    rows = spark.range(ROWS, numPartitions=PARTITIONS).selectExpr("cast(id AS string) AS body")
    writer = (
        rows.write.format("dying").option("nameServer", name_server).option("topic", BATCH_TOPIC)
    )
    writer.option("delivery", "effectively-once").mode("append").save()


def stream(spark: SparkSession, name_server: str, folder: Path, sink: str) -> None:
    rows = (
        spark.readStream.schema("value string").text(str(folder / "in")).selectExpr("value AS body")
    )
    for delivery in DELIVERIES:
        writer = (
            rows.writeStream.format(sink)
            .option("nameServer", name_server)
            .option("delivery", delivery)
        )
        writer = writer.option("topic", f"stream-{delivery}").option(
            "checkpointLocation", str(folder / delivery)
        )
        writer.trigger(availableNow=True).start()
    while spark.streams.active:
        spark.streams.awaitAnyTermination()
        spark.streams.resetTerminated()


def main(name_server: str, folder: Path, life: str) -> None:
    os.environ[FOLDER] = str(folder)
    spark = session(
        "sink-job", **{"spark.master": f"local[{PARTITIONS},4]", "spark.driver.memory": "1g"}
    )
    if life == "die":
        spark.dataSource.register(DyingSource)
        write_batch(spark, name_server)
    stream(spark, name_server, folder, "dying" if life == "die" else "rocketmq")
    spark.stop()


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), sys.argv[3])
