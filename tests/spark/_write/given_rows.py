"""Rows as Spark gives them to a sink, with the columns that a test names."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from roquet.spark._write.rows import SinkRows, sink_rows

SCHEMA = pa.schema(
    {
        "body": pa.binary(),
        "topic": pa.string(),
        "tags": pa.string(),
        "keys": pa.string(),
        "properties": pa.map_(pa.string(), pa.string()),
        "flag": pa.int32(),
        "delayLevel": pa.int32(),
        "shardingKey": pa.string(),
        "queueId": pa.int32(),
    }
)


def rows(*each: dict[str, Any], first: int = 0) -> SinkRows:
    names = [name for name in SCHEMA.names if any(name in row for row in each)]
    schema = pa.schema([SCHEMA.field(name) for name in names])
    given = [
        {name: row.get(name, b"x" if name == "body" else None) for name in names} for row in each
    ]
    if "body" not in names:
        schema = schema.append(SCHEMA.field("body"))
        given = [row | {"body": b"x"} for row in given]
    return sink_rows(pa.RecordBatch.from_pylist(given, schema), 3, first)
