"""Spark's Python processes, as our sessions and sources leave them."""

from __future__ import annotations

import gc
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from roquet.spark._options.store import StoreOptions
from roquet.spark._storefiles.batch import RocketMQStoreReader
from roquet.spark._worker import begin_task
from roquet.spark.store_source import RocketMQStoreSource
from tests.allocation import IS_GLIBC, page_faults
from tests.storetool.stores import filled

pytestmark = pytest.mark.spark


class Probe(RocketMQStoreReader):
    """Reads as it would anyway; its rows tell how much the worker leaves out when it collects
    garbage, and what large buffers cost it.
    """

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        for _ in super().read(partition):
            faults = page_faults() if IS_GLIBC else 0
            yield pa.record_batch(
                {"queueOffset": [gc.get_freeze_count()], "commitLogOffset": [faults]}
            )


class ProbeSource(RocketMQStoreSource):
    @classmethod
    def name(cls) -> str:
        return "probe"

    def reader(self, schema: StructType) -> DataSourceReader:
        return Probe(StoreOptions.of(self.options), schema)


def test_workers_that_read_are_set_up_for_it(spark: SparkSession, tmp_path: Path) -> None:
    filled(tmp_path, 20)
    spark.dataSource.register(ProbeSource)

    rows = (
        spark.read.format("probe")
        .schema("queueOffset long, commitLogOffset long")
        .load(str(tmp_path))
        .collect()
    )

    assert min(row.queueOffset for row in rows) > 10_000
    assert max(row.commitLogOffset for row in rows) < 1000


def test_looking_which_sources_there_are_loads_little() -> None:
    code = "import sys, pyspark_rocketmq, pyspark_rocketmq_store; assert not {'numpy', 'pyarrow'} & set(sys.modules)"

    subprocess.run([sys.executable, "-c", code], check=True)


def test_other_processes_collect_as_they_did() -> None:
    begin_task()

    assert gc.get_freeze_count() == 0


def test_java_and_python_talk_over_unix_sockets(spark: SparkSession) -> None:
    assert spark.conf.get("spark.python.unix.domain.socket.enabled") == "true"
