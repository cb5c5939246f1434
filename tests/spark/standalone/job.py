"""What a user runs: `python -m tests.spark.standalone.job MASTER NAME_SERVER TOPIC` prints JSON.

MASTER is a standalone cluster's, or `connect`: a Spark Connect server of its own, which this
program talks to by gRPC.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile

from pyspark.sql import DataFrame, SparkSession

from roquet.spark.java import ensure_java
from roquet.spark.session import session


def session_on(master: str) -> SparkSession:
    if master == "connect":
        ensure_java()
        os.environ["PYSPARK_PYTHON"] = sys.executable  # what a server's owner sees to
        return SparkSession.builder.remote("local[2]").getOrCreate()
    loopback = {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
    return session(
        "standalone", **loopback, **{"spark.master": master, "spark.executor.memory": "512m"}
    )


def executors(spark: SparkSession) -> int:
    """The driver is among those that have memory."""
    return int(spark.sparkContext._jsc.sc().getExecutorMemoryStatus().size()) - 1


def read(spark: SparkSession, name_server: str, topic: str) -> DataFrame:
    return spark.read.format("rocketmq").options(nameServer=name_server, subscribe=topic).load()


def summary(rows: DataFrame) -> dict[str, int]:
    """Of bodies that are numbers: how many there are and what they come to."""
    found = rows.selectExpr(
        "count(*) AS count", "sum(CAST(CAST(body AS STRING) AS BIGINT)) AS total"
    ).first()
    assert found is not None
    return found.asDict()


def copy(spark: SparkSession, name_server: str, topic: str, to: str, folder: str) -> None:
    """As a stream, which ends when all is copied that the topic has now."""
    source = {"nameServer": name_server, "subscribe": topic, "startingOffsets": "earliest"}
    sink = {"nameServer": name_server, "topic": to, "checkpointLocation": folder}
    rows = spark.readStream.format("rocketmq").options(**source).load().select("body")
    rows.writeStream.format("rocketmq").options(**sink).trigger(
        availableNow=True
    ).start().awaitTermination()


def main(master: str, name_server: str, topic: str) -> None:
    spark = session_on(master)
    told: dict[str, object] = {"read": summary(read(spark, name_server, topic))}
    with tempfile.TemporaryDirectory() as folder:
        copy(spark, name_server, topic, f"{topic}-copied", folder)
    if master != "connect":
        told["executors"] = executors(spark)
    sys.stdout.write(json.dumps(told) + "\n")
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
