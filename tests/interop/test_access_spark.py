"""Spark reads, streams and writes where Apache's broker checks who asks; nothing that Spark shows
has the secret.
"""

from __future__ import annotations

import contextlib
import io
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from roquet.admin.access import Access
from roquet.spark.pipelines.archive.job import Archive, archive
from roquet.spark.pipelines.archive.sources import Topics
from roquet.spark.pipelines.lag import Lag, lag
from tests.interop.guarded import ADMIN, KEYS, WITH_KEYS, signing
from tests.spark.conftest import spark

__all__ = ["spark"]

pytestmark = [pytest.mark.interop, pytest.mark.spark, pytest.mark.long]

ROWS = 30


@pytest.fixture(scope="module")
def signed() -> Iterator[str]:
    with signing() as address:
        yield address


def source(spark: SparkSession, name_server: str, **options: str) -> DataFrame:
    reader = spark.read.format("rocketmq").option("nameServer", name_server)
    return reader.options(**{"subscribe": "ReadOnly", **options}).load()


def plans_of(frame: DataFrame) -> str:
    """Every plan that Spark shows of it."""
    shown = io.StringIO()
    with contextlib.redirect_stdout(shown):
        frame.explain("extended")
        frame.explain("formatted")
    return shown.getvalue()


def test_a_topic_is_copied_in_a_batch_and_by_a_stream(
    spark: SparkSession, signed: str, tmp_path: Path
) -> None:
    file = tmp_path / "access"
    file.write_text(f"accessKey={KEYS.access_key}\nsecretKey={KEYS.secret_key}\n")
    rows = spark.range(ROWS).selectExpr("CAST(id AS STRING) AS body")
    sink = {"nameServer": signed, "topic": "Written", "sendTimeoutMs": "20000"}
    rows.write.format("rocketmq").options(**sink, **WITH_KEYS).mode("append").save()

    reader = (
        spark.readStream.format("rocketmq")
        .option("nameServer", signed)
        .option("subscribe", "Written")
    )
    stream = reader.option("startingOffsets", "earliest").option("accessFile", str(file)).load()
    writer = (
        stream.select("body")
        .writeStream.format("rocketmq")
        .options(**sink | {"topic": "Copied"}, **WITH_KEYS)
    )
    query = (
        writer.option("checkpointLocation", str(tmp_path / "kept"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()

    read = source(spark, signed, subscribe="Copied", **WITH_KEYS)
    assert sorted(int(bytes(row.body)) for row in read.select("body").collect()) == list(
        range(ROWS)
    )
    shown = [plans_of(read), *(str(progress) for progress in query.recentProgress)]
    kept = [path.read_bytes() for path in (tmp_path / "kept").rglob("*") if path.is_file()]
    assert kept
    assert KEYS.secret_key not in "".join(shown)
    assert KEYS.secret_key.encode() not in b"".join(kept)


def test_a_refusal_is_said_and_the_secret_is_not(
    spark: SparkSession, signed: str, capfd: pytest.CaptureFixture[str]
) -> None:
    wrong = {**WITH_KEYS, "secretKey": "another-secret"}
    with pytest.raises(
        PySparkException, match="Check signature failed for accessKey=application; the secret"
    ) as read:
        source(spark, signed, **wrong).collect()
    with pytest.raises(PySparkException, match=r"Refused.*; the account lacks this permission"):
        source(spark, signed, subscribe="Refused", **WITH_KEYS).collect()
    sink = {"nameServer": signed, "topic": "Written", **wrong}
    with pytest.raises(
        PySparkException, match="Check signature failed for accessKey=application; the secret"
    ) as written:
        spark.sql("SELECT 'x' AS body").write.format("rocketmq").options(**sink).mode(
            "append"
        ).save()
    said = "".join([str(read.value), str(written.value), *capfd.readouterr()])
    assert "another-secret" not in said
    assert KEYS.secret_key not in said


def test_pipelines_have_keys(spark: SparkSession, signed: str, tmp_path: Path) -> None:
    job = Archive(Topics(signed, ("ReadOnly",), options=WITH_KEYS), str(tmp_path / "archive"))
    assert KEYS.secret_key not in repr(job)
    assert archive(spark, job).rows == 1
    sampled = lag(
        spark, Lag(signed, str(tmp_path / "lag"), for_s=0.1, access=Access(credentials=ADMIN))
    )
    assert (sampled.samples, sampled.failed) == (1, 0)
