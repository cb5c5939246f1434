"""The session that a command gets, and the line in which it tells an error."""

from __future__ import annotations

import errno
from collections.abc import Callable

import click
import pytest
from click.testing import CliRunner, Result
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from roquet.cli.pipeline.session import line_of, on_spark, spark_session
from roquet.errors import ConfigError

pytestmark = pytest.mark.spark


def run(work: Callable[[SparkSession, bool], None], *words: str) -> Result:
    """Run a command that does this with its session."""

    def command(spark: SparkSession, *, as_json: bool) -> None:
        work(spark, as_json)

    return CliRunner().invoke(click.command(on_spark(command)), words, catch_exceptions=False)


def failing(error: Exception) -> Result:
    def fail(_: SparkSession, __: bool) -> None:
        raise error

    return run(fail)


def test_a_command_gets_the_active_session_and_leaves_it_running(spark: SparkSession) -> None:
    found: list[tuple[SparkSession, bool]] = []

    result = run(lambda session, as_json: found.append((session, as_json)), "--json")

    assert result.exit_code == 0
    assert [as_json for _, as_json in found] == [True]
    assert found[0][0].sparkContext is spark.sparkContext
    assert spark.range(3).count() == 3


def test_settings_of_the_command_line_hold_and_times_are_utc(spark: SparkSession) -> None:
    name = "spark.sql.shuffle.partitions"
    before = str(spark.conf.get(name))
    found: list[tuple[str | None, str | None]] = []

    run(
        lambda session, _: found.append(
            (session.conf.get(name), session.conf.get("spark.sql.parquet.outputTimestampType"))
        ),
        "--conf",
        f"{name}=7",
    )
    spark.conf.set(name, before)

    assert found == [("7", "TIMESTAMP_MICROS")]


def test_a_session_is_left_running_when_its_command_fails(spark: SparkSession) -> None:
    with pytest.raises(ValueError, match="ours"), spark_session({}):
        raise ValueError("ours")

    assert spark.range(3).count() == 3


@pytest.mark.parametrize(
    ("error", "line"),
    [
        (ConfigError("this is wrong"), "this is wrong"),
        (OSError(errno.ENOSPC, "no room", "/folder"), "/folder: no room"),
        (OSError(errno.ENOSPC, "no room"), "the operating system: no room"),
        (OSError("no number"), "the operating system: no number"),
        (PySparkException("of Spark\nmore"), "of Spark"),
    ],
)
def test_an_error_ends_a_command_with_a_line(
    spark: SparkSession, error: Exception, line: str
) -> None:
    result = failing(error)

    assert (result.exit_code, result.stderr) == (2, f"roquet: {line}\n")
    assert spark.range(1).count() == 1


def test_what_is_a_fault_of_the_program_is_raised(spark: SparkSession) -> None:
    with pytest.raises(ZeroDivisionError):
        failing(ZeroDivisionError())

    assert spark.range(1).count() == 1


# lines


def test_only_errors_of_spark_become_a_line() -> None:
    assert line_of(ValueError("ours")) is None
    assert line_of(PySparkException("first\nsecond")) == "first"
    assert line_of(PySparkException("")) == "PySparkException"


def test_the_line_is_that_of_the_last_roquet_error_in_it() -> None:
    traceback = (
        "job aborted\nTraceback (most recent call last):\n"
        "roquet.errors.CallTimeout: an earlier one\n"
        "roquet.spark._options.ranges.DataLoss: 5 messages are gone\n"
        "at java.base"
    )

    assert line_of(PySparkException(traceback)) == "5 messages are gone"


def test_the_line_says_what_was_read_when_it_went_wrong() -> None:
    traceback = "aborted\nroquet.errors.CallTimeout: no answer\nwhile reading T@b:0 from 5 on\nat x"

    assert line_of(PySparkException(traceback)) == "no answer (while reading T@b:0 from 5 on)"
