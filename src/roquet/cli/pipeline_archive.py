"""`roquet pipeline archive`."""

from __future__ import annotations

import json
import time
from dataclasses import asdict
from typing import TYPE_CHECKING

import click

from roquet.cli.access import access_values
from roquet.cli.output import end
from roquet.cli.pipeline_progress import JobProgress
from roquet.cli.pipeline_spark import json_option, name_servers, on_spark, read_options
from roquet.cli.values import duration

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from roquet.spark.pipelines.archive import Archive


@click.command(short_help="Topics to Parquet, each message once.")
@click.argument("folder", metavar="FOLDER")
@name_servers
@click.option("-t", "--topic", "topics", multiple=True, help="A topic; may be repeated.")
@click.option("--pattern", default="", metavar="REGEX", help="Topics whose whole names match, in place of -t.")
@click.option("--every", metavar="TIME", callback=duration, help="Do it again and again, after so long: 30s, 5m, 1h.")
@click.option("--compact", "compacts", is_flag=True, help="Put small files of a day together.")
@read_options
@json_option
@on_spark
def archive(
    spark: SparkSession,
    folder: str,
    name_server: str,
    topics: tuple[str, ...],
    pattern: str,
    every: float | None,
    compacts: bool,
    options: dict[str, str],
    as_json: bool,
) -> None:
    """Add to the archive in FOLDER what the topics hold and it does not: Parquet by topic and day (UTC) of storing.

    FOLDER knows how far it is with each queue: however often this is run, or killed, each message is in it once. With
    --compact and no topic, files are put together and nothing is added.
    """
    from roquet.spark.pipelines.archive import Archive

    if bool(topics) == bool(pattern) and (topics or not compacts):
        end("name topics with -t or give a --pattern, or --compact alone")
    job = Archive(name_server, topics, folder, pattern, access_values() | options) if topics or pattern else None
    while True:
        _once(spark, folder, job, compacts, as_json)
        if every is None:
            return
        time.sleep(every)


def _once(spark: SparkSession, folder: str, job: Archive | None, compacts: bool, as_json: bool) -> None:
    from roquet.spark.pipelines.archive import archive as add_to_archive
    from roquet.spark.pipelines.compact import Compaction, compact

    if job is not None:
        with JobProgress(spark, "archiving", as_json=as_json) as progress:
            added = add_to_archive(spark, job, progress.planned)
        text = f"{added.rows:,} messages in {added.files:,} files added, {added.rows_in_all:,} in all"
        click.echo(json.dumps(asdict(added)) if as_json else text)
    if compacts:
        with JobProgress(spark, "compacting", as_json=as_json):
            done = compact(spark, Compaction(folder))
        text = f"{done.files_before:,} files became {done.files_after:,}"
        click.echo(json.dumps(asdict(done)) if as_json else text)
