"""The sources of an archive: running brokers, or their store directories.

Invariant: both sources identify a message by topic, broker, queue id and queue offset. So an
archive can continue with one source where it ended with the other.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Final, Protocol

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.types import StructType

from roquet.errors import OptionError
from roquet.protocol.records.message import MessageQueue
from roquet.spark._arrow.schema import SPARK_SCHEMA
from roquet.spark._options.queue_json import to_tree
from roquet.spark._options.ranges import Bounds, QueueRange, usable_bounds
from roquet.spark._options.read import ReadOptions
from roquet.spark._options.store import StoreOptions
from roquet.spark._options.values import Mode
from roquet.spark._read.waiting import Waiting
from roquet.spark.pipelines._shared.ranges_read import (
    QUEUE,
    check_not_fixed,
    chosen,
    from_bounds,
    places_of,
    read_options,
    read_ranges,
    selected,
)
from roquet.spark.pipelines.archive.plan import StoredRange, new_rows, new_stored_rows

_PLACES: Final = StructType([SPARK_SCHEMA[name] for name in (*QUEUE, "queueOffset")])


class Source(Protocol):
    """A source of messages.

    `is_exact`: True if a read returns exactly as many messages as its ranges have offsets.
    """

    @property
    def is_exact(self) -> bool: ...

    def backlog(
        self, spark: SparkSession, progress: Mapping[MessageQueue, int]
    ) -> list[QueueRange]:
        """The ranges that are not archived yet.

        :param progress: the next offset to archive, for queues that were archived before.
        :raises roquet.spark._options.ranges.DataLoss: messages were lost before they were archived.
        """

    def messages(self, spark: SparkSession, ranges: Iterable[QueueRange]) -> DataFrame:
        """The messages of these ranges, in the columns of `format("rocketmq")`.

        :param ranges: must not be empty.
        """


@dataclass(frozen=True)
class Topics:
    """Topics of running brokers, by name or by a pattern that matches whole names.

    `options`: of `format("rocketmq")`, such as readFrom or maxRecordsPerPartition.

    :raises OptionError: an option is invalid.
    :raises ConfigError: the file in accessFile cannot be read.
    """

    name_server: str
    topics: tuple[str, ...] = ()
    pattern: str = ""
    options: Mapping[str, str] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        if self._read.believes_slaves:
            raise OptionError(
                "readFrom: slave-only with failOnDataLoss=false would never archive messages "
                "that the slave does not have yet: use readFrom=slave, or failOnDataLoss=true"
            )

    @cached_property
    def _waiting(self) -> Waiting:
        return Waiting()

    @property
    def is_exact(self) -> bool:
        read = self._read
        return read.fail_on_data_loss and read.tags is None and read.mode is Mode.FAILFAST

    def backlog(
        self, _spark: SparkSession, progress: Mapping[MessageQueue, int]
    ) -> list[QueueRange]:
        """As `new_ranges`."""
        return self.new_ranges(progress)

    def new_ranges(self, progress: Mapping[MessageQueue, int]) -> list[QueueRange]:
        """The ranges that are not archived yet; new queues from their beginning.

        A queue waits for its master if only a slave answers and lacks the next messages. Raises as
        `from_bounds` does, too.

        :raises MasterAway: a queue waited too long, and failOnDataLoss is true.
        """
        must_not_lose = self._read.fail_on_data_loss

        def new(bounds: Mapping[MessageQueue, Bounds]) -> list[QueueRange]:
            known, waiting = usable_bounds(progress, bounds)
            if waiting and must_not_lose:
                raise next(iter(waiting.values()))
            self._waiting.tell(waiting)
            return new_rows(progress, known, fail_on_data_loss=must_not_lose)

        return from_bounds(self._read, new)

    def messages(self, spark: SparkSession, ranges: Iterable[QueueRange]) -> DataFrame:
        return read_ranges(spark, self._options, ranges)

    @cached_property
    def _options(self) -> dict[str, str]:
        return selected(self.name_server, self.topics, self.pattern, self.options)

    @cached_property
    def _read(self) -> ReadOptions:
        return read_options(self._options)


@dataclass(frozen=True)
class StoredTopics:
    """Topics in the store directories of brokers.

    `broker_names`: one for each path, because no file in a store has the broker's name. With a
    wrong name the queues would count as new, and all their messages would be archived a second
    time. `options`: of `format("rocketmq-store")`. With mode=PERMISSIVE offsets may be missing,
    too.

    :raises OptionError: an option is invalid, or the broker names do not match the paths.
    """

    paths: tuple[str, ...]
    broker_names: tuple[str, ...]
    topics: tuple[str, ...] = ()
    pattern: str = ""
    options: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if len(self.broker_names) != len(self.paths):
            raise OptionError(
                f"{len(self.paths)} store directories and {len(self.broker_names)} broker names: "
                "give the brokerName of each directory, in the same order"
            )
        if len(set(self.broker_names)) < len(self.broker_names):
            raise OptionError(
                f"{', '.join(self.broker_names)}: two stores of one broker would add each message "
                "twice: archive one after the other"
            )
        assert self._read is not None, "parses the options, so that an invalid one raises here"

    @property
    def is_exact(self) -> bool:
        return self._read.mode is Mode.FAILFAST and self._read.tags is None

    def backlog(
        self, spark: SparkSession, progress: Mapping[MessageQueue, int]
    ) -> list[QueueRange]:
        """The ranges that are not archived yet. Scans the logs once, without decoding bodies."""
        known = {queue: at for queue, at in progress.items() if self._has(queue)}
        starting = {"startingOffsets": json.dumps(to_tree(known.items()))} if known else {}
        rows = self._rows(
            spark, _PLACES, {**starting, **chosen(self.topics, self.pattern), "checkCrc": "false"}
        )
        found = (
            rows.groupBy(*QUEUE)
            .agg(f.min("queueOffset"), f.max("queueOffset"), f.count("*"))
            .collect()
        )
        held = {MessageQueue(*row[:3]): StoredRange(row[3], row[4] + 1, row[5]) for row in found}
        return new_stored_rows(known, held, may_miss=self._read.mode is Mode.PERMISSIVE)

    def messages(self, spark: SparkSession, ranges: Iterable[QueueRange]) -> DataFrame:
        return self._rows(spark, SPARK_SCHEMA, places_of(ranges))

    def _rows(
        self, spark: SparkSession, schema: StructType, own_options: Mapping[str, str]
    ) -> DataFrame:
        options = {**self.options, **own_options, "brokerName": ",".join(self.broker_names)}
        return (
            spark.read.format("rocketmq-store")
            .schema(schema)
            .options(**options)
            .load(list(self.paths))
        )

    def _has(self, queue: MessageQueue) -> bool:
        return queue.broker_name in self.broker_names and self._read.selection.has_topic(
            queue.topic
        )

    @cached_property
    def _read(self) -> StoreOptions:
        check_not_fixed(self.options)
        which = chosen(self.topics, self.pattern)
        return StoreOptions.of({**which, **self.options, "paths": json.dumps(self.paths)})
