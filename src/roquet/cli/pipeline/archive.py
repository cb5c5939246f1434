"""`roquet pipeline archive`."""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Final

import click

from roquet.cli.access import access_values
from roquet.cli.output import end
from roquet.cli.pipeline.progress import JobProgress
from roquet.cli.pipeline.session import (
    file_format_option,
    json_option,
    name_servers,
    on_spark,
    read_options,
)
from roquet.cli.values import duration, names

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from roquet.spark.pipelines.archive.change import Archived, Compacted
    from roquet.spark.pipelines.archive.compaction import Compaction
    from roquet.spark.pipelines.archive.job import Archive
    from roquet.spark.pipelines.archive.sources import Source
    from roquet.spark.pipelines.archive.stream import ArchiveTrigger

FILES_MIN_OF_A_STREAM: Final = 16
"""So many small files a day has before a stream puts them together: each time they are all written once more."""


@click.command(short_help="Topics to Parquet, each message once.")
@click.argument("folder", metavar="FOLDER")
@name_servers
@click.option("-t", "--topic", "topics", multiple=True, help="A topic; may be repeated.")
@click.option(
    "--pattern", default="", metavar="REGEX", help="Topics whose whole names match, in place of -t."
)
@click.option(
    "--store-dir",
    "stores",
    default="",
    metavar="DIR[,DIR]",
    callback=names,
    help="Read the store directories of brokers, running or not, in place of asking brokers.",
)
@click.option(
    "-b",
    "--broker",
    "brokers",
    default="",
    metavar="NAME[,NAME]",
    callback=names,
    help="Whose store each --store-dir is: the brokerName of its broker.conf.",
)
@click.option(
    "--stream", "is_stream", is_flag=True, help="Go on with what comes, until it is interrupted."
)
@click.option(
    "--trigger",
    "trigger_s",
    default="10s",
    show_default=True,
    metavar="TIME",
    callback=duration,
    help="With --stream: how often, as in 30s, 5m, 1h.",
)
@click.option("--available-now", is_flag=True, help="With --stream: end where the queues end now.")
@click.option(
    "--max-rows",
    "rows_max",
    type=click.IntRange(1),
    help="With --stream: at most so many messages at once.",
)
@file_format_option
@click.option("--compact", "compacts", is_flag=True, help="Put small files of a day together.")
@read_options
@json_option
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
    """Add to the archive in FOLDER what the topics hold and it does not: Parquet by topic and day (UTC) of storing.

    FOLDER knows how far it is with each queue: however often this is run, or killed, from brokers or from their files,
    as a stream or not, each message is in it once. With --compact and no topic, files are put together and nothing is
    added.
    """
    from roquet.spark.pipelines.archive.compaction import Compaction
    from roquet.spark.pipelines.archive.job import Archive
    from roquet.spark.pipelines.archive.stream import ArchiveTrigger

    if (available_now or rows_max) and not is_stream:
        end("--available-now and --max-rows belong to a --stream")
    source = _source(may_be_none=compacts and not is_stream, **which)
    telling = _Telling(as_json)
    if source is not None:
        job = Archive(source, folder, file_format)
        if is_stream:
            return _stream(
                spark, job, ArchiveTrigger(trigger_s, rows_max, available_now), compacts, telling
            )
        _once(spark, job, telling)
    if compacts:
        _compact(spark, Compaction(folder, file_format=file_format), telling)
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
        end("name topics with -t or give a --pattern, or --compact alone")
    if stores:
        return StoredTopics(stores, brokers, topics, pattern, options)
    if brokers:
        end("--broker says whose store a --store-dir is")
    return Topics(name_server, topics, pattern, access_values() | options)


def _once(spark: SparkSession, job: Archive, telling: _Telling) -> None:
    from roquet.spark.pipelines.archive.job import archive as add_to_archive

    with JobProgress(spark, "archiving", as_json=telling.as_json) as progress:
        added = add_to_archive(spark, job, progress.planned)
    telling.added(added)


def _stream(
    spark: SparkSession, job: Archive, trigger: ArchiveTrigger, compacts: bool, telling: _Telling
) -> None:
    """An interrupt ends it: what was not added by then is nowhere."""
    from roquet.spark.pipelines.archive.compaction import Compaction, compact
    from roquet.spark.pipelines.archive.stream import archive_stream

    small = Compaction(job.folder, files_min=FILES_MIN_OF_A_STREAM, file_format=job.file_format)
    with (
        suppress(KeyboardInterrupt),
        JobProgress(spark, "archiving", as_json=telling.as_json) as progress,
    ):
        for added in archive_stream(spark, job, trigger, progress.planned):
            telling.added(added)
            if compacts and (done := compact(spark, small)).days:
                telling.compacted(done)


def _compact(spark: SparkSession, job: Compaction, telling: _Telling) -> None:
    from roquet.spark.pipelines.archive.compaction import compact

    with JobProgress(spark, "compacting", as_json=telling.as_json):
        done = compact(spark, job)
    telling.compacted(done)


@dataclass(frozen=True)
class _Telling:
    """What is printed of each change of the archive."""

    as_json: bool

    def added(self, done: Archived) -> None:
        text = f"{done.rows:,} messages in {done.files:,} files added, {done.rows_in_all:,} in all"
        click.echo(json.dumps(asdict(done)) if self.as_json else text)

    def compacted(self, done: Compacted) -> None:
        text = f"{done.files_before:,} files became {done.files_after:,}"
        click.echo(json.dumps(asdict(done)) if self.as_json else text)
