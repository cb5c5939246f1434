"""The Spark session, the options and the errors that all commands of `roquet pipeline` share."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

from roquet.cli.output import end, json_option
from roquet.cli.values import pairs
from roquet.errors import RoquetError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

F = TypeVar("F", bound=Callable[..., Any])

EXTRA_MISSING: Final = "this command needs Spark: pip install 'roquet[spark]'"
SESSION_CONF: Final = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
}
"""UTC, so that times do not depend on the machine; microseconds, because Parquet has no statistics
of Spark's default (INT96)."""
_OUR_ERROR: Final = re.compile(
    r"^roquet\.[\w.]+: (.+)(?:\n(while (?:reading|writing) .+))?$", re.MULTILINE
)
"""Matches the line of a roquet error in a traceback, and the note after it about what was read or
written."""

_topics = click.option("-t", "--topic", "topics", multiple=True, help="The topic; may be repeated.")
_pattern = click.option(
    "--pattern",
    default="",
    metavar="REGEX",
    help="All topics whose whole name matches, instead of -t.",
)


def topic_options(command: F) -> F:
    """Add the options that say which topics a job is about."""
    return _topics(_pattern(command))


read_options = click.option(
    "-o",
    "--option",
    "options",
    multiple=True,
    metavar="NAME=VALUE",
    callback=pairs,
    help="An option of format('rocketmq'), such as readFrom=slave; may be repeated.",
)

file_format_option = click.option(
    "--format",
    "file_format",
    type=click.Choice(["parquet", "delta"]),
    callback=lambda context, option, value: value or "",
    help="The format of a new archive, or of one at a URL: plain Parquet (the default), or a table "
    "of Delta Lake.",
)

_conf = click.option(
    "--conf",
    multiple=True,
    metavar="NAME=VALUE",
    callback=pairs,
    help="A Spark setting; may be repeated.",
)
_master = click.option(
    "--master",
    default="local[*]",
    show_default=True,
    help="Spark's master, such as spark://host:7077.",
)


def on_spark(command: Callable[..., None]) -> Callable[..., None]:
    """Add --json and the Spark options to a command, and give it a session.

    An error ends the command with one line and exit code 2.
    """

    @wraps(command)
    def run(master: str, conf: dict[str, str], **arguments: Any) -> None:
        try:
            with spark_session(
                {"spark.master": master, **_delta_conf(**arguments), **conf}
            ) as spark:
                command(spark, **arguments)
        except RoquetError as error:
            end(str(error))
        except OSError as error:
            end(f"{error.filename or 'the operating system'}: {error.strerror or error}")
        except Exception as error:
            line = line_of(error)
            if line is None:
                raise
            end(line)

    for option in (_conf, _master, json_option):
        option(run)
    return run


def _delta_conf(folder: str = "", file_format: str = "", **_: Any) -> dict[str, str]:
    """Return the Spark settings for Delta Lake if the command's archive has that format."""
    try:
        from roquet.spark.pipelines.archive.delta import delta_conf
        from roquet.spark.pipelines.archive.job import format_of
    except ImportError:
        return {}  # `spark_session` reports the missing package
    return delta_conf() if "delta" in (file_format, format_of(folder)) else {}


@contextmanager
def spark_session(conf: dict[str, str]) -> Iterator[SparkSession]:
    """Yield a Spark session for one command, or the active one of this process.

    Spark's own log is switched off: errors come as exceptions.
    """
    try:
        from pyspark.sql import SparkSession

        from roquet.spark.session import session
    except ImportError:
        end(EXTRA_MISSING)
    is_ours = SparkSession.getActiveSession() is None
    spark = session("roquet pipeline", **{**SESSION_CONF, **conf})
    spark.sparkContext.setLogLevel("OFF")
    try:
        yield spark
    finally:
        if is_ours:
            spark.stop()


def line_of(error: Exception) -> str | None:
    """Return the line to print for an error of Spark: the roquet error in it, or its first line.

    :returns: None if the error is not one of Spark.
    """
    from pyspark.errors import PySparkException

    if not isinstance(error, PySparkException):
        return None
    ours = _OUR_ERROR.findall(str(error))
    if not ours:
        return next(iter(str(error).strip().splitlines()), type(error).__name__)
    text, note = ours[-1]
    return f"{text} ({note})" if note else text
