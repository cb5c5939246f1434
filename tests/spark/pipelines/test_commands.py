"""`roquet pipeline`, in this process and with the session of all tests."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner, Result
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from roquet.cli.main import main
from roquet.cli.pipeline.session import line_of
from roquet.cli.values import duration, pairs
from roquet.dev import Cluster
from tests.spark.pipelines.conftest import send, store_of

IMPATIENT = ("-o", "noProgressTimeoutMs=300")


def run(words: Sequence[object]) -> Result:
    return CliRunner().invoke(main, ["pipeline", *map(str, words)], catch_exceptions=False)


def told(*words: object) -> Any:
    """What a command that succeeds says to programs."""
    done = run([*words, "--json"])
    assert done.exit_code == 0, done.output
    return json.loads(done.stdout)


@pytest.mark.spark
@pytest.mark.long
def test_a_topic_goes_through_all_commands(
    spark: SparkSession, cluster: Cluster, tmp_path: Path
) -> None:
    send(cluster.name_server, "orders", range(150))
    at, folder = ("-n", cluster.name_server), tmp_path / "archive"

    assert told("archive", folder, "-t", "orders", *at)["rows"] == 150
    assert told("archive", folder, "--compact")["days"] == 1
    assert (
        run(["archive", folder, "-t", "orders", "--stream", "--available-now", *at]).stdout == ""
    ), "nothing is new"
    stored = (
        "archive",
        tmp_path / "stored",
        "-t",
        "orders",
        "--store-dir",
        store_of(cluster),
        "-b",
        "dev",
    )
    assert told(*stored)["rows"] == 150
    assert told("restore", folder, "--to", "again", "--key", "k1.", *at) == {
        "rows": 10,
        "without_body": 0,
        "properties": {},
    }

    chosen = ("replay", "again", "--to", "third", "--where", "tags = 'T0'", *at)
    assert told(*chosen)["sent"] is False
    spoken = run([*chosen, "--yes"])
    assert (spoken.exit_code, spoken.stdout) == (0, "3 messages sent to third\n")
    assert "nothing was sent; to send, add --yes" in run(chosen).stdout

    page = tmp_path / "lag.html"
    lag = told("lag", tmp_path / "lag", "--every", "0.1s", "--for", "0.1s", "--html", page, *at)
    assert (lag["samples"], lag["failed"]) == (1, 0)
    assert page.read_text().startswith("<!doctype html>")

    audited = run(["audit", "-t", "orders", *IMPATIENT, *at])
    assert audited.exit_code == 2, "there is no slave"
    (line,) = audited.stderr.splitlines()
    assert line.startswith("roquet: orders@dev:"), line
    assert spark.range(3).count() == 3, "the session is still there"


@pytest.mark.spark
@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("archive", "x"), "give topics with -t or --pattern, or --compact alone"),
        (
            ("archive", "s3a://x/y", "-t", "orders"),
            "s3a://x/y: an archive is a folder of a local or mounted file",
        ),
        (
            ("archive", "x", "-t", "orders", "-o", "startingOffsets=1"),
            "startingOffsets: the job sets this option itself",
        ),
        (("archive", "x", "-t", "orders", "-o", "tag=1"), "unknown option tag: did you mean tags?"),
        (
            ("archive", "x", "-t", "orders", "--available-now"),
            "--available-now and --max-rows need --stream",
        ),
        (
            ("archive", "x", "-t", "orders", "--store-dir", "/x"),
            "1 store directories and 0 broker names",
        ),
        (
            ("archive", "x", "-t", "orders", "-b", "broker-a"),
            "--broker needs --store-dir: it names the broker of a store directory",
        ),
        (("restore", "nowhere"), "is no archive: roquet pipeline archive creates one"),
        (("replay", "orders", "--to", "orders"), "to: the messages are in orders already"),
        (("audit",), "give topics with -t or --pattern"),
        (("audit", "-t", "orders", "--right", "/store"), "the broker name is missing"),
    ],
)
def test_what_cannot_be_done_is_told_in_a_line(
    spark: SparkSession,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    words: tuple[str, ...],
    said: str,
) -> None:
    monkeypatch.chdir(tmp_path)

    done = run(words)

    assert (done.exit_code, done.stdout) == (2, "")
    (line,) = done.stderr.splitlines()
    assert line.startswith("roquet: ")
    assert said in line


@pytest.mark.parametrize(
    ("text", "seconds"), [("10s", 10), ("5m", 300), ("1h", 3600), ("2d", 172800), ("0.5", 0.5)]
)
def test_durations(text: str, seconds: float) -> None:
    assert duration(click.Context(main), click.Option(["--x"]), text) == seconds


@pytest.mark.parametrize("text", ["", "x", "10w", "0s", "-1s", "1 h"])
def test_what_is_no_duration_is_refused(text: str) -> None:
    with pytest.raises(click.BadParameter, match="is not a duration such as 10s"):
        duration(click.Context(main), click.Option(["--x"]), text)


def test_pairs_are_cut_at_their_first_equals_sign() -> None:
    context, option = click.Context(main), click.Option(["--x"])

    assert pairs(context, option, ("a=1", "b=x=y", "c=")) == {"a": "1", "b": "x=y", "c": ""}
    with pytest.raises(click.BadParameter, match="'nothing' is not NAME=VALUE"):
        pairs(context, option, ("nothing",))


def test_only_errors_of_spark_become_a_line() -> None:
    assert line_of(ValueError("ours")) is None
    assert line_of(PySparkException("first\nsecond")) == "first"
    assert line_of(PySparkException("")) == "PySparkException"
