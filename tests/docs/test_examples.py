"""The programs in examples/ run as their first lines say."""

from __future__ import annotations

import json
import re
import runpy
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest
from pyspark.sql import SparkSession

from roquet.dev import Cluster
from tests.docs.page_run import PageRun
from tests.docs.pages import ROOT, Block
from tests.plugin import LOADED

EXAMPLES: Final = ROOT / "examples"
SECONDS_MAX: Final = 60
QUIETLY: Final = (
    "-p",
    "no:cacheprovider",
    "-o",
    "asyncio_default_fixture_loop_scope=function",
    *LOADED,
)
"""pytest leaves nothing behind, and pytest-asyncio has no reason to warn."""


def run(folder: Path, *words: str | Path) -> str:
    """What a program prints that ends well; warnings are errors, as in all tests."""
    command = [sys.executable, "-W", "error", *map(str, words)]
    done = subprocess.run(
        command, cwd=folder, capture_output=True, text=True, timeout=SECONDS_MAX, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_produce_consume_receives_what_it_sent_and_nothing_twice(
    cluster: Cluster, tmp_path: Path
) -> None:
    for _ in range(2):
        output = run(tmp_path, EXAMPLES / "produce_consume.py", cluster.name_server)

        sent, received = (
            re.findall(rf"^{word} +(\S+ \d+): order (\d+)", output, re.M)
            for word in ("sent", "received")
        )
        assert sorted(sent) == sorted(received)
        assert len(sent) == 10


def test_orders_test_passes_where_a_user_copies_it_to(tmp_path: Path) -> None:
    shutil.copy(EXAMPLES / "orders_test.py", tmp_path)

    assert re.search(r"\b3 passed\b", run(tmp_path, "-m", "pytest", *QUIETLY))


@pytest.mark.spark
@pytest.mark.long
def test_the_notebook_goes_from_a_topic_to_a_chart(
    cluster: Cluster, spark: SparkSession, tmp_path: Path
) -> None:
    """Its cells run one after the other as a kernel runs them, with `await` outside of
    functions.
    """
    notebook = json.loads((EXAMPLES / "orders.ipynb").read_text(encoding="utf-8"))
    cells = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
    run = PageRun(cluster.name_server, tmp_path)

    run.blocks(
        [Block(EXAMPLES / "orders.ipynb", 0, "python", "".join(cell["source"])) for cell in cells]
    )

    assert sum(row.orders for row in run.value("rows")) == 500
    picture = run.value("chart")._repr_svg_()
    assert picture.startswith("<svg")
    assert all(row.shop in picture for row in run.value("rows"))
    assert not any(cell["outputs"] or cell["execution_count"] for cell in cells), (
        "outputs are not committed"
    )


@pytest.mark.spark
def test_spark_batch_adds_up_what_it_sent(
    cluster: Cluster, spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """In this process: it gets the session that is there."""
    example = runpy.run_path(str(EXAMPLES / "spark_batch.py"))

    example["main"](cluster.name_server, str(tmp_path / "sums"))

    sums = {
        (row.branch, row.sales, row.amount)
        for row in spark.read.parquet(str(tmp_path / "sums")).collect()
    }
    assert sums == {("b0", 10, 135), ("b1", 10, 145), ("b2", 10, 155)}
    assert capsys.readouterr().out.count(" b") == 3
