"""Entries of saved tables that cannot be used are dropped, and counted."""

from __future__ import annotations

from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from roquet.broker.metadata.lenient import (
    DELAY_LEVEL_MAX,
    usable_delays,
    usable_filters,
    usable_groups,
    usable_offsets,
    usable_topics,
)
from roquet.common.java import LONG_MAX
from roquet.protocol.bodies.filter_table import BloomData, FilterData, FilterTable
from roquet.protocol.bodies.tables import (
    DataVersion,
    DelayOffsetTable,
    GroupConfig,
    GroupTable,
    OffsetTable,
    TopicConfig,
    TopicTable,
)
from roquet.protocol.records.message import TOPIC_SIZE_MAX

VERSION: Final = DataVersion(1_700_000_000_000, 7, 1)
QUEUE_OFFSET_MAX: Final = LONG_MAX // 20 - 1


def bloom_filter(bits: int, *positions: int) -> FilterTable:
    return FilterTable(
        {"T": {"g": FilterData("T", "g", "a > 1", bloom=BloomData(bits, positions))}}
    )


def test_tables_that_can_be_used_stay_as_they_are() -> None:
    topics = TopicTable({"T": TopicConfig("T"), "%RETRY%g": TopicConfig("%RETRY%g", 1, 1)}, VERSION)
    groups = GroupTable({"g": GroupConfig("g")}, VERSION)
    offsets = OffsetTable({"T@g": {0: 5, 3: -1}, "U@g": {}})
    delays = DelayOffsetTable({1: 0, DELAY_LEVEL_MAX: QUEUE_OFFSET_MAX})
    filters = FilterTable({"T": {"g": FilterData("T", "g", "a > 1")}})
    assert usable_topics(topics) == (topics, 0)
    assert usable_groups(groups) == (groups, 0)
    assert usable_offsets(offsets) == (offsets, 0)
    assert usable_delays(delays) == (delays, 0)
    assert usable_filters(filters) == (filters, 0)


@pytest.mark.parametrize(
    ("key", "topic"),
    [
        ("T", TopicConfig("U")),
        ("", TopicConfig("")),
        ("no blank", TopicConfig("no blank")),
        ("t" * (TOPIC_SIZE_MAX + 1), TopicConfig("t" * (TOPIC_SIZE_MAX + 1))),
        ("T", TopicConfig("T", read_queues=-1)),
        ("T", TopicConfig("T", write_queues=-1)),
    ],
    ids=["other name", "no name", "illegal name", "long name", "read queues", "write queues"],
)
def test_a_topic_that_cannot_be_used_is_dropped(key: str, topic: TopicConfig) -> None:
    good = TopicConfig("good", 0, 0)
    kept, dropped = usable_topics(TopicTable({key: topic, "good": good}, VERSION))
    assert (kept, dropped) == (TopicTable({"good": good}, VERSION), 1)


def test_the_longest_topic_name_is_kept() -> None:
    name = "t" * TOPIC_SIZE_MAX
    table = TopicTable({name: TopicConfig(name)}, VERSION)
    assert usable_topics(table) == (table, 0)


@pytest.mark.parametrize(("key", "name"), [("g", "h"), ("", ""), ("no blank", "no blank")])
def test_a_group_that_cannot_be_used_is_dropped(key: str, name: str) -> None:
    good = GroupConfig("good")
    kept, dropped = usable_groups(GroupTable({key: GroupConfig(name), "good": good}, VERSION))
    assert (kept, dropped) == (GroupTable({"good": good}, VERSION), 1)


def test_offsets_of_queues_that_cannot_be_are_dropped() -> None:
    table = OffsetTable({"T@g": {-1: 5, 0: 6}, "U@g": {-3: 1, -2: 1}})
    assert usable_offsets(table) == (OffsetTable({"T@g": {0: 6}, "U@g": {}}), 3)


@pytest.mark.parametrize(
    ("level", "offset"),
    [(0, 1), (-1, 1), (DELAY_LEVEL_MAX + 1, 1), (1, -1), (1, QUEUE_OFFSET_MAX + 1)],
)
def test_an_offset_of_a_delay_level_that_cannot_be_is_dropped(level: int, offset: int) -> None:
    kept, dropped = usable_delays(DelayOffsetTable({level: offset, 2: 4}))
    assert (kept, dropped) == (DelayOffsetTable({2: 4}), 1)


@pytest.mark.parametrize(
    "table",
    [
        bloom_filter(0),
        bloom_filter(-8, 0),
        bloom_filter(64, 64),
        bloom_filter(64, 0, -1),
        bloom_filter(2000, *range(1025)),
    ],
    ids=["no bits", "negative bits", "position too high", "position too low", "many positions"],
)
def test_a_filter_whose_bits_cannot_be_set_is_dropped(table: FilterTable) -> None:
    assert usable_filters(table) == (FilterTable({"T": {}}), 1)


@pytest.mark.parametrize(
    "table", [bloom_filter(64), bloom_filter(64, 0, 63), bloom_filter(1024, *range(1024))]
)
def test_a_filter_whose_bits_can_be_set_is_kept(table: FilterTable) -> None:
    assert usable_filters(table) == (table, 0)


def test_numbers_that_fit_no_java_type_were_dropped_before_and_count_as_well() -> None:
    huge = 10**30
    topics = TopicTable.from_json(
        {
            "topicConfigTable": {
                "T": {"topicName": "T", "readQueueNums": huge},
                "": {"topicName": ""},
            }
        }
    )
    groups = GroupTable.from_json(
        {"subscriptionGroupTable": {"g": {"groupName": "g", "retryQueueNums": huge}}}
    )
    offsets = OffsetTable.from_json({"offsetTable": {"T@g": {"0": huge, "-1": 3, "1": 2}}})
    delays = DelayOffsetTable.from_json({"offsetTable": {"1": huge, "2": -2, "3": 3}})
    assert usable_topics(topics)[1] == 2
    assert usable_groups(groups)[1] == 1
    assert usable_offsets(offsets) == (OffsetTable({"T@g": {1: 2}}), 2)
    assert usable_delays(delays) == (DelayOffsetTable({3: 3}), 2)


@pytest.mark.parametrize(
    "version",
    [DataVersion(LONG_MAX, 1, 1), DataVersion(1, LONG_MAX, 1), DataVersion(1, 1, LONG_MAX)],
)
def test_a_version_that_cannot_grow_begins_anew(version: DataVersion) -> None:
    assert usable_topics(TopicTable({}, version))[0].version == DataVersion()
    assert usable_groups(GroupTable({}, version))[0].version == DataVersion()


def test_the_last_version_that_can_grow_is_kept() -> None:
    version = DataVersion(LONG_MAX - 1, LONG_MAX - 1, LONG_MAX - 1)
    assert usable_topics(TopicTable({}, version))[0].version == version


@given(
    st.dictionaries(
        st.integers(-2, DELAY_LEVEL_MAX + 2),
        st.integers(-2, 2) | st.integers(QUEUE_OFFSET_MAX - 2, QUEUE_OFFSET_MAX + 2),
    )
)
def test_what_was_kept_once_is_kept_again(offsets: dict[int, int]) -> None:
    table = DelayOffsetTable(offsets)
    kept, dropped = usable_delays(table)
    assert len(kept.offsets) + dropped == len(offsets)
    assert usable_delays(kept) == (kept, 0)
