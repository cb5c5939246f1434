"""How far each group has consumed.

See docs/storage/files.md#the-json-of-state-files, docs/broker/consumers.md#consumer-offsets,
docs/pitfalls.md#trap-29 and docs/pitfalls.md#trap-30.
"""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from roquet.broker.offsets.consumer_offsets import (
    Commit,
    ConsumerOffsets,
    DelayOffsets,
    start_of_young_queue,
)
from roquet.common.steps import PART, finished
from roquet.errors import Refused
from roquet.protocol.bodies.tables import DelayOffsetTable, OffsetTable, parse
from roquet.protocol.json.dialect import dump_indented

tables = st.dictionaries(
    st.sampled_from(["T@g", "T@h", "U@g", "%RETRY%g@g"]),
    st.dictionaries(st.integers(0, 9), st.integers(0, 2**63 - 1), min_size=1),
)


def test_the_last_word_counts_even_when_it_goes_backwards() -> None:
    consumer_offsets = ConsumerOffsets()
    consumer_offsets.commit("g", "T", 0, 9)
    consumer_offsets.commit("g", "T", 0, 4)
    assert consumer_offsets.committed("g", "T", 0) == 4
    assert consumer_offsets.committed("g", "T", 1) is None
    assert consumer_offsets.committed("h", "T", 0) is None


def test_an_offset_below_0_is_none() -> None:
    consumer_offsets = ConsumerOffsets()
    consumer_offsets.commit("g", "T", 0, -1)
    assert consumer_offsets.committed("g", "T", 0) is None


def test_changes_are_counted_so_that_nothing_is_saved_in_vain() -> None:
    consumer_offsets = ConsumerOffsets()
    consumer_offsets.commit("g", "T", 0, 9)
    consumer_offsets.commit("g", "T", 0, 9)
    assert consumer_offsets.changes == 1
    consumer_offsets.commit("g", "T", 1, 9)
    assert consumer_offsets.changes == 2


def test_topics_and_groups_are_found_by_each_other() -> None:
    consumer_offsets = ConsumerOffsets()
    for group, topic in (("g", "T"), ("g", "%RETRY%g"), ("h", "T")):
        consumer_offsets.commit(group, topic, 0, 1)
    assert consumer_offsets.topics_of("g") == ["T", "%RETRY%g"]
    assert consumer_offsets.groups_of("T") == ["g", "h"]
    consumer_offsets.forget_group("g")
    assert consumer_offsets.to_table().offsets == {"T@h": {0: 1}}
    consumer_offsets.forget_topic("T")
    assert consumer_offsets.to_table().offsets == {}


def test_a_slave_takes_the_masters_word_for_what_the_master_names() -> None:
    consumer_offsets = ConsumerOffsets()
    consumer_offsets.restore(OffsetTable({"T@g": {0: 1, 1: 5}, "U@g": {0: 3}}))
    master = OffsetTable({"T@g": {0: 2}, "T@h": {0: 7}})
    assert finished(consumer_offsets.copy_master(master))
    assert consumer_offsets.to_table().offsets == {"T@g": {0: 2}, "U@g": {0: 3}, "T@h": {0: 7}}
    assert not finished(consumer_offsets.copy_master(master))


def test_a_slave_keeps_what_was_committed_to_it_and_goes_beyond_its_masters_word() -> None:
    consumer_offsets = ConsumerOffsets(remembers=True)
    for queue_id, offset in ((0, 5), (1, 3)):
        consumer_offsets.commit("g", "T", queue_id, offset)
    finished(consumer_offsets.copy_master(OffsetTable({"T@g": {0: 4, 1: 7}})))
    assert consumer_offsets.to_table().offsets == {"T@g": {0: 5, 1: 7}}


def test_a_slave_copies_thousands_of_groups_in_parts_and_no_group_by_halves() -> None:
    consumer_offsets = ConsumerOffsets()
    before, after = {0: 1, 1: 1}, {0: 2, 1: 2}
    consumer_offsets.restore(OffsetTable({f"T@g{number}": before for number in range(20 * PART)}))
    seen = set[int]()
    for _ in consumer_offsets.copy_master(
        OffsetTable({f"T@g{number}": after for number in range(20 * PART)})
    ):
        offsets = consumer_offsets.to_table().offsets.values()
        assert all(queues in (before, after) for queues in offsets)
        seen.add(sum(queues == after for queues in offsets))
    assert seen == {PART * part for part in range(1, 21)}


