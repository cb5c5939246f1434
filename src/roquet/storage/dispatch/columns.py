"""Reads topics, tag codes and keys of many records at once, in columns.

Producers often send hundreds of messages that have the same properties with values of the same
sizes. Such records are read together; any others are read one by one.

See docs/storage/dispatch.md.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from roquet.protocol.records import message as m
from roquet.protocol.records.block import RecordBlock, RecordLayouts
from roquet.protocol.records.columns import Bools, Bytes, Ints, byte_rows, java_hashes
from roquet.storage.log.dispatch_request import has_keys, read_dispatch_request
from roquet.storage.queues.consume_queue import ENTRY_SIZE, entry_rows

_SEPARATOR: Final = ord(m.PROPERTY_SEPARATOR)
_SPACE: Final = 0x20
_ASCII_MAX: Final = 0x7F
_FORMS_MAX: Final = 8
"""Groups of alike records that are read together per topic and size of the properties; records of
further groups are read one by one."""
_ALIKE_MIN: Final = 6
"""Fewer records are read one by one, since columns would cost more."""


@dataclass(frozen=True, slots=True)
class QueuePart:
    """The entries that a block of records has for one queue.

    `entries` are the entries end to end, for the queue offsets `offsets`; `offset` is the first
    one, and `is_unbroken` says that they are consecutive. `at` is the physical offset of the first
    record, `log_end` the end of the last. Store times are in ms.
    """

    topic: str
    queue_id: int
    offset: int
    at: int
    log_end: int
    is_unbroken: bool
    offsets: Ints
    store_ms: Ints
    entries: bytes


class Rows:
    """Columns with a value for each record of a block, in the block's order.

    `topic_ids` are indexes into `topics`. An element of `keys` has a topic, keys of one size end to
    end, and the numbers of their records in the block. An element of `delayed` has a delay level
    and the numbers of the records of the schedule topic that have it.
    """

    def __init__(self, block: RecordBlock) -> None:
        self.topics: list[str] = []
        self.topic_ids: Ints = np.empty(len(block), np.int64)
        self.tag_codes: Ints = np.zeros(len(block), np.int64)
        self.store_ms = block.store_ms
        self.keys: list[tuple[str, bytes, Ints]] = []
        self.delayed: list[tuple[str, Ints]] = []
        self.has_keys = has_keys(block.sys_flags)
        self.is_queued = m.is_queued(block.sys_flags)

    def topic_id(self, topic: str) -> int:
        """The topic's index in `topics`, to which it is added if it is new."""
        if topic not in self.topics:
            self.topics.append(topic)
        return self.topics.index(topic)

    def by_queue(self, block: RecordBlock) -> Iterator[QueuePart]:
        """The entries of the block's records, queue by queue."""
        order = np.flatnonzero(self.is_queued)
        queue_ids = block.queue_ids
        order = order[np.lexsort((queue_ids[order], self.topic_ids[order]))]
        if not len(order):
            return
        topics, queue_ids = self.topic_ids[order], queue_ids[order]
        offsets = block.queue_offsets[order]
        physical, sizes, store_ms = block.physical[order], block.sizes[order], self.store_ms[order]
        begins = np.append(True, (topics[1:] != topics[:-1]) | (queue_ids[1:] != queue_ids[:-1]))
        follows = begins | np.append(True, offsets[1:] == offsets[:-1] + 1)
        entries = entry_rows(physical, sizes, self.tag_codes[order]).tobytes()
        starts = np.flatnonzero(begins)
        ends = np.append(starts[1:], len(order))
        unbroken = np.logical_and.reduceat(follows, starts)
        firsts = (topics[starts], queue_ids[starts], offsets[starts], physical[starts])
        columns = (starts, ends, *firsts, (physical + sizes)[ends - 1], unbroken)
        for start, end, topic, queue_id, offset, at, log_end, is_unbroken in zip(
            *map(_list, columns), strict=True
        ):
            part = entries[start * ENTRY_SIZE : end * ENTRY_SIZE]
            name = self.topics[topic]
            yield QueuePart(
                name,
                queue_id,
                offset,
                at,
                log_end,
                is_unbroken,
                offsets[start:end],
                store_ms[start:end],
                part,
            )


def _list(column: npt.NDArray[Any]) -> list[Any]:
    values: list[Any] = column.tolist()
    return values


def read_rows(block: RecordBlock) -> Rows | None:
    """Read a block; None if the sizes of some record's parts do not add up."""
    shape = block.shape
    if not shape.sound.all():
        return None
    rows = Rows(block)
    alone: list[int] = []
    sizes = (shape.topic_end - shape.topic_at) << 16 | block.ends - shape.properties_at
    for size in np.unique(sizes).tolist():
        numbers = np.flatnonzero(sizes == size)
        for topic, same in _by_topic(block, shape, numbers, size >> 16):
            texts = byte_rows(block.data, shape.properties_at[same], size & 0xFFFF)
            for left in _read_alike(rows, topic.decode("utf-8", "replace"), same, texts):
                alone += left.tolist()
    _read_alone(rows, block, alone)
    return rows


