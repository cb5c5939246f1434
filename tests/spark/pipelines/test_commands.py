"""All commands of `roquet pipeline` one after the other, each on what the one before it left."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from pyspark.sql import SparkSession

from roquet.cli.main import main
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
