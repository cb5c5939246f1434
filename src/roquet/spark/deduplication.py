"""The reader's half of delivery=effectively-once: of rows that are there twice, the first."""

from __future__ import annotations

from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from roquet.spark._write.rows import ROW_ID

_PLACE: Final = ("topic", "brokerName", "queueId", "queueOffset")
_ID: Final = "__row_id"


def deduplicated(messages: DataFrame, within: str | None = None) -> DataFrame:
    """What was read, each row that a sink wrote with delivery=effectively-once only once; other messages as they are.

    :param messages: read with at least topic, brokerName, queueId, queueOffset and properties; a stream with
        storeTimestamp, too.
    :param within: for a stream, how far apart two copies may be, such as "1 hour": so long ids are remembered. A batch
        remembers all.
    :raises ValueError: a stream without `within`.
    """
    place = f.concat_ws("/", *(f.col(name).cast("string") for name in _PLACE))
    marked = messages.withColumn(_ID, f.coalesce(f.element_at("properties", ROW_ID), place))
    if not messages.isStreaming:
        return marked.dropDuplicates([_ID]).drop(_ID)
    if within is None:
        raise ValueError(
            'within is missing: for how long may a copy come after the first, such as "1 hour"?'
        )
    return (
        marked.withWatermark("storeTimestamp", within)
        .dropDuplicatesWithinWatermark([_ID])
        .drop(_ID)
    )
