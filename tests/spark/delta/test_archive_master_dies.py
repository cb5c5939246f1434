"""A Delta table has each message once although a master died, its slave lagged, and drivers were
killed.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.spark.pipelines.master_away import the_master_dies_and_comes_back

pytestmark = [pytest.mark.spark, pytest.mark.process, pytest.mark.long]


def test_each_message_is_there_once_although_the_master_died(
    spark: SparkSession, tmp_path: Path
) -> None:
    the_master_dies_and_comes_back(spark, tmp_path, "delta")
