"""PURE: parses the options of reads from `format("rocketmq")`, batch and stream."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Final, Literal, Self, TypeAlias, cast

from roquet.admin.access import Access
from roquet.errors import OptionError
from roquet.protocol.records.compression import UNCOMPRESSED_MAX
from roquet.spark._options.queue_json import whole_number
from roquet.spark._options.selection import Selection
from roquet.spark._options.start_end import Offsets, ending, starting
from roquet.spark._options.values import (
    ACCESS_NAMES,
    Mode,
    Parsers,
    access,
    boolean,
    by_documented_name,
    count,
    group,
    mode,
    name_server,
    one_of,
    parsed,
    tags,
    uncompressed_max,
)

ReadFrom: TypeAlias = Literal["master", "slave", "slave-only", "any"]

DEFAULT_GROUP: Final = "spark-rocketmq-source"
"""The consumer group of pulls. One for all reads: brokers never forget the name of a group."""
_UNIT_MS: Final = {
    "ms": 1,
    "s": 1000,
    "m": 60_000,
    "min": 60_000,
    "h": 3_600_000,
    "d": 86_400_000,
    "": 1,
}


@dataclass(frozen=True)
class ReadOptions:
    """The options of one read. Times are in milliseconds.

    `tags` is None for all messages. `no_progress_timeout_ms` bounds how long a read retries without
    receiving a message. Only batch reads use `ending_offsets`, only streams the fields
    ..._per_trigger and `max_trigger_delay_ms`.

    `believes_slaves`: True if messages that a slave lacks count as lost, because the options allow
    neither to ask the master nor to fail on data loss. Always False for streams: a stream would
    skip messages that the slave has not received yet.
    """

    name_server: str
    selection: Selection
    starting_offsets: Offsets
    ending_offsets: Offsets
    tags: frozenset[str] | None = None
    fail_on_data_loss: bool = True
    read_from: ReadFrom = "any"
    pull_timeout_ms: int = 3000
    pull_batch_size: int = 32
    no_progress_timeout_ms: int = 30_000
    min_partitions: int | None = None
    max_records_per_partition: int | None = None
    include_properties: bool = True
    pull_group: str = DEFAULT_GROUP
    consumer_group: str | None = None
    max_offsets_per_trigger: int | None = None
    max_bytes_per_trigger: int | None = None
    min_offsets_per_trigger: int | None = None
    max_trigger_delay_ms: int = 15 * 60_000
    mode: Mode = Mode.FAILFAST
    uncompressed_max: int = UNCOMPRESSED_MAX
    access: Access = field(default_factory=Access)
    believes_slaves: bool = False

    @property
    def group(self) -> str:
        return self.consumer_group or self.pull_group

    @property
    def takes_slaves_ends(self) -> bool:
        """Whether a slave may resolve "earliest" and "latest" while the master does not answer."""
        return self.read_from in ("slave", "slave-only") or not self.fail_on_data_loss

    @classmethod
    def of_batch(cls, options: Mapping[str, str]) -> Self:
        """Parse the options of a batch read.

        :raises OptionError: an option is missing, unknown, only for streams or invalid.
        """
        values = _values(
            options, not_here=_STREAM_ONLY, why="only streams have it, this is a batch read"
        )
        selection = Selection.of(values)
        read = cls._of(
            values, selection, starting(values, selection, default="earliest", wrong="latest")
        )
        return replace(
            read, believes_slaves=read.read_from == "slave-only" and not read.fail_on_data_loss
        )

    @classmethod
    def of_stream(cls, options: Mapping[str, str]) -> Self:
        """Parse the options of a stream.

        :raises OptionError: an option is missing, unknown, only for batch reads or invalid.
        """
        values = _values(
            options, not_here=_BATCH_ONLY, why="only batch reads have it, a stream has no end"
        )
        selection = Selection.of(values)
        read = cls._of(values, selection, starting(values, selection, default="latest", wrong=None))
        least = read.min_offsets_per_trigger
        most = read.max_offsets_per_trigger
        if least is not None and most is not None and least > most:
            raise OptionError(
                f"minOffsetsPerTrigger, {least}, is above maxOffsetsPerTrigger, {most}"
            )
        if "maxTriggerDelay" in values and least is None:
            raise OptionError(
                "maxTriggerDelay bounds the wait for minOffsetsPerTrigger: give both options"
            )
        return read

    @classmethod
    def _of(cls, values: Mapping[str, str], selection: Selection, start: Offsets) -> Self:
        return cls(
            name_server(values),
            selection,
            start,
            ending(values, selection),
            access=access(values),
            **parsed(values, _SIMPLE),
        )


def include_properties(options: Mapping[str, str]) -> bool:
    """The option includeProperties, the only one that changes the schema."""
    return boolean("includeProperties", _values(options).get("includeProperties", "true"))


def _values(
    options: Mapping[str, str], not_here: frozenset[str] = frozenset(), why: str = ""
) -> dict[str, str]:
    values = by_documented_name(options, _NAMES, _ALIASES)
    for name in values:
        if name in not_here:
            raise OptionError(f"{name}: {why}")
    return values


def _read_from(name: str, text: str) -> ReadFrom:
    return cast(ReadFrom, one_of(name, text, ("master", "slave", "slave-only", "any")))


def _delay(name: str, text: str) -> int:
    """A duration in ms, parsed from a number with a unit as in Spark; without a unit it is ms."""
    found = re.fullmatch(r"(\d+)\s*([a-z]*)", text.lower())
    number = whole_number(found[1]) if found is not None else None
    if found is None or number is None or found[2] not in _UNIT_MS:
        raise OptionError(f"{name}: {text!r} is no duration such as 15m, 90s or 500ms")
    return number * _UNIT_MS[found[2]]


_SIMPLE: Final[Parsers] = {
    "tags": ("tags", tags),
    "failOnDataLoss": ("fail_on_data_loss", boolean),
    "readFrom": ("read_from", _read_from),
    "pullTimeoutMs": ("pull_timeout_ms", count),
    "pullBatchSize": ("pull_batch_size", count),
    "noProgressTimeoutMs": ("no_progress_timeout_ms", count),
    "minPartitions": ("min_partitions", count),
    "maxRecordsPerPartition": ("max_records_per_partition", count),
    "includeProperties": ("include_properties", boolean),
    "groupIdPrefix": ("pull_group", group),
    "consumerGroup": ("consumer_group", group),
    "maxOffsetsPerTrigger": ("max_offsets_per_trigger", count),
    "maxBytesPerTrigger": ("max_bytes_per_trigger", count),
    "minOffsetsPerTrigger": ("min_offsets_per_trigger", count),
    "maxTriggerDelay": ("max_trigger_delay_ms", _delay),
    "mode": ("mode", mode),
    "maxUncompressedBytes": ("uncompressed_max", uncompressed_max),
}
"""Options that do not depend on other options."""

_STARTING: Final = (
    "startingOffsets",
    "startingTimestamp",
    "startingOffsetsByTimestamp",
    "startingOffsetsByTimestampStrategy",
)
_BATCH_ONLY: Final = frozenset(("endingOffsets", "endingTimestamp", "endingOffsetsByTimestamp"))
_STREAM_ONLY: Final = frozenset(
    ("maxOffsetsPerTrigger", "maxBytesPerTrigger", "minOffsetsPerTrigger", "maxTriggerDelay")
)
_NAMES: Final = (
    *("nameServer", "subscribe", "subscribePattern", "assign"),
    *ACCESS_NAMES,
    *_STARTING,
    *_BATCH_ONLY,
    *_SIMPLE,
)
_ALIASES: Final = {"topic": "subscribe", "subExpression": "tags", "pullTimeout": "pullTimeoutMs"}
"""The names in rocketmq-spark."""
