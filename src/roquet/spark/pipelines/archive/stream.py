"""The same archive, kept up: a stream is one change of it after the other, each of a bounded number of messages.

for added in archive_stream(spark, Archive(Topics("127.0.0.1:9876", ("orders",)), "/data/archive"), Pace(trigger_s=10)):
    print(added.rows)

Keeps: the archive's own state says how far the stream is, so there is no checkpoint, and a stream may go on where a
       batch ended, and the other way round (decision 0019).
"""

from __future__ import annotations

import time
from collections.abc import Generator
from dataclasses import dataclass
from typing import Final

from pyspark.sql import SparkSession

from roquet.spark.pipelines._shared.job_size import Planned, nobody_asks
from roquet.spark.pipelines.archive.change import Archived
from roquet.spark.pipelines.archive.job import Archive, add
from roquet.spark.pipelines.archive.plan import batch_of, ends

IDLE_S: Final = 1.0
"""So long a stream waits at least after it found nothing."""


@dataclass(frozen=True)
class ArchiveTrigger:
    """A batch begins `trigger_s` after the one before began, or when that is done; it takes `rows_max` at most.

    `available_now`: batches follow each other to where the queues ended when the stream began; there it ends, too.
    """

    trigger_s: float = 0.0
    rows_max: int | None = None
    available_now: bool = False


def archive_stream(
    spark: SparkSession, job: Archive, trigger: ArchiveTrigger, planned: Planned = nobody_asks
) -> Generator[Archived, None, None]:
    """Add to the archive what comes, batch by batch; gives each that had messages, when it is part of the archive.

    New queues, brokers and topics are found by themselves. Raises as `archive`.
    """
    keeper, until = job.keeper, None
    while True:
        began = time.monotonic()
        with keeper.changing(spark) as change:
            backlog = job.source.backlog(spark, change.progress)
            if trigger.available_now and until is None:
                until = ends(backlog)
            batch = batch_of(backlog, until, trigger.rows_max)
            added = add(spark, change, job.source, batch, planned)
        is_idle = not any(each.size for each in batch)
        if not is_idle:
            yield added
        if until is not None and all(until[queue] == end for queue, end in ends(batch).items()):
            return
        if (
            until is None or is_idle
        ):  # to an end that is settled, only a queue that waits for its master holds up
            time.sleep(
                max(IDLE_S if is_idle else 0.0, began + trigger.trigger_s - time.monotonic())
            )
