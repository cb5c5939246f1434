"""What all commands of `roquet pipeline` have in common: the Spark session, its progress, and how they end."""

from __future__ import annotations

import os
import re
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import wraps
from pathlib import Path
from threading import Event, Thread
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

from roquet.cli.access import access_options
from roquet.cli.output import end
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
"""Times that other programs read the same, and that Parquet keeps statistics of."""
LOOK_S: Final = 0.5

_OUR_ERROR: Final = re.compile(r"^roquet\.[\w.]+: (.+)$", re.MULTILINE)

_name_servers = click.option(
    "-n",
    "--namesrv",
    "name_server",
    envvar="NAMESRV_ADDR",
    default="127.0.0.1:9876",
    show_default=True,
    metavar="HOST:PORT;...",
    help="The name servers. [env: NAMESRV_ADDR]",
)


def name_servers(command: F) -> F:
    """Which cluster, and how it is spoken to."""
    return _name_servers(access_options(command))


json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON.")


read_options = click.option(
    "-o",
    "--option",
    "options",
    multiple=True,
    metavar="NAME=VALUE",
    callback=pairs,
    help="An option of format('rocketmq'), such as readFrom=slave; may be repeated.",
)

_conf = click.option(
    "--conf", multiple=True, metavar="NAME=VALUE", callback=pairs, help="A setting of Spark; may be repeated."
)
_master = click.option(
    "--master", default="local[*]", show_default=True, help="Spark's master, such as spark://host:7077."
)


def on_spark(command: F) -> F:
    """The options that say which Spark runs the job; what cannot be done ends with one line and code 2."""

    @wraps(command)
    def run(master: str, conf: dict[str, str], **arguments: Any) -> Any:
        try:
            with spark_session({"spark.master": master, **conf}) as spark:
                return command(spark, **arguments)
        except RoquetError as error:
            end(str(error))
        except OSError as error:
            end(f"{error.filename or 'the operating system'}: {error.strerror or error}")
        except Exception as error:
            line = line_of(error)
            if line is None:
                raise
            end(line)

    for option in (_conf, _master):
        option(run)
    return run  # type: ignore[return-value]


@contextmanager
def spark_session(conf: dict[str, str]) -> Iterator[SparkSession]:
    """A session for one command, or the one that this process has already; it logs nothing."""
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
    """What to say of an error of Spark's: ours that is in it, or its first line; None: it is not of Spark."""
    from pyspark.errors import PySparkException

    if not isinstance(error, PySparkException):
        return None
    ours = _OUR_ERROR.findall(str(error))
    return str(ours[-1]) if ours else str(error).strip().splitlines()[0]


@contextmanager
def status(text: str) -> Iterator[Callable[[str], None]]:
    """A line on standard error that tells how things are, where that is a terminal; gives what changes it."""
    if not sys.stderr.isatty():
        yield lambda changed: None
        return
    from rich.console import Console

    with Console(stderr=True).status(text) as shown:
        yield shown.update


class JobProgress:
    """Rows, bytes written and tasks done of a Spark job, on standard error where that is a terminal.

    Rows are told by tasks: each counts as its share of all when it is done.
    """

    def __init__(self, spark: SparkSession, what: str) -> None:
        self._spark = spark
        self._what = what
        self._rows = 0
        self._folder: Path | None = None
        self._over = Event()
        self._thread = Thread(target=self._show, name="progress", daemon=True)

    def planned(self, rows: int, folder: Path | None = None) -> None:
        """So many rows are to come, whose files grow in that folder."""
        self._rows, self._folder = rows, folder

    def __enter__(self) -> JobProgress:
        if sys.stderr.isatty():
            self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        if self._thread.is_alive():
            self._thread.join()

    def _show(self) -> None:
        began = time.monotonic()
        with status(self._what) as show:
            while not self._over.wait(LOOK_S):
                show(self._line(time.monotonic() - began))

    def _line(self, seconds: float) -> str:
        done, tasks = self._tasks()
        size = _size_of(self._folder)
        parts = [self._what, f"{seconds:,.0f} s"]
        if tasks:
            parts.append(f"{done} of {tasks} tasks")
            parts += [f"{self._rows * done // tasks:,} of {self._rows:,} rows"] if self._rows else []
        if size:
            parts.append(f"{size / 1e6:,.1f} MB, {size / 1e6 / max(seconds, LOOK_S):,.1f} MB/s")
        return ", ".join(parts)

    def _tasks(self) -> tuple[int, int]:
        tracker = self._spark.sparkContext.statusTracker()
        stages = [info for each in tracker.getActiveStageIds() if (info := tracker.getStageInfo(each)) is not None]
        return sum(each.numCompletedTasks for each in stages), sum(each.numTasks for each in stages)


def _size_of(folder: Path | None) -> int:
    """Of all files below, which come and go meanwhile."""
    size = 0
    for parent, _, names in [] if folder is None else os.walk(folder):
        for name in names:
            with suppress(OSError):
                size += os.path.getsize(os.path.join(parent, name))
    return size
