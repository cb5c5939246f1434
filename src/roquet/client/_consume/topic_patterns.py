"""Which topics match the patterns of a consumer."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from typing import Final, TypeAlias

from roquet.client.selector import Sql, subscription_to
from roquet.errors import ConfigError
from roquet.protocol.records.message import (
    DEAD_LETTER_PREFIX,
    RETRY_PREFIX,
    SYSTEM_PREFIX,
    SYSTEM_TOPICS,
    reply_topic,
)
from roquet.protocol.records.namespace import NO_NAMESPACE, Namespace

_HIDDEN_PREFIXES: Final = (SYSTEM_PREFIX, RETRY_PREFIX, DEAD_LETTER_PREFIX)

Topics: TypeAlias = (
    str
    | re.Pattern[str]
    | Iterable[str]
    | Mapping[str, str | Sql]
    | Mapping[re.Pattern[str], str | Sql]
    | Mapping[str | re.Pattern[str], str | Sql]
)
"""The argument `topics` of a consumer."""


class TopicPatterns:
    """Patterns of whole topic names, each with the filter of the topics that match.

    If several patterns match a topic, the first one counts.

    :param names: the namespace of the client. Patterns match plain names of topics in it.
    :raises ConfigError: a pattern is one of bytes, or a filter cannot be used.
    """

    def __init__(
        self,
        filters: Mapping[re.Pattern[str], str | Sql] | None = None,
        names: Namespace = NO_NAMESPACE,
    ) -> None:
        self._names = names
        self._filters = dict(filters or {})
        for pattern, selector in self._filters.items():
            if not isinstance(pattern.pattern, str):
                raise ConfigError(f"topics: {pattern!r} is a pattern of bytes, give one of text")
            subscription_to(f"the pattern {pattern.pattern!r}", selector)

    def __bool__(self) -> bool:
        return bool(self._filters)

    def matching(self, topics: Iterable[str], own: Iterable[str]) -> dict[str, str | Sql]:
        """The full names of the topics of applications that match, with their filters.

        System topics, retry topics and dead letter topics never match.

        :param topics: all topics of the cluster.
        :param own: topics that brokers made for themselves: one with the name of each broker and of
            each cluster.
        """
        own = list(own)
        hidden = SYSTEM_TOPICS | set(own) | {reply_topic(name) for name in own}
        return {
            topic: selector
            for topic in topics
            if not _is_hidden(topic, hidden) and self._names.has(topic)
            for selector in self._selectors(self._names.plain(topic))[:1]
        }

    def _selectors(self, topic: str) -> list[str | Sql]:
        return [each for pattern, each in self._filters.items() if pattern.fullmatch(topic)]


def _is_hidden(topic: str, hidden: Collection[str]) -> bool:
    return topic in hidden or topic.startswith(_HIDDEN_PREFIXES)


def split_topics(
    topics: Topics, names: Namespace = NO_NAMESPACE
) -> tuple[dict[str, str | Sql] | Iterable[str] | str, TopicPatterns]:
    """The topics that are named, with their filters, and the patterns.

    :raises ConfigError: `topics` has a wrong type, or a pattern cannot be used.
    """
    if not isinstance(topics, Iterable | re.Pattern) or isinstance(topics, bytes):
        raise ConfigError(
            f"topics is {topics!r}: give a topic, several, or a dict from topics to filters"
        )
    if isinstance(topics, re.Pattern):
        return {}, TopicPatterns({topics: ""}, names)
    if not isinstance(topics, Mapping):
        return topics, TopicPatterns()
    named = {key: each for key, each in topics.items() if not isinstance(key, re.Pattern)}
    patterns = {key: each for key, each in topics.items() if isinstance(key, re.Pattern)}
    return named, TopicPatterns(patterns, names)
