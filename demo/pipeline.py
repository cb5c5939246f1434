"""The Spark half: the topic to Parquet by month, and back into figures."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from demo.flights import TOPIC
from demo.report import DelaysByCarrier, delays_in_parquet, flight_columns
from roquet.spark.session import session


@dataclass(frozen=True)
class Archive:
    """What Spark found in the topic and made of it."""

    messages: int
    flights: int
    months: int
    delays: DelaysByCarrier


def archive(name_server: str, folder: Path) -> Archive:
    """Read the topic from its brokers, write Parquet partitioned by month, compute from that."""
    spark = session("roquet demo", **{"spark.driver.memory": "1g", "spark.sql.session.timeZone": "UTC"})
    spark.sparkContext.setLogLevel("ERROR")
    try:
        reader = spark.read.format("rocketmq").option("nameServer", name_server).option("subscribe", TOPIC)
        flights = flight_columns(reader.load())
        flights.write.partitionBy("month").parquet(str(folder))
        stored = spark.read.parquet(str(folder))
        return Archive(
            stored.count(),
            stored.select("key").distinct().count(),
            stored.select("month").distinct().count(),
            delays_in_parquet(spark, folder),
        )
    finally:
        spark.stop()
