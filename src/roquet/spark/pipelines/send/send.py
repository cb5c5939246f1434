"""Messages that were read, on their way into a topic again: as columns of the sink, and not faster than is wanted."""

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

_NOT_OURS: Final = (*sorted(RESERVED_PROPERTIES), ROW_ID)
_TAKEN_CARE_OF: Final = (KEYS, TAGS, UNIQ_KEY, WAIT, CLUSTER, "MSG_REGION", "TRACE_ON")
"""Properties of which columns are made, or that every message is given when it is sent."""
SLICES_PER_SECOND: Final = 10
BODY_BYTES: Final = "bodyBytes"


def sendable(messages: DataFrame, topic: Column, *, keep_queues: bool = False) -> DataFrame:
    """What the sink takes: body, topic, tags, keys, flag, and those properties that are an application's own.

    Which message id, times and offsets a message had is the broker's to say, so it gets new ones.

    :param keep_queues: every message goes to the queue of the number it came from, in its order there.
    """
    columns: list[Column | str] = [
        topic.alias("topic"),
        "body",
        "tags",
        "keys",
        "flag",
        _own().alias("properties"),
    ]
    if not keep_queues:
        return messages.select(columns)
    from_queue = ["topic", "brokerName", "queueId"]
    in_order = messages.repartition(*from_queue).sortWithinPartitions(*from_queue, "queueOffset")
    return in_order.select([*columns, "queueId"])


def _own() -> Column:
    return f.map_filter(
        "properties", lambda name, value: ~name.isin(*_NOT_OURS) & (f.trim(value) != "")
    )


def left_out() -> Column:
    """The names of a message's properties that `sendable` leaves out although nothing takes their place, sorted."""
    lost = f.array_except(f.map_keys("properties"), f.map_keys(_own()))
    return f.array_sort(f.filter(lost, lambda name: ~name.isin(*_TAKEN_CARE_OF)))


def body_bytes() -> Column:
    """Column `BODY_BYTES` of a grouping: the bytes of all its bodies; null where none has one."""
    return f.sum(f.octet_length("body")).alias(BODY_BYTES)


def send(messages: DataFrame, options: Mapping[str, str], rate: float | None = None) -> None:
    """Write them with the sink; `rate`: at most so many a second, by one task."""
    if rate is not None:
        messages = messages.coalesce(1).mapInArrow(paced(rate), messages.schema)
    messages.write.format("rocketmq").options(**options).mode("append").save()


def paced(rate: float) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Gives batches on in small pieces, so that rows come evenly."""

    def pacing(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        began, given = time.monotonic(), 0
        size = max(1, int(rate / SLICES_PER_SECOND))
        for batch in batches:
            for start in range(0, batch.num_rows, size):
                piece = batch.slice(start, size)
                given += piece.num_rows
                time.sleep(max(0.0, began + given / rate - time.monotonic()))
                yield piece

    return pacing
