"""`roquet pipeline restore`, `replay` and `redrive`: what sends messages again."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, TypeVar

import click

from roquet.cli.access import access_values
from roquet.cli.output import end, show, table
from roquet.cli.pipeline.progress import JobProgress
from roquet.cli.pipeline.session import (
    file_format_option,
    json_option,
    name_servers,
    on_spark,
    read_options,
)
from roquet.cli.values import moment, pairs

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from roquet.spark.pipelines.send.redrive_job import Redriven

F = TypeVar("F", bound=Callable[..., Any])

_write_options = click.option(
    "-w",
    "--write-option",
    "write_options",
    multiple=True,
    metavar="NAME=VALUE",
    callback=pairs,
    help="An option of the sink, such as delivery=effectively-once; may be repeated.",
)
_rate = click.option(
    "--rate", type=click.FloatRange(0, min_open=True), help="At most so many messages a second."
)
_really = click.option(
    "--yes/--dry-run", "really", help="Send; without it, tell what would be sent."
)


def choosing(command: F) -> F:
    """The options that say which messages."""
    for option in (
        click.option("--where", metavar="SQL", help="For which this is so, by Spark SQL on the columns."),
        click.option("--key", metavar="REGEX", help="One of whose keys matches as a whole."),
        click.option("--until", "until_ms", metavar="TIME", callback=moment, help="Stored before this time."),
        click.option("--since", "since_ms", metavar="TIME", callback=moment,
                     help="Stored then or later: ISO (without a zone: UTC) or ms."),
    ):  # fmt: skip
        option(command)
    return command


def _sending_again(command: F) -> F:
    """The options that `replay` and `redrive` have in common."""
    for option in (json_option, _write_options, read_options, _rate, _really, choosing):
        option(command)
    return command


@click.command(short_help="From an archive back into a cluster.")
@click.argument("folder", metavar="FOLDER")
@name_servers
@click.option("-t", "--topic", "topics", multiple=True, help="Only this topic; may be repeated.")
@click.option("--to", help="The topic they go to, in place of their own.")
@click.option(
    "--keep-queues",
    is_flag=True,
    help="Each goes to the queue of its former number, in its former order.",
)
@file_format_option
@choosing
@_rate
@_write_options
@json_option
@on_spark
def restore(
    spark: SparkSession,
    folder: str,
    name_server: str,
    topics: tuple[str, ...],
    to: str | None,
    keep_queues: bool,
    rate: float | None,
    write_options: dict[str, str],
    file_format: str,
    as_json: bool,
    **choice: Any,
) -> None:
    """Send what the archive in FOLDER has: topics, keys, tags, flags and properties as they were, ids and times anew.

    It tells what cannot be sent again: messages without a body, and properties that belong to the protocol.
    """
    from roquet.spark.pipelines._shared.message_filter import MessageFilter
    from roquet.spark.pipelines.send.restore_job import Restore
    from roquet.spark.pipelines.send.restore_job import restore as send_archive

    options = access_values() | write_options
    job = Restore(
        folder,
        name_server,
        topics,
        MessageFilter(**choice),
        to,
        keep_queues,
        rate,
        options,
        file_format,
    )
    with JobProgress(spark, "restoring", as_json=as_json) as progress:
        done = send_archive(spark, job, progress.planned)
    if as_json:
        click.echo(json.dumps(asdict(done)))
        return
    show(f"{done.rows:,} messages sent")
    if done.without_body:
        show(
            f"{done.without_body:,} messages not sent: they have no body, and no client can send such a one"
        )
    for name, count in done.properties.items():
        show(
            f"{count:,} messages sent without their property {name}, which belongs to the protocol or is blank"
        )


@click.command(short_help="Messages of a topic into another one.")
@click.argument("topic")
@name_servers
@click.option("--to", required=True, help="The topic they go to.")
@_sending_again
@on_spark
def replay(spark: SparkSession, topic: str, **arguments: Any) -> None:
    """Send messages of TOPIC to another topic, chosen by time, key or a condition.

    Without --yes it tells what it would send.
    """
    _redrive(spark, topic, **arguments)


@click.command(short_help="Dead letters of a group back to where they came from.")
@click.argument("group")
@name_servers
@click.option("--to", help="A topic they go to, in place of the one that each came from.")
@_sending_again
@on_spark
def redrive(spark: SparkSession, group: str, **arguments: Any) -> None:
    """Send the dead letters of GROUP to the topics they came from. Without --yes it tells what it would send.

    All groups that consume a topic get what is sent to it. The dead letters stay where they are.
    """
    from roquet.spark.pipelines.send.redrive_job import dead_letters_of

    _redrive(spark, dead_letters_of(group), **arguments)


def _redrive(
    spark: SparkSession,
    topic: str,
    name_server: str,
    to: str | None,
    really: bool,
    rate: float | None,
    options: dict[str, str],
    write_options: dict[str, str],
    as_json: bool,
    **choice: Any,
) -> None:
    from roquet.errors import RouteNotFound
    from roquet.spark.pipelines._shared.message_filter import MessageFilter
    from roquet.spark.pipelines.send import redrive_job as jobs

    known = access_values()
    job = jobs.Redrive(
        name_server,
        topic,
        MessageFilter(**choice),
        to,
        rate,
        known | options,
        known | write_options,
    )
    try:
        with JobProgress(spark, "sending" if really else "looking", as_json=as_json) as progress:
            found = jobs.redrive(spark, job, progress.planned) if really else jobs.plan(spark, job)
    except RouteNotFound:
        end(f"there is no topic {topic}")
    _show(found, really, as_json)


def _show(found: Redriven, really: bool, as_json: bool) -> None:
    if as_json:
        tree = {
            "sent": really,
            "rows": dict(found.rows),
            "sample": [dict(row) for row in found.sample],
        }
        click.echo(json.dumps(tree, default=str))
        return
    if found.sample:
        table(
            tuple(found.sample[0]),
            [["-" if cell is None else str(cell) for cell in row.values()] for row in found.sample],
        )
    for topic, rows in sorted(found.rows.items()):
        show(f"{rows:,} messages {'sent' if really else 'would be sent'} to {topic}")
    if not found.rows:
        show("no message is like that")
    elif not really:
        show("nothing was sent: --yes sends")
