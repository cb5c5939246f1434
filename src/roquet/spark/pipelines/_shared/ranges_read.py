"""Plans the queue ranges of a job, and reads exactly these, whatever arrives in the meantime."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from typing import Final, TypeVar

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from roquet.admin.access import with_access_file
from roquet.errors import OptionError
from roquet.protocol.records.message import MessageQueue
from roquet.spark._arrow.schema import SPARK_SCHEMA
from roquet.spark._options.queue_json import to_tree
from roquet.spark._options.ranges import Bounds, QueueRange, check_certain
from roquet.spark._options.read import ReadOptions
from roquet.spark._read.cluster_queries import ClusterQueries, opened
from roquet.spark.pipelines._shared.run_sync import run_sync

T = TypeVar("T")
QUEUE: Final = ("topic", "brokerName", "queueId")
"""The columns that name a queue."""
_FIXED: Final = (
    "subscribe",
    "topic",
    "subscribePattern",
    "assign",
    "nameServer",
    "path",
    "paths",
    "brokerName",
)
_FIXED_PREFIXES: Final = ("starting", "ending")


def selected(
    name_server: str, topics: Iterable[str], pattern: str, options: Mapping[str, str]
) -> dict[str, str]:
    """The options of `format("rocketmq")` for these topics, or those that match the pattern.

    :raises OptionError: `options` contains an option that jobs set themselves.
    """
    check_not_fixed(options)
    return {"nameServer": name_server, **chosen(topics, pattern), **options}


def check_not_fixed(options: Iterable[str]) -> None:
    """Check that the user's options contain none that jobs set themselves.

    :raises OptionError: they do.
    """
    fixed = {name.lower() for name in _FIXED}
    for name in options:
        if name.lower() in fixed or name.lower().startswith(_FIXED_PREFIXES):
            raise OptionError(f"{name}: the job sets this option itself, leave it out")


def read_options(source: Mapping[str, str]) -> ReadOptions:
    """Parse the options of a read, in the driver, which reads the file in accessFile.

    :raises OptionError: an option is invalid.
    :raises ConfigError: the file in accessFile cannot be read.
    """
    return ReadOptions.of_batch(with_access_file(source))


def chosen(topics: Iterable[str], pattern: str) -> dict[str, str]:
    """The option that selects topics by pattern or by name; none if both are empty."""
    if pattern:
        return {"subscribePattern": pattern}
    names = ",".join(topics)
    return {"subscribe": names} if names else {}


def ranges_now(source: Mapping[str, str]) -> list[QueueRange]:
    """All that the selected queues have now, without empty queues.

    :param source: options from `selected`.
    :raises OptionError, ConfigError: as `read_options`.
    :raises RouteNotFound: there is no such topic.
    :raises roquet.spark._read.queue.NoProgress: no broker answered in time.
    :raises roquet.spark._options.ranges.MasterAway: only a slave answered, and the options do not
        accept its bounds.
    """
    options = read_options(source)

    def ranges(bounds: dict[MessageQueue, Bounds]) -> list[QueueRange]:
        for queue, held in bounds.items():
            check_certain(queue, "earliest to latest", held, options)
        whole = (QueueRange(queue, held.min, held.max) for queue, held in sorted(bounds.items()))
        return [each for each in whole if each.size > 0]

    return from_bounds(options, ranges)


def from_bounds(options: ReadOptions, plan: Callable[[dict[MessageQueue, Bounds]], T]) -> T:
    """The result of `plan` for the bounds of all selected queues.

    While `plan` raises `MasterAway` the brokers are asked again, until the time is over. Raises as
    `ranges_now` does, and what `plan` raises.
    """

    async def asking() -> T:
        async with await opened(options) as consumer:
            queries = ClusterQueries(consumer, options)

            async def planned() -> T:
                return plan(await queries.bounds(await queries.queues()))

            return await queries.patiently(planned)

    return run_sync(asking)


def read_ranges(
    spark: SparkSession,
    source: Mapping[str, str],
    ranges: Iterable[QueueRange],
    schema: StructType = SPARK_SCHEMA,
) -> DataFrame:
    """The messages of the ranges with the columns of `schema`.

    :param source: options from `selected`; the topics in them are ignored.
    :param ranges: must not be empty.
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
    """The options that select these ranges, from brokers or from store files."""
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