def test_what_is_committed_on_a_slave_amid_a_copy_is_kept() -> None:
    consumer_offsets = ConsumerOffsets(remembers=True)
    copying = consumer_offsets.copy_master(
        OffsetTable({f"T@g{number}": {0: 5} for number in range(2 * PART)})
    )
    next(copying)
    consumer_offsets.commit("g0", "T", 0, 7)
    consumer_offsets.commit(f"g{PART}", "T", 0, 8)
    consumer_offsets.commit(f"g{PART + 1}", "T", 0, 4)
    assert finished(copying)
    assert finished(consumer_offsets.own()) == [
        Commit("T", "g0", 0, 7),
        Commit("T", f"g{PART}", 0, 8),
    ]
    assert [consumer_offsets.committed(f"g{number}", "T", 0) for number in (0, PART, PART + 1)] == [
        7,
        8,
        5,
    ]


def test_everybody_starts_at_0_in_a_queue_that_still_has_its_first_message_in_memory() -> None:
    assert start_of_young_queue(0, first_in_memory=True) == 0
    assert start_of_young_queue(-1, first_in_memory=True) == 0
    assert start_of_young_queue(0, first_in_memory=False) is None
    assert start_of_young_queue(1, first_in_memory=True) is None


def test_a_table_taken_out_does_not_change_any_more() -> None:
    consumer_offsets = ConsumerOffsets()
    consumer_offsets.commit("g", "T", 0, 1)
    table = consumer_offsets.to_table()
    consumer_offsets.commit("g", "T", 0, 2)
    assert table.offsets == {"T@g": {0: 1}}


def test_two_tables_share_what_was_not_changed_between_them() -> None:
    """However many groups there are, a save costs the event loop only what is committed."""
    consumer_offsets = ConsumerOffsets()
    for topic, group in (("T", "g"), ("T", "h"), ("U", "g")):
        consumer_offsets.commit(group, topic, 0, 1)
    first = consumer_offsets.to_table().offsets
    consumer_offsets.commit("g", "T", 0, 2)
    second = consumer_offsets.to_table().offsets
    assert first == {"T@g": {0: 1}, "T@h": {0: 1}, "U@g": {0: 1}}
    assert second == {"T@g": {0: 2}, "T@h": {0: 1}, "U@g": {0: 1}}
    assert second["T@h"] is first["T@h"]
    assert second["U@g"] is first["U@g"]


_NAMES = st.sampled_from("ghi")
_CHANGES = st.one_of(
    st.tuples(st.just("commit"), _NAMES, _NAMES, st.integers(0, 2), st.integers(0, 5)),
    st.tuples(st.just("clone"), _NAMES, _NAMES, _NAMES),
    st.tuples(st.sampled_from(["forget_group", "forget_topic"]), _NAMES),
    st.tuples(st.just("copy_master"), tables.map(OffsetTable)),
    st.just(("to_table",)),
)


@given(st.lists(_CHANGES, max_size=40))
def test_a_table_is_one_moments_whatever_comes_after_it(changes: list[tuple[Any, ...]]) -> None:
    consumer_offsets, taken = (
        ConsumerOffsets(),
        list[tuple[OffsetTable, dict[str, dict[int, int]]]](),
    )
    for name, *arguments in changes:
        result = getattr(consumer_offsets, name)(*arguments)
        if name == "copy_master":
            finished(result)
        elif name == "to_table":
            taken.append((result, {key: dict(queues) for key, queues in result.offsets.items()}))
    for each, then in taken:
        assert each.offsets == then
    table = consumer_offsets.to_table().offsets
    pairs = {tuple(key.split("@")) for key in table}
    groups, topics = {group for _, group in pairs}, {topic for topic, _ in pairs}
    assert consumer_offsets.count == sum(map(len, table.values()))
    assert {
        (topic, group) for topic in topics for group in consumer_offsets.groups_of(topic)
    } == pairs
    assert {
        (topic, group) for group in groups for topic in consumer_offsets.topics_of(group)
    } == pairs


