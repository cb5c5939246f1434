"""PURE: the options of `format("rocketmq")`, from Spark's text to typed values.

Keeps: whatever is wrong in the options raises one `OptionError`, which says what would be right.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal, TypeAlias, cast

from roquet.protocol.message import MessageQueue
from roquet.spark.option_values import OptionError, by_right_name, count, name_server, one_of, tags, topics, truth

Edge: TypeAlias = Literal["earliest", "latest"]
ReadFrom: TypeAlias = Literal["master", "slave", "any"]

EARLIEST_NUMBER: Final = -2
LATEST_NUMBER: Final = -1

_EDGE_BY_NUMBER: Final[Mapping[int, Edge]] = {EARLIEST_NUMBER: "earliest", LATEST_NUMBER: "latest"}
_OFFSETS_FORM: Final = '"earliest", "latest" or JSON such as {"orders":{"broker-a":{"0":23,"1":-1}}}'


@dataclass(frozen=True)
class Offsets:
    """Where to start or end: an edge for every queue, other places for the queues named."""

    default: Edge
    named: Mapping[MessageQueue, Edge | int]

    def of(self, queue: MessageQueue) -> Edge | int:
        return self.named.get(queue, self.default)


@dataclass(frozen=True)
class ReadOptions:
    """What a read was asked for. Times in milliseconds.

    `tags` is None where every message is wanted; `no_progress_timeout_ms` bounds how long a read goes on trying
    without getting one message further.
    """

    name_server: str
    topics: tuple[str, ...]
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

    @classmethod
    def of_batch(cls, options: Mapping[str, str]) -> ReadOptions:
        """The options of a batch read.

        :raises OptionError: one is missing, unknown or has a value that cannot be used.
        """
        values = by_right_name(options, _NAMES, _ALIASES)
        if "subscribe" not in values:
            raise OptionError("subscribe is missing: give one topic, or several separated by commas")
        subscribed = topics("subscribe", values["subscribe"])
        values_of_fields: dict[str, object] = {
            "name_server": name_server(values),
            "topics": subscribed,
            "starting_offsets": _offsets("startingOffsets", values, subscribed, default="earliest", wrong_end="latest"),
            "ending_offsets": _offsets("endingOffsets", values, subscribed, default="latest", wrong_end="earliest"),
        }
        for name, (field, parse) in _SIMPLE.items():
            if name in values:
                values_of_fields[field] = parse(name, values[name])
        return cls(**cast(dict[str, Any], values_of_fields))


def _offsets(
    name: str, values: Mapping[str, str], topics: tuple[str, ...], *, default: Edge, wrong_end: Edge
) -> Offsets:
    """`wrong_end` is the edge that makes no sense here: no batch starts at the latest or ends at the earliest."""
    text = values.get(name, default)
    if text.lower() == default:
        return Offsets(default, {})
    if text.lower() == wrong_end:
        raise OptionError(f"{name}: a batch read cannot have {wrong_end!r} here")
    named = dict(_named_offsets(name, text, topics))
    for queue, place in named.items():
        if place == wrong_end:
            number = LATEST_NUMBER if wrong_end == "latest" else EARLIEST_NUMBER
            raise OptionError(f"{name}: {number} ({wrong_end}) makes no sense for a batch read, at {queue}")
    return Offsets(default, named)


def _named_offsets(name: str, text: str, topics: tuple[str, ...]) -> list[tuple[MessageQueue, Edge | int]]:
    try:
        tree = json.loads(text)
    except ValueError as error:
        raise OptionError(f"{name}: {text!r} is none of {_OFFSETS_FORM}") from error
    places: list[tuple[MessageQueue, Edge | int]] = []
    for topic, brokers in _pairs(name, tree):
        if topic not in topics:
            raise OptionError(f"{name}: topic {topic!r} is not one of those subscribed: {', '.join(topics)}")
        for broker_name, queues in _pairs(name, brokers):
            for queue_id, number in _pairs(name, queues):
                if not queue_id.isdecimal():
                    raise OptionError(f"{name}: queue {queue_id!r} of {topic}@{broker_name} is no number")
                queue = MessageQueue(topic, broker_name, int(queue_id))
                places.append((queue, _place(name, queue, number)))
    return places


def _pairs(name: str, tree: object) -> list[tuple[str, object]]:
    if not isinstance(tree, dict):
        raise OptionError(f"{name}: {json.dumps(tree)} stands where a JSON object must be, as in {_OFFSETS_FORM}")
    return list(tree.items())


def _place(name: str, queue: MessageQueue, number: object) -> Edge | int:
    if not isinstance(number, int) or isinstance(number, bool) or number < EARLIEST_NUMBER:
        raise OptionError(f"{name}: offset {json.dumps(number)} of {queue}: a number, -2 (earliest) or -1 (latest)")
    return _EDGE_BY_NUMBER.get(number, number)


def _read_from(name: str, text: str) -> ReadFrom:
    return cast(ReadFrom, one_of(name, text, ("master", "slave", "any")))


_SIMPLE: Final[Mapping[str, tuple[str, Callable[[str, str], object]]]] = {
    "tags": ("tags", tags),
    "failOnDataLoss": ("fail_on_data_loss", truth),
    "readFrom": ("read_from", _read_from),
    "pullTimeoutMs": ("pull_timeout_ms", count),
    "pullBatchSize": ("pull_batch_size", count),
    "noProgressTimeoutMs": ("no_progress_timeout_ms", count),
    "minPartitions": ("min_partitions", count),
    "maxRecordsPerPartition": ("max_records_per_partition", count),
    "includeProperties": ("include_properties", truth),
}
"""Options that stand for themselves: the field each one fills and how its text is read."""

_NAMES: Final = ("nameServer", "subscribe", "startingOffsets", "endingOffsets", *_SIMPLE)
_ALIASES: Final = {"topic": "subscribe"}
