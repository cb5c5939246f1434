"""`roquet pipeline restore`, `replay` and `redrive`: what is chosen, and sent only with --yes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from roquet.dev import Cluster
from tests.cli.pipeline.conftest import Pipeline, refusal
from tests.spark.pipelines.conftest import send

pytestmark = pytest.mark.spark


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("restore", "nowhere"), "is no archive: roquet pipeline archive creates one"),
        (("replay", "orders", "--to", "orders"), "to: the messages are in orders already"),
    ],
)
def test_what_cannot_be_sent_is_told_in_a_line(
    spark: SparkSession,
    pipeline: Pipeline,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    words: tuple[str, ...],
    said: str,
) -> None:
    monkeypatch.chdir(tmp_path)

    assert said in refusal(pipeline(*words))
    assert spark.range(1).count() == 1


def test_a_replay_shows_what_it_would_send_until_it_is_told_to(
    spark: SparkSession, pipeline: Pipeline, cluster: Cluster
) -> None:
    send(cluster.name_server, "orders", range(20))
    at = ("-n", cluster.name_server)
    chosen = ("replay", "orders", "--to", "again", "--where", "tags = 'T0'", *at)

    plan = pipeline(*chosen)
    as_json = json.loads(pipeline(*chosen, "--json").stdout)
    nothing = pipeline("replay", "orders", "--to", "again", "--key", "no-such-key", *at)
    sent = pipeline(*chosen, "--yes")

    assert plan.stdout.splitlines()[-2:] == [
        "7 messages would be sent to again",
        "nothing was sent; to send, add --yes",
    ]
    assert (as_json["sent"], as_json["rows"]) == (False, {"again": 7})
    assert as_json["sample"]
    assert nothing.stdout == "no message matches\n"
    assert (sent.exit_code, sent.stdout) == (0, "7 messages sent to again\n")
    assert spark.range(1).count() == 1


def test_a_group_without_dead_letters_has_no_topic_of_them(
    spark: SparkSession, pipeline: Pipeline, cluster: Cluster
) -> None:
    said = refusal(pipeline("redrive", "G", "-n", cluster.name_server))

    assert said == "topic %DLQ%G does not exist"
    assert spark.range(1).count() == 1
