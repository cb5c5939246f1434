"""What the Spark sink writes, read by Apache's Java consumer, from our broker and from Apache's."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest

from roquet.client._send.queue_choice import queue_for_sharding_key
from roquet.protocol.records.message import MessageQueue
from roquet.spark._options.write import DeliveryGuarantee, WriteOptions
from roquet.spark._write.task import Task, write
from tests.interop.apache import JavaClients
from tests.interop.ground import BROKER, Ground
from tests.spark.written import numbered, numbers, stored

pytestmark = pytest.mark.interop

SCHEMA = pa.schema(
    {
        "body": pa.string(),
        "tags": pa.string(),
        "keys": pa.string(),
        "properties": pa.map_(pa.string(), pa.string()),
        "delayLevel": pa.int32(),
        "shardingKey": pa.string(),
        "queueId": pa.int32(),
    }
)
ROWS: list[dict[str, Any]] = [
    {"body": "plain"},
    {
        "body": "marked",
        "tags": "A",
        "keys": "k1 k2",
        "properties": [("color", "röt"), ("size", "1")],
    },
    {"body": "pinned", "queueId": 2},
    {"body": "keyed", "shardingKey": "customer-7"},
    {"body": "delayed", "delayLevel": 1, "tags": "B", "properties": [("a", "b")]},
    {"body": "large " * 1000, "tags": "C"},
    {"body": "日本語", "tags": "標籤"},
]
QUEUES = 4
TASK = Task("f" * 32, 0, 0)


@pytest.fixture(scope="module", params=["ours", "Apache's"])
def ground(request: pytest.FixtureRequest, clients: JavaClients) -> Iterator[Ground]:
    with Ground(is_apache=request.param != "ours") as running:
        yield running


def test_java_consumes_what_rows_say(ground: Ground, clients: JavaClients) -> None:
    ground.create_topic("Rows", QUEUES)
    batch = pa.RecordBatch.from_pylist(
        [{name: row.get(name) for name in SCHEMA.names} for row in ROWS], SCHEMA
    )
    write(
        iter([batch]),
        TASK,
        WriteOptions(ground.namesrv, "Rows", compress_from_size=4096, timeout_ms=20_000),
    )

    lines = clients["4.9.7-json"].run("consume", ground.namesrv, "Rows", "G", len(ROWS), 60).check()
    found = {line["body"]: line for line in lines}
    assert found.keys() == {row["body"] for row in ROWS}
    for row in ROWS:
        line = found[row["body"]]
        assert (line["tags"], line["keys"]) == (row.get("tags"), row.get("keys"))
        assert dict(row.get("properties", ())).items() <= line["properties"].items()
        assert line["properties"]["UNIQ_KEY"] == line["msgId"]
    queues = [MessageQueue("Rows", BROKER, number) for number in range(QUEUES)]
    assert found["pinned"]["queueId"] == 2
    assert found["keyed"]["queueId"] == queue_for_sharding_key(queues, "customer-7").queue_id
    assert found["delayed"]["properties"]["DELAY"] == "1"
    assert found["delayed"]["storeTimestamp"] - found["delayed"]["bornTimestamp"] >= 1000


def test_a_batch_that_runs_again_is_found(ground: Ground) -> None:
    ground.create_topic("Again", QUEUES)
    options = WriteOptions(
        ground.namesrv,
        "Again",
        delivery=DeliveryGuarantee.EFFECTIVELY_ONCE,
        batch_rows=50,
        timeout_ms=20_000,
    )
    write(numbered(700), TASK, options)
    written = write(numbered(1000), TASK, options)
    assert (written.found, written.rows) == (700, 300)
    assert sorted(numbers(stored(ground.namesrv, "Again"))) == list(range(1000))
