"""PURE: the topics and queues of a read: the options subscribe, subscribePattern and assign."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Final

from roquet.errors import OptionError
from roquet.protocol.records.message import (
    DEAD_LETTER_PREFIX,
    RETRY_PREFIX,
    SYSTEM_PREFIX,
    SYSTEM_TOPICS,
    MessageQueue,
    reply_topic,
)
from roquet.spark._options.queue_json import members, queue_id_of, tree_of
from roquet.spark._options.values import topics

_FORMS: Final = ("subscribe", "subscribePattern", "assign")
_SYSTEM_PREFIXES: Final = (SYSTEM_PREFIX, RETRY_PREFIX, DEAD_LETTER_PREFIX)
_ASSIGN_FORM: Final = 'JSON such as {"orders":{"broker-a":[0,1]}}'


@dataclass(frozen=True)
class Selection:
    """Topics by name, topics by a pattern, or queues.

    Invariant: exactly one of `topics`, `pattern` and `queues` selects. With `queues`, `topics` has
    the topics of these queues.
    """

    topics: tuple[str, ...] = ()
    pattern: str | None = None
    queues: frozenset[MessageQueue] | None = None

    @classmethod
    def of(cls, values: Mapping[str, str]) -> Selection:
        """The selection that the options name.

        :raises OptionError: none or several of the three options are given, or its value is
            invalid.
        """
        given = [name for name in _FORMS if name in values]
        if len(given) != 1:
            what = f"{' and '.join(given)} are given" if given else "the topics are missing"
            raise OptionError(f"{what}: give exactly one of {', '.join(_FORMS)}")
        (name,) = given
        match name:
            case "subscribe":
                return cls(topics=topics(name, values[name]))
            case "subscribePattern":
                return cls(pattern=_pattern(name, values[name]))
            case _:
                queues = _assigned(name, values[name])
                return cls(topics=tuple(sorted({queue.topic for queue in queues})), queues=queues)

    def __str__(self) -> str:
        if self.pattern is not None:
            return f"topics that match {self.pattern}"
        return ", ".join(map(str, sorted(self.queues) if self.queues is not None else self.topics))

    def has_topic(self, topic: str) -> bool:
        if self.pattern is not None:
            return self._expression.fullmatch(topic) is not None
        return topic in self.topics

    def has_queue(self, queue: MessageQueue) -> bool:
        return queue in self.queues if self.queues is not None else self.has_topic(queue.topic)

    def topics_among(self, existing: Iterable[str], own: Collection[str]) -> tuple[str, ...]:
        """The topics to read.

        A pattern such as `.*` means the topics of applications. It selects system topics, retry
        topics and dead letter topics only if it spells out their name or prefix, such as `%DLQ%.*`.

        :param existing: all topics of the cluster.
        :param own: topics that brokers made for themselves: one with the name of each broker and of
            each cluster.
        """
        if self.pattern is None:
            return self.topics
        hidden = SYSTEM_TOPICS | set(own) | {reply_topic(name) for name in own}
        return tuple(
            sorted(
                topic for topic in existing if self.has_topic(topic) and self._shows(topic, hidden)
            )
        )

    def _shows(self, topic: str, hidden: Collection[str]) -> bool:
        assert self.pattern is not None
        marks = [prefix for prefix in _SYSTEM_PREFIXES if topic.startswith(prefix)]
        if topic in hidden:
            marks.append(topic)
        return not marks or any(mark in self.pattern for mark in marks)

    @cached_property
    def _expression(self) -> re.Pattern[str]:
        return re.compile(self.pattern or "")


def _pattern(name: str, text: str) -> str:
    if not text:
        raise OptionError(f"{name}: give a regular expression that matches whole topic names")
    try:
        re.compile(text)
    except re.error as error:
        raise OptionError(f"{name}: {text!r} is no regular expression: {error}") from error
    return text


def _assigned(name: str, text: str) -> frozenset[MessageQueue]:
    queues: set[MessageQueue] = set()
    for topic, brokers in members(name, tree_of(name, text, _ASSIGN_FORM), _ASSIGN_FORM):
        topics(name, topic)
        for broker_name, ids in members(name, brokers, _ASSIGN_FORM):
            if not isinstance(ids, list):
                raise OptionError(f"{name}: {ids!r} is no list of queue ids, give {_ASSIGN_FORM}")
            at = f"{topic}@{broker_name}"
            queues |= {
                MessageQueue(topic, broker_name, queue_id_of(name, at, each)) for each in ids
            }
    if not queues:
        raise OptionError(f"{name}: names no queue, give {_ASSIGN_FORM}")
    return frozenset(queues)
