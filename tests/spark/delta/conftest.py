"""A session that knows Delta's tables, where their connector is: `make long` makes an environment
that has it.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from roquet.spark.pipelines.archive.delta import delta_conf
from roquet.spark.session import session
from tests.docs.conftest import cluster

__all__ = ["cluster"]


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    pytest.importorskip("delta", reason="delta-spark is not installed")
    conf = {
        "spark.master": "local[2]",
        "spark.driver.memory": "1g",
        "spark.sql.shuffle.partitions": "2",
    }
    running = session("delta", **delta_conf(), **conf)
    running.sparkContext.setLogLevel("ERROR")
    yield running
    running.stop()
