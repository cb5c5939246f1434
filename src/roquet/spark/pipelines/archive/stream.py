"""Archives topics continuously: a sequence of changes of an archive, each of bounded size.

job = Archive(Topics("127.0.0.1:9876", ("orders",)), "/data/archive")
for added in archive_stream(spark, job, ArchiveTrigger(trigger_s=10)):
    print(added.rows)

There is no checkpoint: the archive's own state has the next offset of each queue. So a stream can
continue what a batch archived, and the other way round (decision 0019).
"""

from __future__ import annotations

import time
from collections.abc import Generator
from dataclasses import dataclass
from typing import Final

from pyspark.sql import SparkSession

from roquet.spark.pipelines._shared.job_size import Planned, ignore_size
from roquet.spark.pipelines.archive.backend import Archived
from roquet.spark.pipelines.archive.job import Archive, add
from roquet.spark.pipelines.archive.plan import batch_of, ends

IDLE_S: Final = 1.0
"""Seconds that a stream waits at least after it found no new messages."""


@dataclass(frozen=True)
class ArchiveTrigger:
    """The schedule and size of the batches of an archive stream.

    `trigger_s`: seconds from the start of one batch to the start of the next, if the first is done
    by then. `rows_max`: maximum messages of a batch. `available_now`: stop at the ends that the
    queues had when the stream started, with no pause between batches.
    """

    trigger_s: float = 0.0
    rows_max: int | None = None
    available_now: bool = False


def archive_stream(
    spark: SparkSession, job: Archive, trigger: ArchiveTrigger, planned: Planned = ignore_size
) -> Generator[Archived, None, None]:
    """Archive new messages batch by batch. Yields the result of each batch that had messages.

    New queues, brokers and topics are archived, too. Raises as `archive` does.
    """
    backend = job.backend
    until = None
    while True:
        began = time.monotonic()
        with backend.changing(spark) as change:
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
        # With available_now there is no pause, unless a queue waits for its master.
        if until is None or is_idle:
            time.sleep(
                max(IDLE_S if is_idle else 0.0, began + trigger.trigger_s - time.monotonic())
            )