def _read_alike(rows: Rows, topic: str, numbers: Ints, texts: Bytes) -> Iterator[Ints]:
    """Read records of one topic whose properties have one size, those that are alike together.

    :param numbers: of the records in the block.
    :param texts: their properties, a row for each record.
    :returns: the numbers of records that were not read.
    """
    for _ in range(_FORMS_MAX):
        if len(numbers) < _ALIKE_MIN:
            break
        text = texts[0].tobytes()
        values = _values(text)
        is_alike = _are_alike(texts, values, topic)
        is_read = is_alike & _are_ascii(texts, values)
        if is_read.all():
            _fill(rows, topic, numbers, texts, text, values)
            return
        if is_read.any():
            _fill(rows, topic, numbers[is_read], texts[is_read], text, values)
        yield numbers[is_alike & ~is_read]
        numbers, texts = numbers[~is_alike], texts[~is_alike]
    yield numbers


def _fill(
    rows: Rows, topic: str, numbers: Ints, texts: Bytes, text: bytes, values: dict[str, slice]
) -> None:
    """Fill the columns for records whose properties are like `text`.

    :param values: of the properties in `text`: name, and where the value is; the same in all
        records.
    """
    rows.topic_ids[numbers] = rows.topic_id(topic)
    if m.TAGS in values:
        rows.tag_codes[numbers] = java_hashes(texts[:, values[m.TAGS]])
    if topic == m.SCHEDULE_TOPIC and m.DELAY in values:
        rows.delayed.append((text[values[m.DELAY]].decode(), numbers))
    is_indexed = rows.has_keys[numbers]
    if not is_indexed.all():
        numbers, texts = numbers[is_indexed], texts[is_indexed]
    if len(numbers):
        rows.keys += [(topic, texts[:, key].tobytes(), numbers) for key in _keys(text, values)]


def _read_alone(rows: Rows, block: RecordBlock, numbers: list[int]) -> None:
    """Read some records one by one."""
    keys: dict[tuple[str, int], list[tuple[bytes, int]]] = {}
    view = memoryview(block.data)
    for number in numbers:
        start, end = int(block.starts[number]), int(block.ends[number])
        request = read_dispatch_request(block.at + start, view[start:end])
        rows.topic_ids[number] = rows.topic_id(request.topic)
        rows.tag_codes[number] = m.tag_code(request.properties.get(m.TAGS))
        if request.delay_level is not None:
            rows.delayed.append((request.delay_level, np.array([number])))
        for key in request.keys:
            keys.setdefault((request.topic, len(key)), []).append((key, number))
    for (topic, _), alike in keys.items():
        rows.keys.append(
            (topic, b"".join(key for key, _ in alike), np.array([number for _, number in alike]))
        )


def _by_topic(
    block: RecordBlock, shape: RecordLayouts, numbers: Ints, size: int
) -> Iterator[tuple[bytes, Ints]]:
    """Group records whose topics have one size: each topic, and the numbers of its records."""
    topics = byte_rows(block.data, shape.topic_at[numbers], size)
    while len(numbers):
        is_same = (topics == topics[0]).all(axis=1)
        yield topics[0].tobytes(), numbers[is_same]
        topics, numbers = topics[~is_same], numbers[~is_same]


def _values(text: bytes) -> dict[str, slice]:
    """Name of each property and where its value is, by the rules of `message.split_properties`."""
    found: dict[str, slice] = {}
    at = 0
    for pair in text.split(m.PROPERTY_SEPARATOR.encode()):
        name, separator, value = pair.partition(m.NAME_SEPARATOR.encode())
        if name and separator and value:
            found[name.decode("latin-1")] = slice(at + len(name) + 1, at + len(pair))
        at += len(pair) + 1
    return found


def _are_alike(texts: Bytes, values: dict[str, slice], topic: str) -> Bools:
    """Which records have the properties of the first one, with values of the same sizes.

    The spaces between keys must be at the same places, and the delay levels must be equal.
    """
    is_odd = texts != texts[0]
    differs = is_odd.any(axis=0)
    is_value = np.zeros(len(differs), np.bool_)
    for name, value in values.items():
        is_value[value] = topic != m.SCHEDULE_TOPIC or name != m.DELAY
    spaces = texts[:, values.get(m.KEYS, slice(0))] == _SPACE
    is_separated = texts[:, differs & is_value] == _SEPARATOR
    return _without(len(texts), is_odd[:, differs & ~is_value], is_separated, spaces != spaces[0])


def _are_ascii(texts: Bytes, values: dict[str, slice]) -> Bools:
    """Which records have only ASCII in the values that are read: tags, keys and delay level."""
    read = (m.TAGS, m.KEYS, m.UNIQ_KEY, m.DELAY)
    return _without(
        len(texts), *(texts[:, values[name]] > _ASCII_MAX for name in read if name in values)
    )


def _without(count: int, *odd: Bools) -> Bools:
    """Which of `count` rows have no True in any of the arrays."""
    found = np.ones(count, np.bool_)
    for each in odd:
        if each.any():
            found &= ~each.any(axis=1)
    return found


def _keys(text: bytes, values: dict[str, slice]) -> list[slice]:
    """Where the keys are that `dispatch_request.keys_of` returns."""
    found = [values[m.UNIQ_KEY]] if m.UNIQ_KEY in values else []
    if m.KEYS in values:
        start, end = values[m.KEYS].start, values[m.KEYS].stop
        spaces = [at for at in range(start, end) if text[at] == _SPACE]
        found += [
            slice(first + 1, last)
            for first, last in pairwise([start - 1, *spaces, end])
            if first + 1 < last
        ]
    return found
