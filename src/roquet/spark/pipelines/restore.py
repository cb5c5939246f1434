"""From an archive back into a cluster.

restore(spark, Restore("/data/archive", "127.0.0.1:9876", topics=("orders",), since_ms=1763700000000))
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from pyspark.sql import SparkSession
from pyspark.sql import functions as f

from roquet.spark.pipelines.archive import read_archive
from roquet.spark.pipelines.choosing import ALL, Choice
from roquet.spark.pipelines.sending import send, sendable


@dataclass(frozen=True)
class Restore:
    """Which messages of an archive go where.

    `topics`: none are all; `to`: a topic for all of them, else each goes to its own. `rate`: messages a second.
    `options`: of the sink, such as delivery=effectively-once.
    """

    folder: str
    name_server: str
    topics: tuple[str, ...] = ()
    choice: Choice = ALL
    to: str | None = None
    keep_queues: bool = False
    rate: float | None = None
    options: Mapping[str, str] = field(default_factory=dict, repr=False)


Planned = Callable[[int], None]


def restore(spark: SparkSession, job: Restore, planned: Planned = lambda rows: None) -> int:
    """Send them; gives how many there were. Topics are made by brokers that make topics on demand, else before.

    :raises roquet.spark.pipelines.archive_state.ArchiveError: the archive cannot be used.
    """
    stored = read_archive(spark, job.folder)
    if job.topics:
        stored = stored.where(f.col("topic").isin(*job.topics))
    chosen = job.choice.of(stored)
    rows = chosen.count()
    planned(rows)
    topic = f.col("topic") if job.to is None else f.lit(job.to)
    if rows:
        messages = sendable(chosen, topic, keep_queues=job.keep_queues)
        send(messages, {"nameServer": job.name_server, **job.options}, job.rate)
    return rows
