"""PURE: translates filters that Spark pushes down into bounds of a batch read.

Invariant: a filter is returned to Spark unless the read produces exactly the rows that pass it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Final, TypeAlias

from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    LessThan,
    LessThanOrEqual,
)

from roquet.protocol.records.message import MessageQueue
from roquet.spark._options.ranges import QueueRange

_OFFSET_MAX: Final = 2**63 - 1
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_Values: TypeAlias = frozenset[object]


@dataclass(frozen=True)
class Narrowing:
    """The bounds that pushed filters set: allowed values per column, queue offsets and store times.

    `offset_until` and `time_until_ms` are exclusive.
    """

    allowed: Mapping[str, _Values]
    offset_from: int = 0
    offset_until: int = _OFFSET_MAX
    time_from_ms: int | None = None
    time_until_ms: int | None = None

    def allows(self, column: str, value: object) -> bool:
        """Whether messages with this value in `column` can pass the filters."""
        return value in self.allowed.get(column, (value,))

    def wants(self, queue: MessageQueue) -> bool:
        values = {"topic": queue.topic, "brokerName": queue.broker_name, "queueId": queue.queue_id}
        return all(self.allows(column, value) for column, value in values.items())

    def clip(self, ranges: Iterable[QueueRange]) -> list[QueueRange]:
        """The parts of the ranges whose queues and offsets can pass the filters."""
        clipped = (
            replace(
                each, start=max(each.start, self.offset_from), end=min(each.end, self.offset_until)
            )
            for each in ranges
            if self.wants(each.queue)
        )
        return [each for each in clipped if each.size > 0]

    def tags_among(self, given: frozenset[str] | None) -> frozenset[str] | None:
        """The tags that pass both the filters and an option; None stands for all tags.

        :param given: the tags that the option names, or None.
        """
        if "tags" not in self.allowed:
            return given
        tags = frozenset(str(tag) for tag in self.allowed["tags"])
        return tags if given is None else tags & given


EVERYTHING: Final = Narrowing({})


def narrowed(filters: Iterable[Filter]) -> tuple[Narrowing, list[Filter]]:
    """The bounds that filters set together, and the filters that Spark still has to test.

    :param filters: joined by AND.
    """
    narrowing, left = EVERYTHING, []
    for each in filters:
        narrowing, is_exact = _narrow(narrowing, each)
        if not is_exact:
            left.append(each)
    return narrowing, left


def _narrow(before: Narrowing, wanted: Filter) -> tuple[Narrowing, bool]:
    """`before` narrowed by one more filter, and whether Spark need not test that filter."""
    if not isinstance(wanted, _UNDERSTOOD) or len(wanted.attribute) != 1:
        return before, False
    (column,) = wanted.attribute
    if (kind := _BY_VALUE.get(column)) is not None and isinstance(
        wanted, (EqualTo, EqualNullSafe, In)
    ):
        values = wanted.value if isinstance(wanted, In) else (wanted.value,)
        if not all(type(value) is kind for value in values):
            return before, False
        allowed = frozenset(values) & before.allowed.get(column, frozenset(values))
        return replace(before, allowed={**before.allowed, column: allowed}), True
    if column == "queueOffset" and type(wanted.value) is int and not isinstance(wanted, In):
        first, end = _COMPARISONS[type(wanted)](wanted.value)
        return _with_offsets(before, first, end), True
    if column == "storeTimestamp" and not isinstance(wanted, In):
        return _with_time(before, wanted, wanted.value), False
    return before, False


def _with_offsets(before: Narrowing, first: int | None, end: int | None) -> Narrowing:
    return replace(
        before,
        offset_from=max(before.offset_from, first if first is not None else 0),
        offset_until=min(before.offset_until, end if end is not None else _OFFSET_MAX),
    )


def _with_time(before: Narrowing, wanted: Filter, at: object) -> Narrowing:
    """Narrow the store times. The bounds include all of the millisecond that contains `at`.

    Messages have store times in milliseconds, Spark compares in microseconds.
    """
    if not isinstance(at, datetime) or at.tzinfo is None:
        return before
    ms = (at - _EPOCH) // timedelta(milliseconds=1)
    first, end = _COMPARISONS[type(wanted)](ms)
    return replace(
        before,
        time_from_ms=latest(before.time_from_ms, None if first is None else ms),
        time_until_ms=earliest(before.time_until_ms, None if end is None else ms + 1),
    )


def latest(*times_ms: int | None) -> int | None:
    """The latest of several times; None stands for no bound."""
    return max((ms for ms in times_ms if ms is not None), default=None)


def earliest(*times_ms: int | None) -> int | None:
    """The earliest of several times; None stands for no bound."""
    return min((ms for ms in times_ms if ms is not None), default=None)


_UNDERSTOOD = (
    EqualTo,
    EqualNullSafe,
    In,
    GreaterThan,
    GreaterThanOrEqual,
    LessThan,
    LessThanOrEqual,
)
_BY_VALUE: Final[Mapping[str, type]] = {
    "topic": str,
    "brokerName": str,
    "tags": str,
    "queueId": int,
}
_COMPARISONS: Final[Mapping[type[Filter], Callable[[int], tuple[int | None, int | None]]]] = {
    EqualTo: lambda at: (at, at + 1),
    EqualNullSafe: lambda at: (at, at + 1),
    GreaterThan: lambda at: (at + 1, None),
    GreaterThanOrEqual: lambda at: (at, None),
    LessThan: lambda at: (None, at),
    LessThanOrEqual: lambda at: (None, at + 1),
}
"""The integers that pass a comparison with `at`, [first, end). None stands for no bound."""
