"""`roquet pipeline restore`, `replay` and `redrive`: commands that send messages again."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, TypeVar

import click

from roquet.cli.access import access_values, cluster_options
from roquet.cli.output import end, show, table
from roquet.cli.pipeline.progress import JobProgress
from roquet.cli.pipeline.session import (
    file_format_option,
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
    "--rate", type=click.FloatRange(0, min_open=True), help="The limit of messages per second."
)
_really = click.option(
    "--yes/--dry-run", "really", help="Send, or only show what would be sent (the default)."
)


def choosing(command: F) -> F:
    """Add the options that select messages."""
    for option in (
        click.option(
            "--where", metavar="SQL", help="Only messages that match a Spark SQL condition."
        ),
        click.option(
            "--key", metavar="REGEX", help="Only messages with a key that matches as a whole."
        ),
        click.option(
            "--until",
            "until_ms",
            metavar="TIME",
            callback=moment,
            help="Only messages stored before this time.",
        ),
        click.option(
            "--since",
            "since_ms",
            metavar="TIME",
            callback=moment,
            help="Only messages stored then or later: ISO (UTC without a zone) or ms.",
        ),
    ):
        option(command)
    return command


def _sending_again(command: F) -> F:
    """Add the options that `replay` and `redrive` have in common."""
    for option in (_write_options, read_options, _rate, _really, choosing):
        option(command)
    return command


@click.command(short_help="Send messages of an archive to a cluster.")
@click.argument("folder", metavar="FOLDER")
@cluster_options
@click.option("-t", "--topic", "topics", multiple=True, help="Only this topic; may be repeated.")
@click.option("--to", help="The topic to send to, instead of their own.")
@click.option(
    "--keep-queues",
    is_flag=True,
    help="Send each message to the queue with its former id, in the former order.",
)
@file_format_option
@choosing
@_rate
@_write_options
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
    """Send the messages of the archive in FOLDER.

    They keep topics, keys, tags, flags and properties, and get new ids and times. Messages without
    a body cannot be sent, nor properties that belong to the protocol; both are counted at the end.
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
            f"{done.without_body:,} messages not sent: clients cannot send messages without a body"
        )
    for name, count in done.properties.items():
        show(
            f"{count:,} messages sent without their property {name}, "
            "which belongs to the protocol or is blank"
        )


@click.command(short_help="Send messages of a topic to another topic.")
@click.argument("topic")
@cluster_options
@click.option("--to", required=True, help="The topic to send to.")
@_sending_again
@on_spark
def replay(spark: SparkSession, topic: str, **arguments: Any) -> None:
    """Send messages of TOPIC, selected by time, key or a condition, to another topic.

    Without --yes the command only shows what it would send.
    """
    _redrive(spark, topic, **arguments)


@click.command(short_help="Send dead letters of a group to their topics.")
@click.argument("group")
@cluster_options
@click.option("--to", help="The topic to send to, instead of the one that each came from.")
@_sending_again
@on_spark
def redrive(spark: SparkSession, group: str, **arguments: Any) -> None:
    """Send the dead letters of GROUP to the topics that they came from.

    Without --yes the command only shows what it would send. All groups that consume a topic get
    the messages that are sent to it. The dead letters stay in their topic.
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
        with JobProgress(spark, "sending" if really else "reading", as_json=as_json) as progress:
            found = jobs.redrive(spark, job, progress.planned) if really else jobs.plan(spark, job)
    except RouteNotFound:
        end(f"topic {topic} does not exist")
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
        show("no message matches")
    elif not really:
        show("nothing was sent; to send, add --yes")
