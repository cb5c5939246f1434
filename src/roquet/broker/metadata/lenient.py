"""PURE: drops entries of saved tables that cannot be used, since a file may contain anything.

Decoding has already left out numbers that do not fit their Java types (`left_out`). They count as
dropped here, too.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, TypeVar

from roquet.common.java import LONG_MAX
from roquet.protocol.bodies.filter_table import FilterData, FilterTable
from roquet.protocol.bodies.tables import (
    DataVersion,
    DelayOffsetTable,
    GroupConfig,
    GroupTable,
    OffsetTable,
    TopicConfig,
    TopicTable,
)
from roquet.protocol.records.message import TOPIC_SIZE_MAX, is_legal_name

DELAY_LEVEL_MAX: Final = 1_000
_QUEUE_OFFSET_END: Final = LONG_MAX // 20
"""A queue entry has 20 bytes, and its offset in bytes must fit a Java long."""
_POSITIONS_MAX: Final = 1_024
"""How many bits of a Bloom filter one group may have."""

V = TypeVar("V")


def _kept(table: Mapping[str, V], is_usable: Callable[[str, V], bool]) -> tuple[dict[str, V], int]:
    """The usable entries, and the number of dropped ones."""
    kept = {name: value for name, value in table.items() if is_usable(name, value)}
    return kept, len(table) - len(kept)


def usable_topics(table: TopicTable) -> tuple[TopicTable, int]:
    """The usable topics, and the number of dropped ones."""
    topics, dropped = _kept(table.topics, _is_topic)
    return TopicTable(topics, _version(table.version)), dropped + table.left_out


def usable_groups(table: GroupTable) -> tuple[GroupTable, int]:
    """The usable groups, and the number of dropped ones."""
    groups, dropped = _kept(table.groups, _is_group)
    return GroupTable(groups, _version(table.version)), dropped + table.left_out


def usable_offsets(table: OffsetTable) -> tuple[OffsetTable, int]:
    """The usable consumer offsets, and the number of dropped ones."""
    offsets = {
        key: {queue_id: at for queue_id, at in queues.items() if queue_id >= 0}
        for key, queues in table.offsets.items()
    }
    dropped = sum(len(queues) - len(offsets[key]) for key, queues in table.offsets.items())
    return OffsetTable(offsets), dropped + table.left_out


def usable_delays(table: DelayOffsetTable) -> tuple[DelayOffsetTable, int]:
    """The usable offsets of delay levels, and the number of dropped ones."""
    offsets = {
        level: at
        for level, at in table.offsets.items()
        if 0 < level <= DELAY_LEVEL_MAX and 0 <= at < _QUEUE_OFFSET_END
    }
    return DelayOffsetTable(offsets), len(table.offsets) - len(offsets) + table.left_out


def usable_filters(table: FilterTable) -> tuple[FilterTable, int]:
    """The usable filters, and the number of dropped ones."""
    filters = {
        topic: _kept(groups, lambda _, data: _is_filter(data))
        for topic, groups in table.filters.items()
    }
    kept = {topic: groups for topic, (groups, _) in filters.items()}
    return FilterTable(kept), sum(dropped for _, dropped in filters.values())


def _is_topic(key: str, topic: TopicConfig) -> bool:
    return (
        key == topic.name
        and is_legal_name(key)
        and len(key) <= TOPIC_SIZE_MAX
        and topic.read_queues >= 0
        and topic.write_queues >= 0
    )


def _is_group(key: str, group: GroupConfig) -> bool:
    return key == group.name and is_legal_name(key)


def _is_filter(data: FilterData) -> bool:
    bloom = data.bloom
    return bloom is None or (
        bloom.bits > 0
        and len(bloom.positions) <= _POSITIONS_MAX
        and all(0 <= position < bloom.bits for position in bloom.positions)
    )


def _version(version: DataVersion) -> DataVersion:
    """The saved version, or a new one if the next change could not increment it."""
    numbers = version.timestamp, version.counter, version.state_version
    return version if all(number < LONG_MAX for number in numbers) else DataVersion()
