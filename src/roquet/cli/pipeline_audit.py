"""`roquet pipeline audit`."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from roquet.cli.output import end, table
from roquet.cli.pipeline_spark import JobProgress, json_option, name_servers, on_spark, read_options

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_DIFFERENT: Final = 1


@click.command(short_help="Compare masters and slaves, message by message.")
@name_servers
@click.option("-t", "--topic", "topics", multiple=True, help="A topic; may be repeated.")
@click.option("--pattern", default="", metavar="REGEX", help="Topics whose whole names match, in place of -t.")
@click.option("--html", type=click.Path(dir_okay=False, path_type=Path), help="Write a report with pictures there.")
@read_options
@json_option
@on_spark
def audit(
    spark: SparkSession,
    name_server: str,
    topics: tuple[str, ...],
    pattern: str,
    html: Path | None,
    options: dict[str, str],
    as_json: bool,
) -> None:
    """Compare what masters have with what their slaves have: ids, CRCs, places in the log, and bodies by their CRCs.

    Producers may go on: what the masters had at the beginning is compared, and slaves get a few seconds to have it,
    too. Ends with code 0 if all is the same, 1 if not, 2 if it cannot be told.
    """
    from roquet.spark.pipelines.audit import Audit, Live
    from roquet.spark.pipelines.audit import audit as compare_sides

    if bool(topics) == bool(pattern):
        end("name topics with -t or give a --pattern")
    sides = Live(name_server, "master", options), Live(name_server, "slave", options)
    with JobProgress(spark, "comparing") as progress:
        report = compare_sides(spark, Audit(*sides, topics, pattern), progress.planned)
    if html is not None:
        html.write_text(report.to_html(), encoding="utf-8")
    if as_json:
        click.echo(json.dumps(report.to_json()))
    else:
        table(report.titles(), [["-" if cell is None else str(cell) for cell in row] for row in report.rows()])
        click.echo(report.summary)
    if not report.is_same:
        sys.exit(_DIFFERENT)
