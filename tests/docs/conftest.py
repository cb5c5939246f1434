"""What the tests of the documentation share: a cluster to run it against, and the Spark session of
all tests.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from roquet.dev import Cluster
from tests.spark.conftest import spark as spark_of_all_tests

__all__ = ["spark_of_all_tests"]


@pytest.fixture(scope="session")
def spark(request: pytest.FixtureRequest) -> Iterator[SparkSession]:
    """The session of all tests. That it had to look for a Java is nothing to the tests in
    between.
    """
    before = os.environ.get("JAVA_HOME")
    session: SparkSession = request.getfixturevalue("spark_of_all_tests")
    with pytest.MonkeyPatch.context() as environment:
        if before is None:
            environment.delenv("JAVA_HOME", raising=False)
        else:
            environment.setenv("JAVA_HOME", before)
        yield session


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    """A fresh cluster."""
    with Cluster() as running:
        yield running
