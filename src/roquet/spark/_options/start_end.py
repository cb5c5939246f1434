"""PURE: the options starting... and ending...: where a read starts and ends, by offset or time."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

from roquet.errors import OptionError
from roquet.protocol.records.message import MessageQueue
from roquet.spark._options.queue_json import by_queue, tree_of, whole_number
from roquet.spark._options.selection import Selection
from roquet.spark._options.values import one_of

Edge: TypeAlias = Literal["earliest", "latest"]
EARLIEST_NUMBER: Final = -2
LATEST_NUMBER: Final = -1

_EDGE_BY_NUMBER: Final[Mapping[int, Edge]] = {EARLIEST_NUMBER: "earliest", LATEST_NUMBER: "latest"}
_OFFSETS_FORM: Final = (
    '"earliest", "latest" or JSON such as {"orders":{"broker-a":{"0":23,"1":-1}}}'
)
_TIMES_FORM: Final = (
    'JSON such as {"orders":{"broker-a":{"0":1700000000000}}}, milliseconds since 1970'
)


@dataclass(frozen=True)
class AtTime:
    """The first message stored at `ms` (since 1970) or later.

    If there is no such message: the queue's end with `or_latest`, otherwise an error.
    """

    ms: int
    or_latest: bool = True


OffsetSpec: TypeAlias = Edge | int | AtTime


@dataclass(frozen=True)
class Offsets:
    """Where to start or end: a default for all queues, and exceptions for the queues in `named`."""

    default: OffsetSpec
    named: Mapping[MessageQueue, OffsetSpec]

    def of(self, queue: MessageQueue) -> OffsetSpec:
        return self.named.get(queue, self.default)


def starting(
    values: Mapping[str, str],
    selection: Selection,
    *,
    default: Edge,
    wrong: Edge | None,
    strategy: str = "error",
) -> Offsets:
    """Where to start.

    As in Spark's Kafka source, startingTimestamp overrides startingOffsetsByTimestamp, which
    overrides startingOffsets.

    :param wrong: the edge at which this kind of read cannot start.
    :param strategy: default of startingOffsetsByTimestampStrategy: "error" or "latest".
    :raises OptionError: an option that takes effect is invalid.
    """
    or_latest = _strategy(values, strategy) == "latest"
    return _place("starting", values, selection, default, wrong, lambda ms: AtTime(ms, or_latest))


def ending(values: Mapping[str, str], selection: Selection) -> Offsets:
    """Where to end. Options override each other as in `starting`.

    If no message is as young as an ending time, the queue is read to its end.
    """
    return _place("ending", values, selection, "latest", "earliest", AtTime)


def _strategy(values: Mapping[str, str], default: str) -> str:
    name = "startingOffsetsByTimestampStrategy"
    return one_of(name, values.get(name, default), ("error", "latest"))


def _place(
    kind: str,
    values: Mapping[str, str],
    selection: Selection,
    default: Edge,
    wrong: Edge | None,
    at: Callable[[int], AtTime],
) -> Offsets:
    if (name := f"{kind}Timestamp") in values:
        return Offsets(at(_milliseconds(name, "", values[name])), {})
    if (name := f"{kind}OffsetsByTimestamp") in values:
        times = _by_queue(name, values[name], _TIMES_FORM, selection)
        return Offsets(
            default, {queue: at(_milliseconds(name, f" of {queue}", ms)) for queue, ms in times}
        )
    return _offsets(f"{kind}Offsets", values, selection, default, wrong)


def _offsets(
    name: str, values: Mapping[str, str], selection: Selection, default: Edge, wrong: Edge | None
) -> Offsets:
    text = values.get(name, default)
    if text.lower() == wrong:
        raise OptionError(f"{name}: {wrong!r} is not possible for a batch read")
    for edge in _EDGE_BY_NUMBER.values():
        if text.lower() == edge:
            return Offsets(edge, {})
    named = {
        queue: _offset(name, queue, given)
        for queue, given in _by_queue(name, text, _OFFSETS_FORM, selection)
    }
    for queue, place in named.items():
        if place == wrong:
            number = LATEST_NUMBER if wrong == "latest" else EARLIEST_NUMBER
            raise OptionError(
                f"{name}: {number} ({wrong}) of {queue} is not possible for a batch read"
            )
    return Offsets(default, named)


def _by_queue(
    name: str, text: str, form: str, selection: Selection
) -> list[tuple[MessageQueue, object]]:
    found = by_queue(name, tree_of(name, text, form), form)
    for queue, _ in found:
        if not selection.has_topic(queue.topic):
            raise OptionError(f"{name}: topic {queue.topic!r} is not subscribed: {selection}")
        if not selection.has_queue(queue):
            raise OptionError(f"{name}: queue {queue} is not assigned: {selection}")
    return found


def _offset(name: str, queue: MessageQueue, given: object) -> Edge | int:
    if not isinstance(given, int) or isinstance(given, bool) or given < EARLIEST_NUMBER:
        raise OptionError(
            f"{name}: {json.dumps(given)} of {queue} is no offset: "
            "give a number, -2 (earliest) or -1 (latest)"
        )
    return _EDGE_BY_NUMBER.get(given, given)


def _milliseconds(name: str, at: str, given: object) -> int:
    ms = whole_number(given)
    if ms is None:
        raise OptionError(
            f"{name}: {given!r}{at} is no time in milliseconds since 1970, such as 1700000000000"
        )
    return ms
