"""The rows of a write in columns of known types. Validates them, and names invalid rows by number.

Invariant: a row keeps its number when rows are removed or sorted.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, Final, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from roquet.client._send.queue_choice import queue_for_sharding_key
from roquet.errors import MessageError, RoquetError
from roquet.protocol.records.message import (
    NAME_SEPARATOR,
    PROPERTY_SEPARATOR,
    RESERVED_PROPERTIES,
    MessageQueue,
    check_topic,
)
from roquet.spark._arrow.slices import Ints, indices, numbers_in, true_rows, words

ANY_QUEUE: Final = -1
"""The target of a row that may be sent to any queue."""

ROW_ID: Final = "SPARK_ROW"
"""The property with the row id (write, batch, partition, row) for delivery=effectively-once."""

_SEPARATORS: Final = f"[{NAME_SEPARATOR}{PROPERTY_SEPARATOR}]"
_TEXT_COLUMNS: Final = ("topic", "tags", "keys", "sharding_key")
_NUMBER_COLUMNS: Final = ("flag", "delay_level", "queue_id")
_NAMES: Final = {"delayLevel": "delay_level", "shardingKey": "sharding_key", "queueId": "queue_id"}
"""Column name -> field of `SinkRows`, if they differ."""

Column: TypeAlias = "pa.Array | None"


class RowError(RoquetError):
    """A row is no valid message. The text has its partition and its number (from 0) in the task."""


@dataclass(frozen=True)
class SinkRows:
    """Rows of one partition, in columns. A column that the write does not have is None.

    `body` is binary, `properties` a map; `flag`, `delay_level` and `queue_id` are int32, the others
    strings. `numbers` has the row numbers.
    """

    partition: int
    numbers: Ints
    body: pa.Array
    topic: Column = None
    tags: Column = None
    keys: Column = None
    properties: Column = None
    flag: Column = None
    delay_level: Column = None
    sharding_key: Column = None
    queue_id: Column = None

    def __len__(self) -> int:
        return len(self.numbers)

    def take(self, rows: Ints) -> SinkRows:
        """The rows at the given indices, in that order."""
        chosen = indices(rows)
        columns = {name: column.take(chosen) for name, column in self._columns()}
        return replace(self, numbers=self.numbers[rows], **columns)

    def by_topic(self, topic: str | None) -> Iterator[tuple[str, SinkRows]]:
        """Each topic with its rows in order.

        :param topic: the topic of all rows; None to take the column `topic`.
        :raises RowError: a row has no topic, or its topic is invalid.
        """
        if topic is not None:
            yield topic, self
            return
        assert self.topic is not None, "check_columns requires an option or a column topic"
        self.refuse(self.topic.is_null(), "topic is null")
        found = self.topic.dictionary_encode()
        codes = numbers_in(found.indices, np.int32)
        for code, name in enumerate(found.dictionary.to_pylist()):
            places = np.flatnonzero(codes == code)
            try:
                check_topic(name)
            except MessageError as error:
                raise self.error(int(places[0]), str(error)) from error
            yield name, self.take(places) if len(places) < len(self) else self

    def refuse(self, is_wrong: pa.Array, reason: str) -> None:
        """Raise an error that names the first wrong row.

        :param is_wrong: a mask of the rows; null means no.
        :raises RowError: a row is wrong.
        """
        place = pc.index(is_wrong, pa.scalar(True)).as_py()
        if place >= 0:
            raise self.error(place, reason)

    def error(self, place: int, reason: str) -> RowError:
        return RowError(f"row {self.numbers[place]} of partition {self.partition}: {reason}")

    def _columns(self) -> Iterator[tuple[str, pa.Array]]:
        for field in fields(self):
            column = getattr(self, field.name)
            if field.name not in ("partition", "numbers") and column is not None:
                yield field.name, column


def sink_rows(batch: pa.RecordBatch, partition: int, first: int) -> SinkRows:
    """Convert and validate a batch from Spark.

    :param first: the number of the batch's first row.
    :raises RowError: a row has no body, or a value that no message can have.
    """
    columns: dict[str, Any] = {
        _NAMES.get(name, name): batch.column(name) for name in batch.schema.names
    }
    for name in _TEXT_COLUMNS:
        if name in columns:
            columns[name] = columns[name].cast(pa.string())
    for name in _NUMBER_COLUMNS:
        if name in columns:
            columns[name] = columns[name].cast(pa.int32())
    columns["body"] = columns["body"].cast(pa.binary())
    rows = SinkRows(partition, np.arange(first, first + batch.num_rows), **columns)
    _check(rows)
    return rows


def _check(rows: SinkRows) -> None:
    rows.refuse(rows.body.is_null(), "body is null")
    rows.refuse(
        pc.equal(pc.binary_length(rows.body), 0), "body is empty, a message needs at least one byte"
    )
    for name in ("tags", "keys"):
        column = getattr(rows, name)
        if column is not None:
            rows.refuse(
                pc.match_substring_regex(column, _SEPARATORS), f"{name} contains a byte 1 or 2"
            )
    if rows.delay_level is not None:
        rows.refuse(pc.less(rows.delay_level, 0), "delayLevel is below 0")
    if rows.properties is not None:
        _check_properties(rows, rows.properties)


def _check_properties(rows: SinkRows, maps: pa.Array) -> None:
    reserved = words([*sorted(RESERVED_PROPERTIES), ROW_ID])
    names, values = maps.keys, maps.items
    for is_wrong, reason in (
        (pc.is_in(names, value_set=reserved), "a property has a name reserved by the protocol"),
        (_is_blank(names), "a property has a blank name"),
        (pc.fill_null(_is_blank(values), True), "a property has no value, or a blank one"),
        (
            pc.match_substring_regex(names, _SEPARATORS),
            "the name of a property contains a byte 1 or 2",
        ),
        (
            pc.match_substring_regex(values, _SEPARATORS),
            "the value of a property contains a byte 1 or 2",
        ),
    ):
        entries = true_rows(is_wrong)
        if len(entries):
            edges = numbers_in(maps.offsets, np.int32)
            place = int(np.searchsorted(edges, entries[0], "right")) - 1
            raise rows.error(place, f"{reason}: {maps[place].as_py()}")


def _is_blank(texts: pa.Array) -> pa.Array:
    return pc.equal(pc.utf8_length(pc.utf8_trim_whitespace(texts)), 0)


def targets(rows: SinkRows, queues: Sequence[MessageQueue]) -> Ints:
    """The target queue of each row, as its index in `queues`; ANY_QUEUE for rows without one.

    The column queueId overrides shardingKey. If several brokers have a queue with that id, the
    first broker by name gets the row.

    :raises RowError: there is no queue with that id.
    """
    found: Ints = np.full(len(rows), ANY_QUEUE)
    if rows.sharding_key is not None:
        found = _queues_of_keys(rows.sharding_key, queues)
    if rows.queue_id is not None:
        ids = numbers_in(pc.fill_null(rows.queue_id, ANY_QUEUE), np.int32)
        given = true_rows(rows.queue_id.is_valid())
        places = {queue.queue_id: queues.index(queue) for queue in sorted(queues, reverse=True)}
        for place in given.tolist():
            if ids[place] not in places:
                raise rows.error(
                    place, f"there is no queue {ids[place]} in {', '.join(map(str, queues))}"
                )
            found[place] = places[int(ids[place])]
    return found


def _queues_of_keys(keys: pa.Array, queues: Sequence[MessageQueue]) -> Ints:
    """The queue of each row's sharding key. Each distinct key is hashed once."""
    distinct = keys.dictionary_encode()
    place_of = {queue: place for place, queue in enumerate(queues)}
    places = [
        place_of[queue_for_sharding_key(queues, key)] for key in distinct.dictionary.to_pylist()
    ]
    codes = numbers_in(pc.fill_null(distinct.indices, len(places)), np.int32)
    found: Ints = np.array([*places, ANY_QUEUE], np.int64)[codes]
    return found
