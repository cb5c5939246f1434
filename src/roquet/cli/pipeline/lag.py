"""`roquet pipeline lag`: arguments and output of the lag job."""

from __future__ import annotations

import json
import math
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from roquet.cli.access import access, cluster_options
from roquet.cli.output import say, table
from roquet.cli.pipeline.progress import status
from roquet.cli.pipeline.session import on_spark
from roquet.cli.values import duration

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from roquet.admin.backlog import Backlog


@click.command(short_help="Record the backlog of consumer groups in Parquet.")
@click.argument("folder", metavar="FOLDER")
@cluster_options
@click.option(
    "-g",
    "--group",
    "groups",
    multiple=True,
    help="The consumer group; may be repeated; all groups by default.",
)
@click.option(
    "--every",
    default="10s",
    show_default=True,
    metavar="TIME",
    callback=duration,
    help="The time between two samples.",
)
@click.option(
    "--for",
    "for_s",
    metavar="TIME",
    callback=duration,
    help="How long to go on; by default until interrupted.",
)
@click.option(
    "--html",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Write a chart of all samples to this file.",
)
@on_spark
def lag(
    spark: SparkSession,
    folder: str,
    name_server: str,
    groups: tuple[str, ...],
    every: float,
    for_s: float | None,
    html: Path | None,
    as_json: bool,
) -> None:
    """Sample the backlog of consumer groups at the brokers and append it to the Parquet in FOLDER.

    At the end each group's backlog is printed: in the first sample in FOLDER, its maximum, and in
    the last sample.
    """
    from roquet.spark.pipelines.lag import TITLES, Lag, lag_page, series_of
    from roquet.spark.pipelines.lag import lag as watch

    with status("asking") as show:

        def on_sample(found: Backlog) -> None:
            group_count = len({each.group for each in found.queues})
            backlog = sum(each.lag for each in found.queues)
            text = f"{group_count} groups, backlog of {backlog:,} messages"
            show("; ".join([text, *found.failures]))

        for_s = math.inf if for_s is None else for_s
        done = watch(spark, Lag(name_server, folder, groups, every, for_s, access()), on_sample)
    series = series_of(spark.read.parquet(folder)) if done.rows else []
    if html is not None:
        html.write_text(lag_page(series), encoding="utf-8")
    if as_json:
        click.echo(json.dumps({**asdict(done), "groups": [each.to_json() for each in series]}))
    else:
        table(TITLES, [[str(cell) for cell in each.row()] for each in series])
    if done.failed:
        say(f"{done.failed} of {done.samples} samples are incomplete: a broker did not answer")
