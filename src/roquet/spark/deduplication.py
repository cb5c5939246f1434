"""The reader's half of delivery=effectively-once: drops the copies of rows that were sent twice."""

from __future__ import annotations

from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from roquet.spark._write.rows import ROW_ID

_PLACE: Final = ("topic", "brokerName", "queueId", "queueOffset")
_ID: Final = "__row_id"


def deduplicated(messages: DataFrame, within: str | None = None) -> DataFrame:
    """Drop all but one copy of each row that a sink wrote with delivery=effectively-once.

    Other messages stay as they are.

    :param messages: must have the columns topic, brokerName, queueId, queueOffset and properties,
        and storeTimestamp if it is a stream.
    :param within: how far apart two copies in a stream may be, such as "1 hour". Spark keeps row
        ids that long. Not used for a batch, which compares all rows.
    :raises ValueError: `messages` is a stream and `within` is missing.
    """
    place = f.concat_ws("/", *(f.col(name).cast("string") for name in _PLACE))
    marked = messages.withColumn(_ID, f.coalesce(f.element_at("properties", ROW_ID), place))
    if not messages.isStreaming:
        return marked.dropDuplicates([_ID]).drop(_ID)
    if within is None:
        raise ValueError(
            'within is missing: give the longest time between two copies of a row, such as "1 hour"'
        )
    return (
        marked.withWatermark("storeTimestamp", within)
        .dropDuplicatesWithinWatermark([_ID])
        .drop(_ID)
    )
