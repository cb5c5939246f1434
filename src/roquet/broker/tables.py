"""The tables of one broker: topics, groups, offsets, members and others.

Those that survive a restart have a file each.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from typing import Any

from roquet.broker.config.broker import BrokerConfig
from roquet.broker.delivery.queue_locks import LeaseTable
from roquet.broker.metadata import state_files
from roquet.broker.metadata.filter_registry import FilterRegistry
from roquet.broker.metadata.groups import GroupRegistry
from roquet.broker.metadata.lenient import (
    usable_delays,
    usable_filters,
    usable_groups,
    usable_offsets,
    usable_topics,
)
from roquet.broker.metadata.members import Consumers, Producers
from roquet.broker.metadata.state_files import R, StateFile, T
from roquet.broker.metadata.topics import TopicRegistry, topics_at_start
from roquet.broker.offsets.consumer_offsets import ConsumerOffsets, DelayOffsets
from roquet.common.runtime import Runtime
from roquet.common.steps import Steps
from roquet.protocol.bodies.filter_table import FilterTable
from roquet.protocol.bodies.tables import DelayOffsetTable, GroupTable, OffsetTable, TopicTable
from roquet.storage.files.disk import Disk
from roquet.transport.connection import Connection

log = logging.getLogger(__name__)


class Tables:
    """The tables of one broker, loaded at its start and saved when they change.

    Invariant: every change of a topic or group is saved: their registries report it.
    """

    def __init__(self, config: BrokerConfig, runtime: Runtime, disk: Disk) -> None:
        limits = config.limits
        self._limits = limits
        self._runtime = runtime
        self._disk = disk
        self._folder = config.state_folder
        self.topics = TopicRegistry(
            topics_at_start(
                config.broker_cluster_name,
                config.broker_name,
                default_queues=config.default_topic_queue_nums,
                auto_create=config.auto_create_topic_enable,
                cluster_topic=config.cluster_topic_enable,
                broker_topic=config.broker_topic_enable,
                trace_topic=config.msg_trace_topic_name if config.trace_topic_enable else None,
            ),
            runtime.now_ms,
            auto_create=config.auto_create_topic_enable,
            limits=limits,
        )
        self.groups = GroupRegistry(
            runtime.now_ms, auto_create=config.auto_create_subscription_group, limits=limits
        )
        remembers = config.is_slave and config.replication.merge_slave_offsets
        self.offsets = ConsumerOffsets(remembers=remembers, limits=limits)
        self.delay_offsets = DelayOffsets()
        self.filters = FilterRegistry(
            config.filters.bloom, config.filters.filter_data_clean_time_span, limits
        )
        self.leases = LeaseTable(limits)
        self.consumers: Consumers[Connection] = Consumers()
        self.producers: Producers[Connection] = Producers()

        self._topics_file = self._file(state_files.TOPICS, self.topics.to_table)
        self.may_lack_topics = False
        """Whether topics may be missing: `load` found their file damaged, or found none.

        There is none after a start that moved a damaged file aside and was killed before it wrote
        another.
        """
        self._groups_file = self._file(state_files.GROUPS, self.groups.to_table)
        self._offsets_file = self._file(state_files.CONSUMER_OFFSETS, self.offsets.to_table)
        self._saved_changes = 0
        """The value of `offsets.changes` at the last save; `retry` repeats a save that failed."""
        self._delay_offsets_file = self._file(
            state_files.DELAY_OFFSETS, self.delay_offsets.to_table
        )
        self._filters_file = self._file(state_files.CONSUMER_FILTERS, self._filter_table)
        self.topics.changed.add(self._topics_file.changed)
        self.groups.changed.add(self._groups_file.changed)

    def _file(self, name: str, table: Callable[[], T]) -> StateFile[T]:
        return StateFile(self._disk, self._folder / name, table, self._runtime)

    def _filter_table(self) -> FilterTable:
        return self.filters.to_table(self._runtime.now_ms())

    def load_filters(self) -> None:
        """Load the filters. Recovery needs them: it computes filter bits when it dispatches."""
        now_ms = self._runtime.now_ms()
        _restore(
            self._filters_file,
            FilterTable.from_json,
            usable_filters,
            lambda filters: self.filters.restore(filters, now_ms),
        )

    def distrust_filter_bits_until(self, store_ms: int) -> None:
        """Ignore the filter bits of messages stored up to `store_ms`. Called after a crash."""
        self.filters.distrust_notes_until(store_ms)

    def load(self) -> None:
        """Load all other tables."""
        has_topics = _restore(
            self._topics_file, TopicTable.from_json, usable_topics, self.topics.restore
        )
        self.may_lack_topics = not has_topics or self._topics_file.was_damaged
        _restore(self._groups_file, GroupTable.from_json, usable_groups, self.groups.restore)
        _restore(self._offsets_file, OffsetTable.from_json, usable_offsets, self.offsets.restore)
        _restore(
            self._delay_offsets_file,
            DelayOffsetTable.from_json,
            usable_delays,
            self.delay_offsets.restore,
        )
        self._warn_beyond_limits()

    def _warn_beyond_limits(self) -> None:
        """Log tables that are larger than a limit. They are kept, only new entries are refused."""
        limits = self._limits
        queues = max(
            max(topic.read_queues, topic.write_queues) for topic in self.topics.topics.values()
        )
        for what, count, count_max, name in (
            ("topics", len(self.topics.topics), limits.topic_nums_max, "topicNumsMax"),
            ("queues of one topic", queues, limits.topic_queue_nums_max, "topicQueueNumsMax"),
            ("groups", len(self.groups.groups), limits.group_nums_max, "groupNumsMax"),
            ("offsets", self.offsets.count, limits.offset_nums_max, "offsetNumsMax"),
        ):
            if count > count_max:
                log.warning(
                    "saved table exceeds its limit, new entries are refused: %s=%d %s=%d",
                    what,
                    count,
                    name,
                    count_max,
                )

    def save_offsets(self) -> None:
        """Save the consumer offsets if they changed since the last save."""
        if self._saved_changes != self.offsets.changes:
            self._saved_changes = self.offsets.changes
            self._offsets_file.changed()

    def settle_delay_offsets(self) -> None:
        """Count all delivered messages as durable: the log was flushed, and no more are stored."""
        self.delay_offsets.settle(self.delay_offsets.now())

    def save_delay_offsets(self) -> None:
        """Save the delay offsets, which have changed."""
        self._delay_offsets_file.changed()

    def save_filters(self) -> None:
        """Save the filters if they changed; drop those of groups that left long ago."""
        if self.filters.is_due(self._runtime.now_ms()):
            self._filters_file.changed()

    @property
    def _files(self) -> tuple[StateFile[Any], ...]:
        return (
            self._topics_file,
            self._groups_file,
            self._offsets_file,
            self._delay_offsets_file,
            self._filters_file,
        )

    def retry(self) -> None:
        """Write the files that could not be written before."""
        for file in self._files:
            file.retry()

    def drop_expired_leases(self) -> Steps[None]:
        return self.leases.drop_expired(self._runtime.steady_ms())

    async def save(self) -> None:
        """Wait until all tables are on disk as they are now.

        :raises OSError: a file could not be written. The other files have been written.
        """
        results = await asyncio.gather(
            *(file.flush() for file in self._files), return_exceptions=True
        )
        for failure in filter(None, results):
            raise failure


def _restore(
    file: StateFile[Any],
    kind: Callable[[Mapping[str, Any]], R],
    choose: Callable[[R], tuple[R, int]],
    restore: Callable[[R], None],
) -> bool:
    """Restore a table from its file, without impossible entries; then the file is copied first.

    :param choose: splits a table into its usable part and the number of dropped entries.
    :returns: False if there is no file that can be decoded.
    """
    saved = file.load(kind)
    if saved is None:
        return False
    usable, dropped = choose(saved)
    if dropped:
        file.keep_a_copy()
        log.error(
            "impossible entries of a state file dropped, the file was copied: count=%d path=%s",
            dropped,
            file.path,
        )
    restore(usable)
    return True
