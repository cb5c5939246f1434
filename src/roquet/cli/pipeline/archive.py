"""`roquet pipeline archive`: arguments and output of the archive job."""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Final

import click

from roquet.cli.access import access_values, cluster_options
from roquet.cli.output import end
from roquet.cli.pipeline.progress import JobProgress
from roquet.cli.pipeline.session import (
    file_format_option,
    on_spark,
    read_options,
    topic_options,
)
from roquet.cli.values import duration, names

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from roquet.spark.pipelines.archive.backend import Archived, Compacted
    from roquet.spark.pipelines.archive.job import Archive, Compaction
    from roquet.spark.pipelines.archive.sources import Source
    from roquet.spark.pipelines.archive.stream import ArchiveTrigger

FILES_MIN_OF_A_STREAM: Final = 16
"""How many small files a day must have before a stream compacts them.

Compaction writes all small files of that day once more, so a low number would cost more.
"""


@click.command(short_help="Archive topics to Parquet, each message once.")
@click.argument("folder", metavar="FOLDER")
@cluster_options
@topic_options
@click.option(
    "--store-dir",
    "stores",
    default="",
    metavar="DIR[,DIR]",
    callback=names,
    help="Read the store directories of brokers, running or not, instead of pulling.",
)
@click.option(
    "-b",
    "--broker",
    "brokers",
    default="",
    metavar="NAME[,NAME]",
    callback=names,
    help="The brokerName of each --store-dir, as in its broker.conf.",
)
@click.option(
    "--stream", "is_stream", is_flag=True, help="Go on with new messages until interrupted."
)
@click.option(
    "--trigger",
    "trigger_s",
    default="10s",
    show_default=True,
    metavar="TIME",
    callback=duration,
    help="With --stream: the time between batches, such as 30s, 5m, 1h.",
)
@click.option("--available-now", is_flag=True, help="With --stream: stop where the queues end now.")
@click.option(
    "--max-rows",
    "rows_max",
    type=click.IntRange(1),
    help="With --stream: the largest number of messages in a batch.",
)
@file_format_option
@click.option("--compact", "compacts", is_flag=True, help="Merge the small files of each day.")
@read_options
@on_spark
def archive(
    spark: SparkSession,
    folder: str,
    is_stream: bool,
    trigger_s: float,
    available_now: bool,
    rows_max: int | None,
    file_format: str,
    compacts: bool,
    as_json: bool,
    **which: Any,
) -> None:
    """Add all messages that are not archived yet to FOLDER: Parquet by topic and store date (UTC).

    FOLDER keeps the offset of each queue. So each message is archived once, however often the
    command is run or killed, as a stream or not, from brokers or from their files. With --compact
    and without a topic, files are merged and nothing is added.
    """
    from roquet.spark.pipelines.archive.job import Archive, Compaction
    from roquet.spark.pipelines.archive.stream import ArchiveTrigger

    if (available_now or rows_max) and not is_stream:
        end("--available-now and --max-rows need --stream")
    source = _source(may_be_none=compacts and not is_stream, **which)
    if source is not None:
        job = Archive(source, folder, file_format)
        if is_stream:
            return _stream(
                spark, job, ArchiveTrigger(trigger_s, rows_max, available_now), compacts, as_json
            )
        _once(spark, job, as_json)
    if compacts:
        _compact(spark, Compaction(folder, file_format=file_format), as_json)
    return None


def _source(
    *,
    may_be_none: bool,
    name_server: str,
    topics: tuple[str, ...],
    pattern: str,
    stores: tuple[str, ...],
    brokers: tuple[str, ...],
    options: dict[str, str],
) -> Source | None:
    from roquet.spark.pipelines.archive.sources import StoredTopics, Topics

    if bool(topics) == bool(pattern):
        if may_be_none and not topics:
            return None
        end("give topics with -t or --pattern, or --compact alone")
    if stores:
        return StoredTopics(stores, brokers, topics, pattern, options)
    if brokers:
        end("--broker needs --store-dir: it names the broker of a store directory")
    return Topics(name_server, topics, pattern, access_values() | options)


def _once(spark: SparkSession, job: Archive, as_json: bool) -> None:
    from roquet.spark.pipelines.archive.job import archive as add_to_archive

    with JobProgress(spark, "archiving", as_json=as_json) as progress:
        added = add_to_archive(spark, job, progress.planned)
    _show_added(added, as_json)


def _stream(
    spark: SparkSession, job: Archive, trigger: ArchiveTrigger, compacts: bool, as_json: bool
) -> None:
    """Archive until an interrupt. A batch that is interrupted adds nothing to the archive."""
    from roquet.spark.pipelines.archive.job import Compaction, compact
    from roquet.spark.pipelines.archive.stream import archive_stream

    small = Compaction(job.folder, files_min=FILES_MIN_OF_A_STREAM, file_format=job.file_format)
    with (
        suppress(KeyboardInterrupt),
        JobProgress(spark, "archiving", as_json=as_json) as progress,
    ):
        for added in archive_stream(spark, job, trigger, progress.planned):
            _show_added(added, as_json)
            if compacts and (done := compact(spark, small)).days:
                _show_compacted(done, as_json)


def _compact(spark: SparkSession, job: Compaction, as_json: bool) -> None:
    from roquet.spark.pipelines.archive.job import compact

    with JobProgress(spark, "compacting", as_json=as_json):
        done = compact(spark, job)
    _show_compacted(done, as_json)


def _show_added(done: Archived, as_json: bool) -> None:
    text = f"{done.rows:,} messages in {done.files:,} files added, {done.rows_in_all:,} in all"
    click.echo(json.dumps(asdict(done)) if as_json else text)


def _show_compacted(done: Compacted, as_json: bool) -> None:
    text = f"{done.files_before:,} files merged into {done.files_after:,}"
    click.echo(json.dumps(asdict(done)) if as_json else text)
