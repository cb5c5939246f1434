"""Sends messages again that were read: makes the sink's columns of them, and limits the rate."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from typing import Final

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f

from roquet.protocol.records.message import (
    CLUSTER,
    KEYS,
    RESERVED_PROPERTIES,
    TAGS,
    UNIQ_KEY,
    WAIT,
)
from roquet.spark._write.rows import ROW_ID

_SYSTEM_PROPERTIES: Final = (*sorted(RESERVED_PROPERTIES), ROW_ID)
_REPLACED: Final = (KEYS, TAGS, UNIQ_KEY, WAIT, CLUSTER, "MSG_REGION", "TRACE_ON")
"""System properties that the sink gets as columns, or that every sent message gets."""
PIECES_PER_SECOND: Final = 10
BODY_BYTES: Final = "bodyBytes"


def sendable(messages: DataFrame, topic: Column, *, keep_queues: bool = False) -> DataFrame:
    """The columns for the sink: body, topic, tags, keys, flag, and the application's properties.

    Messages get new ids, times and offsets: brokers assign them.

    :param keep_queues: send each message to the queue id that it had, in its order there.
    """
    columns: list[Column | str] = [
        topic.alias("topic"),
        "body",
        "tags",
        "keys",
        "flag",
        _user_properties().alias("properties"),
    ]
    if not keep_queues:
        return messages.select(columns)
    from_queue = ["topic", "brokerName", "queueId"]
    in_order = messages.repartition(*from_queue).sortWithinPartitions(*from_queue, "queueOffset")
    return in_order.select([*columns, "queueId"])


def _user_properties() -> Column:
    """The application's properties, without those that have a blank value: no client sends them."""
    return f.map_filter(
        "properties", lambda name, value: ~name.isin(*_SYSTEM_PROPERTIES) & (f.trim(value) != "")
    )


def left_out() -> Column:
    """The sorted names of the properties that `sendable` drops without a replacement."""
    lost = f.array_except(f.map_keys("properties"), f.map_keys(_user_properties()))
    return f.array_sort(f.filter(lost, lambda name: ~name.isin(*_REPLACED)))


def body_bytes() -> Column:
    """The aggregate column `BODY_BYTES`: the sum of the body sizes; null if no row has a body."""
    return f.sum(f.octet_length("body")).alias(BODY_BYTES)


def send(messages: DataFrame, options: Mapping[str, str], rate: float | None = None) -> None:
    """Write messages with the sink.

    :param rate: maximum messages per second; one task sends all. None for no limit.
    """
    if rate is not None:
        messages = messages.coalesce(1).mapInArrow(paced(rate), messages.schema)
    messages.write.format("rocketmq").options(**options).mode("append").save()


def paced(rate: float) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """A function that passes batches on in small pieces, so that rows are sent at a steady rate.

    :param rate: rows per second.
    """

    def pacing(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        began = time.monotonic()
        given = 0
        size = max(1, int(rate / PIECES_PER_SECOND))
        for batch in batches:
            for start in range(0, batch.num_rows, size):
                piece = batch.slice(start, size)
                given += piece.num_rows
                time.sleep(max(0.0, began + given / rate - time.monotonic()))
                yield piece

    return pacing
