"""Where a job reads and writes, in the words of Spark."""

from __future__ import annotations

from pathlib import Path

import pytest

from roquet.spark.pipelines._shared.location import as_spark_sees


def test_spark_gets_absolute_paths_and_urls_as_they_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its JVM may have been started in another folder."""
    monkeypatch.chdir(tmp_path)
    assert as_spark_sees("lag") == str(tmp_path / "lag")
    assert as_spark_sees(Path("/data/lag")) == "/data/lag"
    assert as_spark_sees("s3a://bucket/lag") == "s3a://bucket/lag"
