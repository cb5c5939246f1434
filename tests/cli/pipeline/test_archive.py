"""`roquet pipeline archive`: which topics of which source, and what it says."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.cli.pipeline.conftest import Pipeline, refusal
from tests.storetool.stores import filled

pytestmark = pytest.mark.spark

COUNT = 40


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((), "give topics with -t or --pattern, or --compact alone"),
        (("-t", "T", "--pattern", "T"), "give topics with -t or --pattern"),
        (("-t", "T", "--pattern", "T", "--compact"), "give topics with -t or --pattern"),
        (("--stream", "--compact"), "give topics with -t or --pattern"),
        (("-t", "T", "--available-now"), "--available-now and --max-rows need --stream"),
        (("-t", "T", "--max-rows", "5"), "--available-now and --max-rows need --stream"),
        (("-t", "T", "--store-dir", "/x"), "1 store directories and 0 broker names"),
        (
            ("-t", "T", "-b", "broker-a"),
            "--broker needs --store-dir: it names the broker of a store directory",
        ),
        (
            ("-t", "T", "-o", "startingOffsets=1"),
            "startingOffsets: the job sets this option itself",
        ),
        (("-t", "T", "-o", "tag=1"), "unknown option tag: did you mean tags?"),
    ],
)
def test_what_cannot_be_done_is_told_in_a_line(
    spark: SparkSession, pipeline: Pipeline, tmp_path: Path, words: tuple[str, ...], said: str
) -> None:
    assert said in refusal(pipeline("archive", tmp_path / "archive", *words))
    assert spark.range(1).count() == 1


def test_an_archive_is_a_folder(spark: SparkSession, pipeline: Pipeline) -> None:
    said = refusal(pipeline("archive", "s3a://x/y", "-t", "orders"))

    assert "s3a://x/y: an archive is a folder of a local or mounted file" in said
    assert spark.range(1).count() == 1


def test_a_store_is_archived_once_and_small_files_are_merged_when_asked(
    spark: SparkSession, pipeline: Pipeline, tmp_path: Path
) -> None:
    filled(tmp_path / "store", COUNT)
    folder = tmp_path / "archive"
    source = ("-t", "T", "--store-dir", tmp_path / "store", "-b", "dev")

    added = json.loads(pipeline("archive", folder, *source, "--json").stdout)
    again = pipeline("archive", folder, *source, "--compact")
    compacted = pipeline("archive", folder, "--compact", "--json")

    assert added["rows"] == added["rows_in_all"] == spark.read.parquet(str(folder)).count() > 0
    said, merged = again.stdout.splitlines()
    assert said == f"0 messages in 0 files added, {added['rows']:,} in all"
    assert "files merged into" in merged
    (line,) = compacted.stdout.splitlines()
    assert json.loads(line)["days"] == 0, "nothing is left to merge, and nothing was added"
