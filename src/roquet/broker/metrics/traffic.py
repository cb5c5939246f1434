"""PURE: totals of what consumers were given, which statistics and rates look at."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable
from dataclasses import dataclass
from typing import Final

from roquet.broker.metrics.stats import Total
from roquet.common.steps import Steps, in_parts
from roquet.protocol.records.message import SCHEDULE_TOPIC

_KEYS: Final = 64
"""Keys of one step."""
_NOTHING: Final = Total(0, 0)
DELIVERIES: Final = "SCHEDULE_CONSUMER"
"""The group that delayed messages count as given to when their time has come."""


@dataclass(slots=True)
class _Given:
    """What one group was given of one queue, and how long that took, in ms."""

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
    """What left this broker, and what came back to it, since it started.

    Keeps: `left_out` are pulls, and messages sent back, that only the broker's sums count.

    :param clock_ms: only grows; tells how long pulls take.
    :param count_max: so many pairs of a queue and a group are counted apart.
    """

    def __init__(self, clock_ms: Callable[[], float], count_max: int = 100_000) -> None:
        self.clock_ms = clock_ms
        self._count_max = count_max
        self.left_out = 0
        self._given: dict[tuple[str, str, int], _Given] = {}
        self._delivered: dict[int, _Given] = {}
        """Of delayed messages, by the queue in which they waited."""
        self._sent_back: dict[tuple[str, str], int] = {}
        self.found = 0
        self.missed = 0
        """Pulls that found something, and that found nothing."""
        self.messages = 0
        """Messages that were given."""

    def given(
        self, topic: str, group: str, queue_id: int, messages: int, size: int, began_ms: float
    ) -> None:
        """A pull that was looked at from `began_ms` on found so many messages, of so many bytes."""
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
        """So many delayed messages, of so many bytes, went together from this queue to where they belong."""
        found = self._delivered.get(queue_id)
        if found is None:
            found = self._delivered[queue_id] = _Given(SCHEDULE_TOPIC, DELIVERIES, queue_id)
        found.add(messages, size)

    def sent_back(self, topic: str, group: str) -> None:
        """A consumer of the group could do nothing with a message of the topic."""
        before = self._sent_back.get((topic, group), 0)
        if not before and len(self._sent_back) >= self._count_max:
            self.left_out += 1
        else:
            self._sent_back[topic, group] = before + 1

    def keep(self, topics: Container[str], groups: Container[str]) -> Steps[None]:
        """Forget what was given and sent back of other topics, or to other groups."""
        for part in in_parts(list(self._given), _KEYS):
            for key in part:
                if key[0] not in topics or key[1] not in groups:
                    del self._given[key]
            yield
        for pair in [
            pair for pair in self._sent_back if pair[0] not in topics or pair[1] not in groups
        ]:
            del self._sent_back[pair]

    def messages_given(self) -> Steps[dict[str, Total]]:
        return self._by_group(lambda given: given.messages)

    def bytes_given(self) -> Steps[dict[str, Total]]:
        return self._by_group(lambda given: given.size)

    def _by_group(self, value: Callable[[_Given], int]) -> Steps[dict[str, Total]]:
        return _sums([*self._given.values(), *self._delivered.values()], _of_group, value)

    def times_taken(self) -> Steps[dict[str, Total]]:
        """In ms, of pulls that found something, by queue and group."""
        return _sums(
            list(self._given.values()), lambda given: f"{given.queue_id}@{_of_group(given)}", _ms
        )

    def times_taken_by_group(self) -> Steps[dict[str, Total]]:
        return _sums(list(self._given.values()), _of_group, _ms)

    def messages_delivered(self) -> Steps[dict[str, Total]]:
        return self._by_queue(lambda given: given.messages)

    def bytes_delivered(self) -> Steps[dict[str, Total]]:
        return self._by_queue(lambda given: given.size)

    def _by_queue(self, value: Callable[[_Given], int]) -> Steps[dict[str, Total]]:
        return _sums(
            list(self._delivered.values()),
            lambda given: f"{given.topic}@{given.queue_id}@{given.group}",
            value,
        )

    def messages_sent_back(self) -> dict[str, Total]:
        return {
            f"{topic}@{group}": Total(count, count)
            for (topic, group), count in self._sent_back.items()
        }


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


def _ms(given: _Given) -> int:
    return int(given.took_ms)
