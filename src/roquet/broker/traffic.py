"""PURE: totals of what consumers were given, which statistics and rates look at."""

from __future__ import annotations

from dataclasses import dataclass

from roquet.broker.stats import Total


@dataclass(slots=True)
class _Given:
    pulls: int = 0
    messages: int = 0
    size: int = 0


class Traffic:
    """What left this broker, and what came back to it, since it started."""

    def __init__(self) -> None:
        self._given: dict[tuple[str, str], _Given] = {}
        self._sent_back: dict[tuple[str, str], int] = {}
        self.found = 0
        self.missed = 0
        """Pulls that found something, and that found nothing."""
        self.messages = 0
        """Messages that were given."""

    def given(self, topic: str, group: str, messages: int, size: int) -> None:
        """A pull found so many messages, of so many bytes."""
        self.found += 1
        self.messages += messages
        found = self._given.get((topic, group))
        if found is None:
            found = self._given[topic, group] = _Given()
        found.pulls += 1
        found.messages += messages
        found.size += size

    def sent_back(self, topic: str, group: str) -> None:
        """A consumer of the group could do nothing with a message of the topic."""
        self._sent_back[topic, group] = self._sent_back.get((topic, group), 0) + 1

    def messages_given(self) -> dict[str, Total]:
        return {f"{topic}@{group}": Total(given.messages, given.pulls) for (topic, group), given in self._given.items()}

    def bytes_given(self) -> dict[str, Total]:
        return {f"{topic}@{group}": Total(given.size, given.pulls) for (topic, group), given in self._given.items()}

    def messages_sent_back(self) -> dict[str, Total]:
        return {f"{topic}@{group}": Total(count, count) for (topic, group), count in self._sent_back.items()}
