"""What one broker knows beside its messages: the tables, and the files of those that a restart has to find again."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from typing import Any

from roquet.broker import component_configs
from roquet.broker.config.broker import BrokerConfig
from roquet.broker.delivery.queue_locks import LeaseTable
from roquet.broker.metadata import state_files
from roquet.broker.metadata.filter_data import FilterRegistry
from roquet.broker.metadata.groups import GroupRegistry
from roquet.broker.metadata.lenient import (
    usable_delays,
    usable_filters,
    usable_groups,
    usable_offsets,
    usable_topics,
)
from roquet.broker.metadata.members import Consumers, Producers
from roquet.broker.metadata.metadata import Metadata
from roquet.broker.metadata.state_files import R, StateFile, T, Then
from roquet.broker.metadata.topics import TopicRegistry
from roquet.broker.offsets.consumer_offsets import ConsumerOffsets, DelayOffsets
from roquet.common.runtime import Runtime
from roquet.common.steps import Steps
from roquet.protocol.bodies.filter_table import FilterTable
from roquet.protocol.bodies.tables import DelayOffsetTable, GroupTable, OffsetTable, TopicTable
from roquet.storage.files.disk import Disk
from roquet.transport.connection import Connection

log = logging.getLogger(__name__)


class Tables:
    """Keeps: who changes topics or groups does so by `metadata`, which saves them and tells of them.

    :param topics_changed: told of each change of the topics.
    """

    def __init__(
        self, config: BrokerConfig, runtime: Runtime, disk: Disk, topics_changed: Callable[[], None]
    ) -> None:
        now_ms, limits = runtime.now_ms(), config.limits
        self._limits = limits
        self._runtime = runtime
        self._disk = disk
        self._folder = config.state_folder
        self._tell_of_topics = topics_changed
        self.topics = TopicRegistry(
            component_configs.first_topics(config),
            now_ms,
            auto_create=config.auto_create_topic_enable,
            limits=limits,
        )
        self.groups = GroupRegistry(
            now_ms, auto_create=config.auto_create_subscription_group, limits=limits
        )
        remembers = config.is_slave and config.replication.merge_slave_offsets
        self.progress = ConsumerOffsets(remembers=remembers, limits=limits)
        self.delays = DelayOffsets()
        self.filters = FilterRegistry(
            config.filters.bloom, config.filters.filter_data_clean_time_span, limits
        )
        self.leases = LeaseTable(limits)
        self.consumers: Consumers[Connection] = Consumers()
        self.producers: Producers[Connection] = Producers()

        self._topics_file = self._file(state_files.TOPICS, self.topics.to_table)
        self.may_lack_topics = False
        """Whether topics may be missing that were known before: `load` found their file damaged, or none, as after a
        start that moved it aside and was killed before it wrote another.
        """
        self._groups_file = self._file(state_files.GROUPS, self.groups.to_table)
        self.progress_file = self._file(state_files.CONSUMER_OFFSETS, self.progress.to_table)
        self._saved_changes = 0
        """Of the progress, as it was when it was to be saved last; a save that fails is tried again all the same."""
        self.delays_file = self._file(state_files.DELAY_OFFSETS, self.delays.to_table)
        self._filters_file = self._file(
            state_files.CONSUMER_FILTERS, lambda: self.filters.to_table(self._runtime.now_ms())
        )
        self.metadata = Metadata(
            self.topics,
            self.groups,
            self._topics_changed,
            self._groups_file.changed,
            runtime.now_ms,
            limits,
        )

    def _file(self, name: str, table: Callable[[], T]) -> StateFile[T]:
        return StateFile(self._disk, self._folder / name, table, self._runtime)

    def _topics_changed(self, then: Then | None = None) -> None:
        self._topics_file.changed(then)
        self._tell_of_topics()

    def load_filters(self) -> None:
        """These first: what the store dispatches while it recovers is tried on the filters of before."""
        filters = _usable(self._filters_file, FilterTable.from_json, usable_filters)
        if filters is not None:
            self.filters.restore(filters, self._runtime.now_ms())

    def load(self) -> None:
        """All others, as they were saved."""
        topics = _usable(self._topics_file, TopicTable.from_json, usable_topics)
        self.may_lack_topics = topics is None or self._topics_file.was_damaged
        if topics is not None:
            self.topics.restore(topics, self._runtime.now_ms())
        groups = _usable(self._groups_file, GroupTable.from_json, usable_groups)
        if groups is not None:
            self.groups.restore(groups)
        offsets = _usable(self.progress_file, OffsetTable.from_json, usable_offsets)
        if offsets is not None:
            self.progress.restore(offsets)
        delays = _usable(self.delays_file, DelayOffsetTable.from_json, usable_delays)
        if delays is not None:
            self.delays.restore(delays)
        self._warn_beyond_limits()

    def _warn_beyond_limits(self) -> None:
        """What was saved stays; only what is new is refused."""
        limits = self._limits
        queues = max(
            max(topic.read_queues, topic.write_queues) for topic in self.topics.topics.values()
        )
        for what, count, count_max, name in (
            ("topics", len(self.topics.topics), limits.topic_nums_max, "topicNumsMax"),
            ("queues of one topic", queues, limits.topic_queue_nums_max, "topicQueueNumsMax"),
            ("groups", len(self.groups.groups), limits.group_nums_max, "groupNumsMax"),
            ("offsets", self.progress.count, limits.offset_nums_max, "offsetNumsMax"),
        ):
            if count > count_max:
                log.warning(
                    "saved table beyond a limit, no more are made: %s=%d %s=%d",
                    what,
                    count,
                    name,
                    count_max,
                )

    def save_progress(self) -> None:
        """If there is anything new in it."""
        if self._saved_changes != self.progress.changes:
            self._saved_changes = self.progress.changes
            self.progress_file.changed()

    def save_filters(self) -> None:
        """If there is anything new in them; groups that left long ago are forgotten."""
        if self.filters.is_due(self._runtime.now_ms()):
            self._filters_file.changed()

    @property
    def _files(self) -> tuple[StateFile[Any], ...]:
        return (
            self._topics_file,
            self._groups_file,
            self.progress_file,
            self.delays_file,
            self._filters_file,
        )

    def retry(self) -> None:
        """Write what could not be written before."""
        for file in self._files:
            file.retry()

    def drop_expired_leases(self) -> Steps[None]:
        return self.leases.drop_expired(self._runtime.steady_ms())

    async def save(self) -> None:
        """Wait until all of them are on disk as they are now.

        :raises OSError: one could not be written; the others are.
        """
        results = await asyncio.gather(
            *(file.flush() for file in self._files), return_exceptions=True
        )
        for failure in filter(None, results):
            raise failure


def _usable(
    file: StateFile[Any],
    kind: Callable[[Mapping[str, Any]], R],
    choose: Callable[[R], tuple[R, int]],
) -> R | None:
    """What a file says, without the members that cannot be: the broker starts without these."""
    saved = file.load(kind)
    if saved is None:
        return None
    usable, dropped = choose(saved)
    if dropped:
        file.keep_a_copy()
        log.error(
            "impossible members of a state file are ignored, the file was copied beside it: count=%d path=%s",
            dropped,
            file.path,
        )
    return usable
