"""The measurements of one broker: gives statistics and rates the totals that they sample."""

from __future__ import annotations

import logging
from collections.abc import Callable
from datetime import datetime
from typing import Final

from roquet.broker.config.broker import BrokerConfig
from roquet.broker.metadata.groups import GroupRegistry
from roquet.broker.metadata.topics import TopicRegistry
from roquet.broker.metrics.rates import Rates, TrafficTotals
from roquet.broker.metrics.stats import Stats, Total, Totals, Window
from roquet.broker.metrics.traffic import GIVEN, Traffic
from roquet.common.steps import Steps, in_one, in_parts
from roquet.protocol.records.message import SCHEDULE_TOPIC
from roquet.storage.queues.consume_queue import Appended
from roquet.storage.store import Store

log = logging.getLogger(__name__)

RATES_MS: Final = 1000
_TOPICS: Final = 512
"""Topics per step; most topics cost one comparison."""
_NONE: Final = Total(0, 0)


class Measurements:
    """The statistics and rates of one broker, and the counters behind them.

    The store counts stored messages, `traffic` counts delivered ones. The statistics items are
    those that Apache's broker fills. Apache also names COMMERCIAL_* and *_FROM_DISK_* items, which
    count nothing.

    :param clock_ms: a monotonic clock.
    """

    def __init__(
        self,
        config: BrokerConfig,
        store: Store,
        topics: TopicRegistry,
        groups: GroupRegistry,
        now_ms: Callable[[], int],
        clock_ms: Callable[[], float],
    ) -> None:
        self._store = store
        self._topics = topics
        self._groups = groups
        self._cluster = config.broker_cluster_name
        self._now_ms = now_ms
        self._clock_ms = clock_ms
        self._stored_before = 0
        self._count_max = config.limits.statistics_nums_max
        self.traffic = Traffic(clock_ms, self._count_max)
        self._is_left_out_logged = False
        self.rates = Rates()
        self.stats = Stats(self._items(is_detailed=config.enable_detail_stat))

    def _items(self, *, is_detailed: bool) -> dict[str, Totals]:
        traffic = self.traffic
        items: dict[str, Totals] = {
            **traffic.items(is_detailed=is_detailed),
            "TOPIC_PUT_NUMS": lambda: self._by_topic(lambda appended: appended.messages),
            "TOPIC_PUT_SIZE": lambda: self._by_topic(lambda appended: appended.size),
            "BROKER_PUT_NUMS": in_one(
                lambda: {self._cluster: Total(self._store.writer.stored, self._store.writer.stored)}
            ),
            "BROKER_GET_NUMS": in_one(
                lambda: {self._cluster: Total(traffic.messages, traffic.found)}
            ),
        }
        if is_detailed:
            items["QUEUE_PUT_NUMS"] = in_one(
                lambda: self._by_delay_level(lambda appended: appended.messages)
            )
            items["QUEUE_PUT_SIZE"] = in_one(
                lambda: self._by_delay_level(lambda appended: appended.size)
            )
        return items

    def _by_topic(self, value: Callable[[Appended], int]) -> Steps[dict[str, Total]]:
        """The totals of topics with stored messages."""
        totals: dict[str, Total] = {}
        for part in in_parts(self._store.queues.appended(), _TOPICS):
            for topic, appended in part:
                if appended.messages:
                    before = totals.get(topic, _NONE)
                    totals[topic] = Total(
                        before.value + value(appended), before.times + appended.messages
                    )
            yield
        return totals

    def _by_delay_level(self, value: Callable[[Appended], int]) -> dict[str, Total]:
        return {
            f"{queue.topic}@{queue.queue_id}": Total(value(queue.appended), queue.appended.messages)
            for queue in self._store.queues.of_topic(SCHEDULE_TOPIC)
            if queue.appended.messages
        }

    def tps(self, topic: str, group: str) -> float:
        """Messages per second of a topic that a group got in the last minute."""
        return self.stats.summary(GIVEN, f"{topic}@{group}").tps

    def turn_took(self, seconds: float) -> None:
        """Count the duration of an event-loop turn for the messages stored in it.

        :param seconds: from the first append of the turn to the end of its work.
        """
        messages = self._store.writer.stored - self._stored_before
        self._stored_before += messages
        self.rates.took(messages, int(seconds * 1000))

    def sample(self, window: Window) -> Steps[None]:
        """Sample all items for a window. Called once per period of the window.

        Totals of deleted topics and groups are dropped.
        """
        now_ms = self._clock_ms()
        yield from self.traffic.keep(self._topics.topics, self._groups.groups)
        if self.traffic.left_out and not self._is_left_out_logged:
            log.warning(
                "statistics are full, further pairs of queue and group are not counted:"
                " statisticsNumsMax=%d",
                self._count_max,
            )
            self._is_left_out_logged = True
        yield from self.stats.sample(window, now_ms)

    def sample_rates(self) -> None:
        """Sample the rates. Called every `RATES_MS`."""
        today = datetime.fromtimestamp(self._now_ms() / 1000).astimezone().toordinal()
        self.rates.sample(self._flow(), self._clock_ms(), today)

    def _flow(self) -> TrafficTotals:
        traffic = self.traffic
        return TrafficTotals(
            self._store.writer.stored, traffic.found, traffic.missed, traffic.messages
        )

    def figures(self) -> Steps[dict[str, str]]:
        """The rates and totals of the runtime information, by Apache's names."""
        size = self._store.queues.appended_to_deleted.size
        for part in in_parts(self._store.queues.appended(), _TOPICS):
            size += sum(appended.size for _, appended in part)
            yield
        stored = self._store.writer.stored
        return {
            **self.rates.figures(self._flow()),
            "putMessageSizeTotal": str(size),
            "putMessageAverageSize": str(round(size / stored, 3) if stored else 0.0),
        }
