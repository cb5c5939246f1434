"""`roquet pipeline audit`: arguments and output of the audit."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from roquet.cli.access import access_values, cluster_options
from roquet.cli.output import FINDINGS, end, show, table
from roquet.cli.pipeline.progress import JobProgress
from roquet.cli.pipeline.session import (
    on_spark,
    read_options,
    topic_options,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from roquet.spark.pipelines.audit.job import Side


@click.command(short_help="Compare masters and slaves, message by message.")
@cluster_options
@topic_options
@click.option(
    "--left",
    default="master",
    show_default=True,
    metavar="WHAT",
    help="master, slave, or a store directory.",
)
@click.option(
    "--right",
    default="slave",
    show_default=True,
    metavar="WHAT",
    help="The other side: master, slave, or a store directory.",
)
@click.option(
    "-b", "--broker", default="", metavar="NAME", help="Compare only the queues of this broker."
)
@click.option(
    "--html",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Write a report with charts to this file.",
)
@read_options
@on_spark
def audit(
    spark: SparkSession,
    name_server: str,
    topics: tuple[str, ...],
    pattern: str,
    left: str,
    right: str,
    broker: str,
    html: Path | None,
    options: dict[str, str],
    as_json: bool,
) -> None:
    """Compare the messages of masters and their slaves: ids, physical offsets, CRCs, bodies by CRC.

    Producers may go on: the messages that the masters have at the beginning are compared, and
    slaves have a few seconds to get them. Each side may also be the store directory of a broker,
    running or not. Exit codes: 0 if both sides are equal, 1 if not, 2 if they cannot be compared.
    """
    from roquet.spark.pipelines.audit.job import Audit
    from roquet.spark.pipelines.audit.job import audit as compare_sides

    live = access_values() | options
    sides = _side(left, name_server, live), _side(right, name_server, live)
    is_all_stored = {"master", "slave"}.isdisjoint({left, right})
    if (topics and pattern) or not (topics or pattern or is_all_stored):
        end("give topics with -t or --pattern")
    with JobProgress(spark, "comparing", as_json=as_json) as progress:
        report = compare_sides(spark, Audit(*sides, topics, pattern, broker), progress.planned)
    if html is not None:
        html.write_text(report.to_html(), encoding="utf-8")
    if as_json:
        click.echo(json.dumps(report.to_json()))
    else:
        table(
            report.titles(),
            [["-" if cell is None else str(cell) for cell in row] for row in report.rows()],
        )
        show(report.summary)
    if not report.is_same:
        sys.exit(FINDINGS)


def _side(what: str, name_server: str, options: dict[str, str]) -> Side:
    from roquet.spark.pipelines.audit.job import Brokers, Stored

    match what:
        case "master" | "slave":
            return Brokers(name_server, what, options)
        case _:
            return Stored(what)
