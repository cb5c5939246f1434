"""`roquet pipeline audit`: its sides, its report, and its exit codes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.cli.pipeline.conftest import Pipeline, refusal
from tests.storetool.stores import filled, flip

pytestmark = pytest.mark.spark

RECORD_BODY = 88


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((), "give topics with -t or --pattern"),
        (("--left", "/store"), "give topics with -t or --pattern"),
        (("-t", "T", "--pattern", "T"), "give topics with -t or --pattern"),
        (("-t", "T", "--right", "/store"), "the broker name is missing"),
    ],
)
def test_what_cannot_be_compared_is_told_in_a_line(
    spark: SparkSession, pipeline: Pipeline, words: tuple[str, ...], said: str
) -> None:
    assert said in refusal(pipeline("audit", *words))
    assert spark.range(1).count() == 1


def test_two_stores_are_compared_whole_and_the_exit_code_is_the_verdict(
    spark: SparkSession, pipeline: Pipeline, tmp_path: Path
) -> None:
    for side in "left", "right":
        places = filled(tmp_path / side)
    sides = ("--left", tmp_path / "left", "--right", tmp_path / "right")

    same = pipeline("audit", *sides)
    flip(tmp_path / "right" / "commitlog" / f"{0:020d}", places[0] + RECORD_BODY)
    page = tmp_path / "report.html"
    different = pipeline("audit", *sides, "--json", "--html", page)

    assert (same.exit_code, same.stderr) == (0, "")
    assert same.stdout.splitlines()[-1].startswith("no difference: ")
    assert different.exit_code == 1
    assert json.loads(different.stdout)
    assert "1 of " in page.read_text()
    assert spark.range(1).count() == 1
