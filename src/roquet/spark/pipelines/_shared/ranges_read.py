"""Reads of exactly these ranges of queues: what a job settled before, whatever comes to the topics meanwhile."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from typing import Final, TypeVar

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from roquet.admin.access import with_access_file
from roquet.protocol.records.message import MessageQueue
from roquet.spark._arrow.schema import SPARK_SCHEMA
from roquet.spark._options.queue_json import to_tree
from roquet.spark._options.ranges import Bounds, QueueRange, check_certain
from roquet.spark._options.read import ReadOptions
from roquet.spark._options.values import OptionError
from roquet.spark._read.cluster_queries import ClusterQueries, client
from roquet.spark.pipelines._shared.run_sync import run_sync

T = TypeVar("T")
QUEUE: Final = ("topic", "brokerName", "queueId")
"""The columns that name a queue."""
_SETTLED: Final = (
    "subscribe",
    "topic",
    "subscribePattern",
    "assign",
    "nameServer",
    "path",
    "paths",
    "brokerName",
)
_SETTLED_STARTS: Final = ("starting", "ending")


def selected(
    name_server: str, topics: Iterable[str], pattern: str, options: Mapping[str, str]
) -> dict[str, str]:
    """The options of `format("rocketmq")` for these topics, or those that match the pattern.

    :raises OptionError: `options` has one that a job settles by itself.
    """
    check_unsettled(options)
    return {"nameServer": name_server, **chosen(topics, pattern), **options}


def check_unsettled(options: Iterable[str]) -> None:
    """:raises OptionError: one of these is an option that a job settles by itself."""
    settled = {name.lower() for name in _SETTLED}
    for name in options:
        if name.lower() in settled or name.lower().startswith(_SETTLED_STARTS):
            raise OptionError(f"{name}: the job settles this by itself, leave it out")


def read_options(source: Mapping[str, str]) -> ReadOptions:
    """What such options mean, where the driver reads what has to be read for that.

    :raises OptionError: one cannot be used. ConfigError: the file in accessFile cannot be read.
    """
    return ReadOptions.of_batch(with_access_file(source))


def chosen(topics: Iterable[str], pattern: str) -> dict[str, str]:
    """The option that selects these topics, or those that match the pattern, or nothing in particular."""
    names = ",".join(topics)
    return {"subscribePattern": pattern} if pattern else {"subscribe": names} if names else {}


def bounds_now(options: ReadOptions) -> dict[MessageQueue, Bounds]:
    """Every queue selected, and what it holds.

    :raises RouteNotFound: there is no such topic.
    :raises roquet.spark._read.queue.NoProgress: nobody answered in time.
    :raises roquet.spark._options.ranges.MasterAway: only a slave did, and its word is not to be taken.
    """

    def certain(bounds: dict[MessageQueue, Bounds]) -> dict[MessageQueue, Bounds]:
        for queue, held in bounds.items():
            check_certain(queue, "earliest to latest", held, options)
        return bounds

    return from_bounds(options, certain)


def from_bounds(options: ReadOptions, settle: Callable[[dict[MessageQueue, Bounds]], T]) -> T:
    """What `settle` makes of the bounds of every queue selected; it is asked again while it misses a master.

    Raises as `bounds_now`, and what `settle` raises.
    """

    async def asking() -> T:
        async with client(options) as consumer:
            survey = ClusterQueries(consumer, options)

            async def settling() -> T:
                return settle(await survey.bounds(await survey.queues()))

            return await survey.patiently(settling)

    return run_sync(asking)


def read_ranges(
    spark: SparkSession,
    source: Mapping[str, str],
    ranges: Iterable[QueueRange],
    schema: StructType = SPARK_SCHEMA,
) -> DataFrame:
    """The messages of the ranges, none of which is empty, with the columns of `schema`.

    :param source: options as from `selected`; which topics they select does not count.
    """
    others = {
        name: value
        for name, value in source.items()
        if name not in ("subscribe", "subscribePattern")
    }
    return (
        spark.read.format("rocketmq").schema(schema).options(**others, **places_of(ranges)).load()
    )


def places_of(ranges: Iterable[QueueRange]) -> dict[str, str]:
    """The options that say these ranges, for brokers as for store files."""
    parts = list(ranges)
    queues: dict[str, dict[str, list[int]]] = {}
    for each in parts:
        queues.setdefault(each.queue.topic, {}).setdefault(each.queue.broker_name, []).append(
            each.queue.queue_id
        )
    return {
        "assign": json.dumps(queues),
        "startingOffsets": json.dumps(to_tree((each.queue, each.start) for each in parts)),
        "endingOffsets": json.dumps(to_tree((each.queue, each.end) for each in parts)),
    }