def test_a_topic_whose_name_would_end_elsewhere_in_a_saved_table_has_no_progress() -> None:
    consumer_offsets = ConsumerOffsets()
    with pytest.raises(Refused, match="no such name"):
        consumer_offsets.commit("g", "T@x", 0, 1)
    assert (consumer_offsets.count, len(consumer_offsets.to_table().offsets)) == (0, 0)


def test_no_queue_has_a_negative_number() -> None:
    """The next start would take the whole file for damaged, keep a copy of it and say so, each
    time.
    """
    consumer_offsets = ConsumerOffsets()
    with pytest.raises(Refused, match="queue -1"):
        consumer_offsets.commit("g", "T", -1, 1)
    assert (consumer_offsets.count, len(consumer_offsets.to_table().offsets)) == (0, 0)


@given(tables)
def test_a_table_survives_its_file(offsets: dict[str, dict[int, int]]) -> None:
    consumer_offsets = ConsumerOffsets()
    consumer_offsets.restore(
        parse(dump_indented(OffsetTable(offsets).to_json()), OffsetTable.from_json)
    )
    assert consumer_offsets.to_table() == OffsetTable(offsets)


def test_delivery_of_delayed_messages_goes_on_where_it_stopped() -> None:
    delays = DelayOffsets()
    assert delays.next_offset(3) == 0
    delays.delivered(3, 7)
    assert delays.next_offset(3) == 7
    assert delays.settle(delays.now())
    again = DelayOffsets()
    again.restore(parse(dump_indented(delays.to_table().to_json()), DelayOffsetTable.from_json))
    assert again.next_offset(3) == 7


def test_what_was_delivered_is_neither_saved_nor_told_before_it_is_on_disk() -> None:
    delays = DelayOffsets()
    delays.restore(DelayOffsetTable({3: 5}))
    delays.delivered(3, 7)
    then = delays.now()
    delays.delivered(3, 9)
    assert delays.to_table() == DelayOffsetTable({3: 5})
    assert delays.settle(then)
    assert delays.to_table() == DelayOffsetTable({3: 7})
    assert not delays.settle(then)
    assert delays.next_offset(3) == 9


def test_a_slave_counts_as_delivered_what_its_own_log_has_on_disk() -> None:
    delays = DelayOffsets()
    assert not delays.copy_master(DelayOffsetTable({3: 7}), 500, flushed_to=499)
    assert delays.to_table() == delays.now() == DelayOffsetTable({})
    assert delays.copy_master(DelayOffsetTable({3: 9}), 800, flushed_to=500)
    assert delays.to_table() == delays.now() == DelayOffsetTable({3: 7})
    assert not delays.copy_master(DelayOffsetTable({3: 9}), 900, flushed_to=899)
    assert delays.copy_master(DelayOffsetTable({3: 9}), 950, flushed_to=901)
    assert delays.to_table() == DelayOffsetTable({3: 9})


def test_a_slave_forgets_what_a_master_said_whose_log_is_another_now() -> None:
    delays = DelayOffsets()
    delays.copy_master(DelayOffsetTable({3: 9}), 800, flushed_to=500)
    delays.copy_master(DelayOffsetTable({3: 5}), 600, flushed_to=500)
    assert delays.copy_master(DelayOffsetTable({3: 6}), 700, flushed_to=600)
    assert delays.to_table() == DelayOffsetTable({3: 5})
    delays.copy_master(DelayOffsetTable({3: 9}), 800, flushed_to=600)
    delays.forget_copy()
    assert delays.copy_master(DelayOffsetTable({3: 6}), 800, flushed_to=800)
    assert delays.to_table() == DelayOffsetTable({3: 6})


def test_no_group_is_further_than_the_end_of_a_queue_that_is_known() -> None:
    consumer_offsets = ConsumerOffsets()
    for topic, queue_id in (("T", 0), ("T", 1), ("gone", 0)):
        consumer_offsets.commit("g", topic, queue_id, 9)
    ends = {("T", 0): 4, ("T", 1): 9}
    back = consumer_offsets.set_back(
        lambda topic, queue_id, offset: min(offset, ends.get((topic, queue_id), offset))
    )
    assert back == [Commit("T", "g", 0, 4)]
    assert consumer_offsets.to_table().offsets == {"T@g": {0: 4, 1: 9}, "gone@g": {0: 9}}
