"""PURE: what of a saved table can be used; a file may say anything.

Numbers fit their Java types: decoding left out the others (`left_out`), which count as dropped here, too.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, TypeVar

from roquet.common.units import LONG_MAX
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
"""An entry of a queue has 20 bytes, and its place in bytes is a long, too."""
_POSITIONS_MAX: Final = 1_024
"""Of a Bloom filter's bits."""

V = TypeVar("V")


def _kept(table: Mapping[str, V], is_usable: Callable[[str, V], bool]) -> tuple[dict[str, V], int]:
    """The members that can be used, and how many cannot."""
    kept = {name: value for name, value in table.items() if is_usable(name, value)}
    return kept, len(table) - len(kept)


def usable_topics(table: TopicTable) -> tuple[TopicTable, int]:
    """What can be used, and how many topics cannot."""
    topics, dropped = _kept(table.topics, _is_topic)
    return TopicTable(topics, _version(table.version)), dropped + table.left_out


def usable_groups(table: GroupTable) -> tuple[GroupTable, int]:
    """What can be used, and how many groups cannot."""
    groups, dropped = _kept(table.groups, _is_group)
    return GroupTable(groups, _version(table.version)), dropped + table.left_out


def usable_offsets(table: OffsetTable) -> tuple[OffsetTable, int]:
    """What can be used, and of how many queues the progress cannot."""
    offsets = {
        key: {queue_id: at for queue_id, at in queues.items() if queue_id >= 0}
        for key, queues in table.offsets.items()
    }
    dropped = sum(len(queues) - len(offsets[key]) for key, queues in table.offsets.items())
    return OffsetTable(offsets), dropped + table.left_out


def usable_delays(table: DelayOffsetTable) -> tuple[DelayOffsetTable, int]:
    """What can be used, and of how many delay levels the progress cannot."""
    offsets = {
        level: at
        for level, at in table.offsets.items()
        if 0 < level <= DELAY_LEVEL_MAX and 0 <= at < _QUEUE_OFFSET_END
    }
    return DelayOffsetTable(offsets), len(table.offsets) - len(offsets) + table.left_out


def usable_filters(table: FilterTable) -> tuple[FilterTable, int]:
    """What can be used, and how many filters cannot."""
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
    """One that the next change can count on from; else a new one."""
    numbers = version.timestamp, version.counter, version.state_version
    return version if all(number < LONG_MAX for number in numbers) else DataVersion()
