"""`roquet pipeline lag`: its samples, its chart, and which of them are incomplete."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from roquet.dev import Cluster
from tests.cli.pipeline.conftest import Pipeline
from tests.spark.pipelines.conftest import send
from tests.spark.pipelines.test_lag import commit

pytestmark = pytest.mark.spark

BRIEFLY = ("--every", "0.1s", "--for", "0.1s")


def test_each_group_is_told_with_its_backlog(
    spark: SparkSession, pipeline: Pipeline, cluster: Cluster, tmp_path: Path
) -> None:
    send(cluster.name_server, "orders", range(50))
    commit(cluster.name_server, "billing", 2)
    page, folder = tmp_path / "lag.html", tmp_path / "lag"
    words = ("-n", cluster.name_server, "-g", "billing", *BRIEFLY)

    table = pipeline("lag", folder, *words)
    as_json = json.loads(pipeline("lag", folder, *words, "--json", "--html", page).stdout)

    assert (table.exit_code, table.stderr) == (0, "")
    assert table.stdout.splitlines()[1].startswith("billing ")
    assert (as_json["samples"], as_json["failed"]) == (1, 0)
    assert [len(as_json["groups"])] == [1]
    assert "billing" in page.read_text()
    assert spark.range(1).count() == 1


def test_without_a_group_there_is_a_table_without_rows(
    spark: SparkSession, pipeline: Pipeline, cluster: Cluster, tmp_path: Path
) -> None:
    done = pipeline("lag", tmp_path / "lag", "-n", cluster.name_server, *BRIEFLY)

    assert done.exit_code == 0
    assert len(done.stdout.splitlines()) == 1
    assert spark.range(1).count() == 1


def test_a_duration_is_a_number_with_its_unit(pipeline: Pipeline, tmp_path: Path) -> None:
    done = pipeline("lag", tmp_path, "--every", "soon")

    assert done.exit_code == 2
    assert "'soon' is not a duration" in done.stderr
