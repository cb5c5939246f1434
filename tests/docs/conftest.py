"""What the tests of the documentation share: a cluster to run it against, and the Spark session of
all tests.
"""

from __future__ import annotations

import asyncio
import os
import threading
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
    """A fresh cluster in a thread of its own: what is tested may block, or run event loops."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, name="cluster")
    thread.start()
    running = Cluster()
    try:
        asyncio.run_coroutine_threadsafe(running.start(), loop).result(30)
        yield running
    finally:
        asyncio.run_coroutine_threadsafe(running.stop(), loop).result(30)
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()
