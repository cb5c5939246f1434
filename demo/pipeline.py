"""The Spark half: the topic into an archive of Parquet, and back into figures."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from demo.flights import TOPIC
from demo.report import DelaysByCarrier, delays_in, flights_in
from roquet.spark.pipelines.archive.job import Archive, archive
from roquet.spark.pipelines.archive.sources import Topics
from roquet.spark.session import session


@dataclass(frozen=True)
class Archived:
    """What Spark found in the topic and made of it."""

    messages: int
    flights: int
    months: int
    delays: DelaysByCarrier


def archive_flights(name_server: str, folder: Path) -> Archived:
    """Archive the topic from its brokers, compute from what is in the archive."""
    spark = session(
        "roquet demo", **{"spark.driver.memory": "1g", "spark.sql.session.timeZone": "UTC"}
    )
    spark.sparkContext.setLogLevel("ERROR")
    try:
        done = archive(spark, Archive(Topics(name_server, (TOPIC,)), str(folder)))
        stored = flights_in(spark, folder)
        return Archived(
            done.rows,
            stored.select("key").distinct().count(),
            stored.select("month").distinct().count(),
            delays_in(stored),
        )
    finally:
        spark.stop()
