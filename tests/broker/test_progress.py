"""How far each group has consumed (store-and-ha.md 1.3 and 6.11, protocol.md 7.3 traps 29 and 30)."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from roquet.broker.progress import Commit, ConsumerProgress, DelayProgress, start_of_young_queue
from roquet.protocol.bodies import DelayOffsetTable, OffsetTable, parse
from roquet.protocol.json_dialect import dump_file

tables = st.dictionaries(
    st.sampled_from(["T@g", "T@h", "U@g", "%RETRY%g@g"]),
    st.dictionaries(st.integers(0, 9), st.integers(0, 2**63 - 1), min_size=1),
)


def test_the_last_word_counts_even_when_it_goes_backwards() -> None:
    progress = ConsumerProgress()
    progress.commit("g", "T", 0, 9)
    progress.commit("g", "T", 0, 4)
    assert progress.committed("g", "T", 0) == 4
    assert progress.committed("g", "T", 1) is None
    assert progress.committed("h", "T", 0) is None


def test_an_offset_below_0_is_none() -> None:
    progress = ConsumerProgress()
    progress.commit("g", "T", 0, -1)
    assert progress.committed("g", "T", 0) is None


def test_changes_are_counted_so_that_nothing_is_saved_in_vain() -> None:
    progress = ConsumerProgress()
    progress.commit("g", "T", 0, 9)
    progress.commit("g", "T", 0, 9)
    assert progress.changes == 1
    progress.commit("g", "T", 1, 9)
    assert progress.changes == 2


def test_topics_and_groups_are_found_by_each_other() -> None:
    progress = ConsumerProgress()
    for group, topic in (("g", "T"), ("g", "%RETRY%g"), ("h", "T")):
        progress.commit(group, topic, 0, 1)
    assert progress.topics_of("g") == ["T", "%RETRY%g"]
    assert progress.groups_of("T") == ["g", "h"]
    progress.forget_group("g")
    assert progress.to_table().offsets == {"T@h": {0: 1}}
    progress.forget_topic("T")
    assert progress.to_table().offsets == {}


def test_a_slave_takes_the_masters_word_for_what_the_master_names() -> None:
    progress = ConsumerProgress()
    progress.restore(OffsetTable({"T@g": {0: 1, 1: 5}, "U@g": {0: 3}}))
    master = OffsetTable({"T@g": {0: 2}, "T@h": {0: 7}})
    assert progress.copy_master(master)
    assert progress.to_table().offsets == {"T@g": {0: 2}, "U@g": {0: 3}, "T@h": {0: 7}}
    assert not progress.copy_master(master)


def test_a_slave_keeps_what_was_committed_to_it_and_goes_beyond_its_masters_word() -> None:
    progress = ConsumerProgress(remembers=True)
    for queue_id, offset in ((0, 5), (1, 3)):
        progress.commit("g", "T", queue_id, offset)
    progress.copy_master(OffsetTable({"T@g": {0: 4, 1: 7}}))
    assert progress.to_table().offsets == {"T@g": {0: 5, 1: 7}}


def test_everybody_starts_at_0_in_a_queue_that_still_has_its_first_message_in_memory() -> None:
    assert start_of_young_queue(0, first_in_memory=True) == 0
    assert start_of_young_queue(-1, first_in_memory=True) == 0
    assert start_of_young_queue(0, first_in_memory=False) is None
    assert start_of_young_queue(1, first_in_memory=True) is None


def test_a_table_taken_out_does_not_change_any_more() -> None:
    progress = ConsumerProgress()
    progress.commit("g", "T", 0, 1)
    table = progress.to_table()
    progress.commit("g", "T", 0, 2)
    assert table.offsets == {"T@g": {0: 1}}


@given(tables)
def test_a_table_survives_its_file(offsets: dict[str, dict[int, int]]) -> None:
    progress = ConsumerProgress()
    progress.restore(parse(dump_file(OffsetTable(offsets).to_json()), OffsetTable.from_json))
    assert progress.to_table() == OffsetTable(offsets)


def test_delivery_of_delayed_messages_goes_on_where_it_stopped() -> None:
    delays = DelayProgress()
    assert delays.next_offset(3) == 0
    delays.delivered(3, 7)
    assert delays.next_offset(3) == 7
    assert delays.settle(delays.now())
    again = DelayProgress()
    again.restore(parse(dump_file(delays.to_table().to_json()), DelayOffsetTable.from_json))
    assert again.next_offset(3) == 7


def test_what_was_delivered_is_neither_saved_nor_told_before_it_is_on_disk() -> None:
    delays = DelayProgress()
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
    delays = DelayProgress()
    assert not delays.copy_master(DelayOffsetTable({3: 7}), 500, flushed_to=499)
    assert delays.to_table() == delays.now() == DelayOffsetTable({})
    assert delays.copy_master(DelayOffsetTable({3: 9}), 800, flushed_to=500)
    assert delays.to_table() == delays.now() == DelayOffsetTable({3: 7})
    assert not delays.copy_master(DelayOffsetTable({3: 9}), 900, flushed_to=899)
    assert delays.copy_master(DelayOffsetTable({3: 9}), 950, flushed_to=901)
    assert delays.to_table() == DelayOffsetTable({3: 9})


def test_a_slave_forgets_what_a_master_said_whose_log_is_another_now() -> None:
    delays = DelayProgress()
    delays.copy_master(DelayOffsetTable({3: 9}), 800, flushed_to=500)
    delays.copy_master(DelayOffsetTable({3: 5}), 600, flushed_to=500)
    assert delays.copy_master(DelayOffsetTable({3: 6}), 700, flushed_to=600)
    assert delays.to_table() == DelayOffsetTable({3: 5})
    delays.copy_master(DelayOffsetTable({3: 9}), 800, flushed_to=600)
    delays.forget_copy()
    assert delays.copy_master(DelayOffsetTable({3: 6}), 800, flushed_to=800)
    assert delays.to_table() == DelayOffsetTable({3: 6})


def test_no_group_is_further_than_the_end_of_a_queue_that_is_known() -> None:
    progress = ConsumerProgress()
    for topic, queue_id in (("T", 0), ("T", 1), ("gone", 0)):
        progress.commit("g", topic, queue_id, 9)
    ends = {("T", 0): 4, ("T", 1): 9}
    back = progress.set_back(lambda topic, queue_id, offset: min(offset, ends.get((topic, queue_id), offset)))
    assert back == [Commit("T", "g", 0, 4)]
    assert progress.to_table().offsets == {"T@g": {0: 4, 1: 9}, "gone@g": {0: 9}}
