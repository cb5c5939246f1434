"""PURE: the SQL92 filters of consumer groups, registered by their heartbeats.

Each filter has bits in a Bloom filter. When a message is stored, the bits of all filters that match
it are saved in the extension unit of its queue entry; a pull then skips messages without the bits
of its group's filter. See docs/broker/filters.md.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Final

from roquet.broker.config.filter import FilterSettings
from roquet.broker.config.limits import Limits
from roquet.errors import FilterError, Refused
from roquet.protocol.bodies.filter_table import BloomData, FilterData, FilterTable
from roquet.protocol.bodies.tables import Subscription
from roquet.protocol.filters.bloom import BloomShape, mask_of
from roquet.protocol.filters.sql92 import SqlExpression, compile_sql
from roquet.protocol.filters.sql92.parser import TERMS_MAX
from roquet.protocol.filters.tags import EXPRESSION_SIZE_MAX, SQL92, TAG, Stages
from roquet.protocol.records.message import RETRY_TOPIC
from roquet.protocol.records.record import properties_of
from roquet.protocol.remoting.codes import ResponseCode

log = logging.getLogger(__name__)

_TERMS_OF_USUAL_COST: Final = 32
"""Evaluating this many terms takes about as long as reading the properties of a message."""
DEAD_AT_START_MS: Final = 30_000
"""At a start, saved filters count as unused since this time before it, until a heartbeat."""


def compiled(expression_type: str, expression: str) -> SqlExpression:
    """Compile an expression.

    :raises FilterError: the expression is not valid, or the type is unknown.
    """
    if expression_type != SQL92:
        raise FilterError(1, f"there is no filter type {expression_type}, only {TAG} and {SQL92}")
    if not expression:
        raise FilterError(1, "the expression is empty")
    return compile_sql(expression)


def compile_filter(kind: str, expression: str) -> SqlExpression:
    """Compile the expression of a request that is not by tag.

    :raises Refused: the expression is not valid, or there is no such type of filter.
    """
    try:
        return compiled(kind, expression)
    except FilterError as error:
        raise Refused(ResponseCode.SUBSCRIPTION_PARSE_FAILED, str(error)) from None


def refuse_filter_type(settings: FilterSettings, kind: str) -> None:
    """:raises Refused: `enablePropertyFilter` does not allow filters that are not by tag."""
    if not settings.enable_property_filter:
        remark = (
            f"this broker does not filter by {kind}; "
            "enablePropertyFilter=true in its configuration allows it"
        )
        raise Refused(ResponseCode.SYSTEM_ERROR, remark)


def check_expression_length(expression: str | None) -> None:
    """Check the length of a filter expression: the broker caches expressions.

    :raises Refused: it is too long.
    """
    if expression is not None and len(expression) > EXPRESSION_SIZE_MAX:
        remark = (
            f"the filter expression has {len(expression)} characters, "
            f"allowed are {EXPRESSION_SIZE_MAX}"
        )
        raise Refused(ResponseCode.SUBSCRIPTION_PARSE_FAILED, remark)


@dataclass(frozen=True, slots=True)
class SqlFilter:
    """A group's SQL92 filter.

    With a `mask`, a message that was stored after `born_ms` and has filter bits can match only if
    its bits include the mask.
    """

    sql: SqlExpression
    mask: bytes = b""
    born_ms: int = 0

    @property
    def stages(self) -> Stages:
        cost = 1 + self.sql.terms // _TERMS_OF_USUAL_COST
        return Stages(
            by_filter_bits=self.may_pass if self.mask else None,
            by_record=self.wants_record,
            cost=cost,
        )

    def may_pass(self, store_ms: int, bits: bytes) -> bool:
        """Whether a message may match, by its filter bits.

        False only if the message was compared with this filter when it was stored, and did not
        match.
        """
        if store_ms <= self.born_ms or len(bits) != len(self.mask):
            return True
        mask = int.from_bytes(self.mask, "little")
        return int.from_bytes(bits, "little") & mask == mask

    def wants_record(self, record: bytes | bytearray) -> bool:
        """Whether a record matches; a damaged record does, so that the consumer sees it."""
        properties = properties_of(record)
        return properties is None or self.sql.matches(properties)


@dataclass(slots=True)
class RegisteredFilter:
    """A filter and its compiled form; the filter may be dead (its group left)."""

    data: FilterData
    wanted: SqlFilter

    def update(self, *, version: int, dead_ms: int) -> None:
        self.data = replace(self.data, version=version, dead_ms=dead_ms)


class FilterRegistry:
    """The filters of all topics and groups.

    A filter whose group left is kept for `clean_after_ms`. Messages are still compared with it, so
    that their bits are right when the group comes back.

    Invariant: every filter here is compiled. `_topics` and `_of_group` name the same pairs.

    :param bloom: the size of the filter bits, and how many of them each filter sets.
    :param clean_after_ms: how long the filter of a group that left is kept.
    :param limits: how many filters clients may register.
    """

    def __init__(
        self, bloom: BloomShape, clean_after_ms: int, limits: Limits | None = None
    ) -> None:
        self._limits = limits or Limits()
        self._bloom = bloom
        self._clean_after_ms = clean_after_ms
        self._topics: dict[str, dict[str, RegisteredFilter]] = {}
        self._of_group: dict[str, dict[str, None]] = {}
        """Group -> topics for which it has a filter; a heartbeat reads only its own group."""
        self._is_changed = False

    # heartbeats

    def register(
        self, group: str, subscriptions: Iterable[Subscription], now_ms: int
    ) -> list[FilterError]:
        """Register the filters of a group; its filters for other topics are dead from now on.

        :param now_ms: at least the store time of the newest message, which is compared with it.
        :returns: the errors of filters that cannot be used.
        """
        wanted = {
            subscription.topic: subscription
            for subscription in subscriptions
            if not subscription.is_by_tag
        }
        errors = []
        for subscription in wanted.values():
            try:
                self._register(group, subscription, now_ms)
            except FilterError as error:
                self._forget(subscription.topic, group)
                errors.append(
                    FilterError(
                        error.position, f"{error.reason} ({group} wants {subscription.topic})"
                    )
                )
        for topic in self._of_group.get(group, ()):
            if topic not in wanted:
                self._mark_dead(self._topics[topic][group], now_ms)
        return errors

    def _register(self, group: str, subscription: Subscription, now_ms: int) -> None:
        """Register a filter. Only a newer version replaces another (docs/pitfalls.md#trap-28)."""
        old = self.registered(subscription.topic, group)
        if old is None and self._count() >= self._limits.filter_nums_max:
            reason = (
                f"this broker keeps {self._limits.filter_nums_max} filters already (filterNumsMax)"
            )
            raise FilterError(1, reason)
        if old is None or (
            subscription.version > old.data.version and _differs(old.data, subscription)
        ):
            self._add(self._new(group, subscription, now_ms))
        elif subscription.version > old.data.version:
            self._change(old, subscription.version, 0)
        elif subscription.version == old.data.version and old.data.is_dead:
            self._change(old, old.data.version, 0)

    def _count(self) -> int:
        return sum(map(len, self._topics.values()))

    def _new(self, group: str, subscription: Subscription, now_ms: int) -> FilterData:
        topic = subscription.topic
        bloom = BloomData(self._bloom.bits, self._bloom.positions(group, topic))
        return FilterData(
            topic,
            group,
            subscription.expression,
            subscription.version,
            now_ms,
            bloom=bloom,
            expression_type=subscription.expression_type,
        )

    def _add(self, data: FilterData) -> None:
        """Compile and add a filter.

        :raises FilterError: it cannot be compiled.
        """
        mask = mask_of(data.bloom.positions, data.bloom.bits) if data.bloom is not None else b""
        wanted = SqlFilter(compiled(data.expression_type, data.expression), mask, data.born_ms)
        self._topics.setdefault(data.topic, {})[data.group] = RegisteredFilter(data, wanted)
        self._of_group.setdefault(data.group, {})[data.topic] = None
        self._is_changed = True

    def _change(self, registered: RegisteredFilter, version: int, dead_ms: int) -> None:
        registered.update(version=version, dead_ms=dead_ms)
        self._is_changed = True

    def unregister(self, group: str, now_ms: int) -> None:
        """Mark the filters of a group without members as dead."""
        for topic in self._of_group.get(group, ()):
            self._mark_dead(self._topics[topic][group], now_ms)

    def _mark_dead(self, registered: RegisteredFilter, now_ms: int) -> None:
        if not registered.data.is_dead:
            data = registered.data
            self._change(registered, data.version, max(now_ms, data.born_ms))

    def _forget(self, topic: str, group: str) -> None:
        if self._topics.get(topic, {}).pop(group, None) is not None:
            self._forget_topic_of(group, topic)
            self._is_changed = True

    def _forget_topic_of(self, group: str, topic: str) -> None:
        topics = self._of_group[group]
        del topics[topic]
        if not topics:
            del self._of_group[group]

    # lookups by pulls and dispatch

    def __bool__(self) -> bool:
        return any(self._topics.values())

    def registered(self, topic: str, group: str) -> RegisteredFilter | None:
        return self._topics.get(topic, {}).get(group)

    def wanted(self, topic: str, group: str) -> SqlFilter | None:
        found = self.registered(topic, group)
        return None if found is None else found.wanted

    def of_topic(self, topic: str) -> list[SqlFilter]:
        """The filters of a topic, with those of groups that left."""
        return [registered.wanted for registered in self._topics.get(topic, {}).values()]

    # saving and loading

    def is_due(self, now_ms: int) -> bool:
        """Whether there is something to save since the last `to_table`."""
        self._clean(now_ms)
        return self._is_changed

    def _clean(self, now_ms: int) -> None:
        for groups in self._topics.values():
            for group, registered in list(groups.items()):
                if (
                    registered.data.is_dead
                    and now_ms - registered.data.dead_ms >= self._clean_after_ms
                ):
                    del groups[group]
                    self._forget_topic_of(group, registered.data.topic)
                    self._is_changed = True
        self._topics = {topic: groups for topic, groups in self._topics.items() if groups}

    def to_table(self, now_ms: int) -> FilterTable:
        """The filters to save. Drops those whose group left more than `clean_after_ms` ago."""
        self._clean(now_ms)
        self._is_changed = False
        return FilterTable(
            {
                topic: {group: registered.data for group, registered in groups.items()}
                for topic, groups in self._topics.items()
            }
        )

    def restore(self, table: FilterTable, now_ms: int) -> None:
        """Load saved filters. They count as dead until a heartbeat of their group.

        Filters with other Bloom parameters than the broker's are all ignored, as in Apache: the
        filter bits in the store would be misread.
        """
        saved = [data for groups in table.filters.values() for data in groups.values()]
        if any(data.bloom is None or not self._fits(data.bloom) for data in saved):
            log.warning(
                "saved filters ignored, their Bloom parameters differ from the configured:"
                " filters=%d",
                len(saved),
            )
            return
        for data in saved:
            dead_ms = data.dead_ms or max(now_ms - DEAD_AT_START_MS, data.born_ms)
            try:
                self._add(replace(data, dead_ms=dead_ms))
            except FilterError as error:
                log.warning(
                    "saved filter ignored: group=%s topic=%s error=%s",
                    data.group,
                    data.topic,
                    error,
                )

    def distrust_notes_until(self, store_ms: int) -> None:
        """Ignore the filter bits of messages stored up to `store_ms`. Called after a crash.

        The saved filters may be some seconds old, and newer messages may have been compared with
        other filters.
        """
        all_data = [
            registered.data for groups in self._topics.values() for registered in groups.values()
        ]
        for data in all_data:
            if data.born_ms < store_ms:
                self._add(replace(data, born_ms=store_ms, dead_ms=max(data.dead_ms, store_ms)))

    def _fits(self, bloom: BloomData) -> bool:
        return bloom.bits == self._bloom.bits and len(bloom.positions) == self._bloom.hashes


def _differs(data: FilterData, subscription: Subscription) -> bool:
    return (data.expression_type, data.expression) != (
        subscription.expression_type,
        subscription.expression,
    )


@dataclass(frozen=True, slots=True)
class RetryTopicFilter:
    """The SQL92 filter of a subscription to a group's retry topic (`filterSupportRetry`).

    A message matches if the group's filter for the message's original topic matches, or if the
    group has no filter for that topic.
    """

    filters: FilterRegistry
    group: str

    @property
    def stages(self) -> Stages:
        return Stages(by_record=self.wants_record, cost=1 + TERMS_MAX // _TERMS_OF_USUAL_COST)

    def wants_record(self, record: bytes | bytearray) -> bool:
        properties = properties_of(record) or {}
        wanted = self.filters.wanted(properties.get(RETRY_TOPIC, ""), self.group)
        return wanted is None or wanted.sql.matches(properties)


class FilterBitsOf:
    """Computes the filter bits of messages: the bits of every filter of the topic that matches.

    Messages of a topic without filters have no bits.
    """

    def __init__(self, filters: FilterRegistry, bloom: BloomShape) -> None:
        self._filters = filters
        self.size = bloom.bits // 8

    def has_any(self, topic: str) -> bool:
        return bool(self._filters.of_topic(topic))

    def of(self, topic: str, record: bytes) -> bytes:
        properties = properties_of(record)
        if properties is None:
            return b""
        bits = 0
        for wanted in self._filters.of_topic(topic):
            if wanted.sql.matches(properties):
                bits |= int.from_bytes(wanted.mask, "little")
        return bits.to_bytes(self.size, "little")
