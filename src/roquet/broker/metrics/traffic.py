"""PURE: totals of messages that consumers got and sent back, for statistics and rates."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable
from dataclasses import dataclass
from typing import Final

from roquet.broker.metrics.stats import Total, Totals
from roquet.common.steps import Steps, in_one, in_parts
from roquet.protocol.records.message import SCHEDULE_TOPIC

_KEYS: Final = 64
"""Keys per step."""
_NOTHING: Final = Total(0, 0)
GIVEN: Final = "GROUP_GET_NUMS"
DELIVERIES: Final = "SCHEDULE_CONSUMER"
"""The group under which delivered delayed messages are counted."""


@dataclass(slots=True)
class _Given:
    """Totals of one group in one queue: pulls with messages, messages, bytes, ms."""

    topic: str
    group: str
    queue_id: int
    times: int = 0
    messages: int = 0
    size: int = 0
    took_ms: float = 0.0

    def add(self, messages: int, size: int, took_ms: float = 0.0) -> None:
        self.times += 1
        self.messages += messages
        self.size += size
        self.took_ms += took_ms


class Traffic:
    """Counts messages that consumers got and sent back, since the broker started.

    Invariant: `left_out` counts the pulls and sent-back messages that are in no total by group,
    because `count_max` was reached.

    :param clock_ms: a monotonic clock, which measures pulls.
    :param count_max: how many pairs of queue and group have totals of their own.
    """

    def __init__(self, clock_ms: Callable[[], float], count_max: int = 100_000) -> None:
        self.clock_ms = clock_ms
        self._count_max = count_max
        self.left_out = 0
        self._given: dict[tuple[str, str, int], _Given] = {}
        self._delivered: dict[int, _Given] = {}
        """Totals of delivered delayed messages, by their queue in the schedule topic."""
        self._sent_back: dict[tuple[str, str], int] = {}
        self.found = 0
        """The number of pulls that found messages."""
        self.missed = 0
        """The number of pulls that found no message."""
        self.messages = 0
        """The number of messages that pulls returned."""

    def found_nothing(self) -> None:
        """Count a pull that found no message."""
        self.missed += 1

    def given(
        self, topic: str, group: str, queue_id: int, messages: int, size: int, began_ms: float
    ) -> None:
        """Count a pull that found messages.

        :param size: their bytes.
        :param began_ms: when the broker began to process the pull, by `clock_ms`.
        """
        self.found += 1
        self.messages += messages
        found = self._given.get((topic, group, queue_id))
        if found is None:
            if len(self._given) >= self._count_max:
                self.left_out += 1
                return
            found = self._given[topic, group, queue_id] = _Given(topic, group, queue_id)
        found.add(messages, size, self.clock_ms() - began_ms)

    def delivered(self, queue_id: int, messages: int, size: int) -> None:
        """Count delayed messages that were delivered together.

        :param queue_id: their queue in the schedule topic.
        :param size: their bytes.
        """
        found = self._delivered.get(queue_id)
        if found is None:
            found = self._delivered[queue_id] = _Given(SCHEDULE_TOPIC, DELIVERIES, queue_id)
        found.add(messages, size)

    def sent_back(self, topic: str, group: str) -> None:
        """Count a message that a consumer sent back."""
        before = self._sent_back.get((topic, group), 0)
        if not before and len(self._sent_back) >= self._count_max:
            self.left_out += 1
        else:
            self._sent_back[topic, group] = before + 1

    def keep(self, topics: Container[str], groups: Container[str]) -> Steps[None]:
        """Drop the totals of all other topics and groups, which were deleted.

        Several passes may run at once: each window of the statistics has its own.
        """
        for part in in_parts(list(self._given), _KEYS):
            for key in part:
                if key[0] not in topics or key[1] not in groups:
                    self._given.pop(key, None)
            yield
        for pair in [
            pair for pair in self._sent_back if pair[0] not in topics or pair[1] not in groups
        ]:
            del self._sent_back[pair]

    def items(self, *, is_detailed: bool) -> dict[str, Totals]:
        """The statistics items that are counted here, by Apache's names.

        :param is_detailed: with items by queue (`enableDetailStat`).
        """
        items: dict[str, Totals] = {
            GIVEN: lambda: self._by_group(lambda given: given.messages),
            "GROUP_GET_SIZE": lambda: self._by_group(lambda given: given.size),
            "GROUP_GET_LATENCY": lambda: _sums(
                list(self._given.values()), _of_queue_and_group if is_detailed else _of_group, _ms
            ),
            "SNDBCK_PUT_NUMS": in_one(
                lambda: {
                    f"{topic}@{group}": Total(count, count)
                    for (topic, group), count in self._sent_back.items()
                }
            ),
        }
        if is_detailed:
            items["QUEUE_GET_NUMS"] = lambda: self._by_delay_level(lambda given: given.messages)
            items["QUEUE_GET_SIZE"] = lambda: self._by_delay_level(lambda given: given.size)
        return items

    def _by_group(self, value: Callable[[_Given], int]) -> Steps[dict[str, Total]]:
        return _sums([*self._given.values(), *self._delivered.values()], _of_group, value)

    def _by_delay_level(self, value: Callable[[_Given], int]) -> Steps[dict[str, Total]]:
        return _sums(
            list(self._delivered.values()),
            lambda given: f"{given.topic}@{given.queue_id}@{given.group}",
            value,
        )


def _sums(
    given: Iterable[_Given], key: Callable[[_Given], str], value: Callable[[_Given], int]
) -> Steps[dict[str, Total]]:
    totals: dict[str, Total] = {}
    for part in in_parts(given, _KEYS):
        for each in part:
            before = totals.get(key(each), _NOTHING)
            totals[key(each)] = Total(before.value + value(each), before.times + each.times)
        yield
    return totals


def _of_group(given: _Given) -> str:
    return f"{given.topic}@{given.group}"


def _of_queue_and_group(given: _Given) -> str:
    return f"{given.queue_id}@{_of_group(given)}"


def _ms(given: _Given) -> int:
    return int(given.took_ms)
