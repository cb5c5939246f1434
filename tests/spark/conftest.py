"""The one Spark session of all tests that need one, and a broker for a module's sinks."""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from roquet.spark.session import session
from tests.interop.ground import Ground

QUEUES = 3
"""Of each topic that a test is given."""


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    conf = {
        "spark.master": "local[2]",
        "spark.driver.memory": "1g",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.session.timeZone": "UTC",
    }
    running = session("tests", **conf)
    running.sparkContext.setLogLevel("ERROR")
    yield running
    running.stop()


@pytest.fixture(scope="module")
def ground() -> Iterator[Ground]:
    """A name server and a broker of ours."""
    with Ground(is_apache=False) as running:
        yield running


@pytest.fixture
def topic(ground: Ground) -> str:
    """A new one, with three queues."""
    name = f"T-{uuid.uuid4().hex[:8]}"
    ground.create_topic(name, QUEUES)
    return name
