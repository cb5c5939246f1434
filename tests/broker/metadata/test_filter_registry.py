"""The life of a group's filter, and what it says of a message.

See docs/broker/filters.md#the-life-of-a-filter.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from roquet.broker.metadata.filter_registry import (
    FilterBitsOf,
    FilterRegistry,
    RetryTopicFilter,
    SqlFilter,
    compiled,
)
from roquet.errors import FilterError
from roquet.protocol.bodies.filter_table import BloomData, FilterData, FilterTable
from roquet.protocol.bodies.tables import Subscription
from roquet.protocol.filters.bloom import BloomShape
from roquet.protocol.filters.tags import SQL92
from roquet.protocol.records.message import RETRY_TOPIC
from roquet.protocol.records.record import Record

NOW = 1_700_000_000_000
DAY = 86_400_000
BLOOM = BloomShape()


def sql(expression: str = "a > 3", version: int = 1, topic: str = "T") -> Subscription:
    return Subscription(topic, expression, version, SQL92)


def registry(*subscriptions: Subscription, group: str = "g", now_ms: int = NOW) -> FilterRegistry:
    found = FilterRegistry(BLOOM, DAY)
    assert found.register(group, subscriptions or (sql(),), now_ms) == []
    return found


def data_of(filters: FilterRegistry, topic: str = "T", group: str = "g") -> FilterData:
    registered = filters.registered(topic, group)
    assert registered is not None
    return registered.data


def record(text: str, topic: str = "T") -> bytes:
    offsets = 0, 0
    host = bytes(8)
    stored = Record(0, 0, *offsets, 0, NOW, host, NOW, host, 0, 0, b"body", topic, text)
    return stored.encode()


def test_a_new_filter_is_born_with_the_bits_of_its_group() -> None:
    positions = BLOOM.positions("g", "T")
    assert data_of(registry()) == FilterData(
        "T", "g", "a > 3", 1, NOW, 0, BloomData(112, positions)
    )


def test_tag_expressions_are_none_of_its_business() -> None:
    assert not registry(Subscription("T", "TagA", 1))


def test_a_newer_version_of_the_same_filter_does_not_begin_anew() -> None:
    filters = registry()
    filters.register("g", [sql(version=2)], NOW + 5)
    assert (data_of(filters).version, data_of(filters).born_ms) == (2, NOW)


def test_another_expression_counts_from_when_it_came_if_its_version_is_newer() -> None:
    filters = registry(sql(version=2))
    for version in (1, 2):
        filters.register("g", [sql("b > 3", version)], NOW + 5)
        assert data_of(filters).expression == "a > 3"
    filters.register("g", [sql("b > 3", 3)], NOW + 6)
    assert data_of(filters) == replace(
        data_of(registry()), expression="b > 3", version=3, born_ms=NOW + 6
    )
    wanted = filters.wanted("T", "g")
    assert wanted is not None
    assert wanted.sql.expression == "b > 3"


def test_an_expression_that_is_wrong_is_told_and_takes_the_old_one_along() -> None:
    filters = registry(sql(), sql(topic="U"))
    (error,) = filters.register("g", [sql("a >", 2), sql(topic="U")], NOW)
    assert error.position == 4
    assert str(error).endswith("found the end (g wants T)")
    assert filters.registered("T", "g") is None
    assert data_of(filters, "U").expression == "a > 3"


def test_an_empty_expression_and_an_unknown_type_are_wrong() -> None:
    for kind, expression in ((SQL92, ""), ("XPATH", "a")):
        with pytest.raises(FilterError):
            compiled(kind, expression)
        assert (
            len(
                FilterRegistry(BLOOM, DAY).register(
                    "g", [Subscription("T", expression, 1, kind)], NOW
                )
            )
            == 1
        )


def test_a_group_that_left_is_dead_and_lives_again_when_it_comes_back() -> None:
    filters = registry()
    filters.unregister("g", NOW + 5)
    filters.unregister("g", NOW + 9)
    assert (data_of(filters).dead_ms, data_of(filters).is_dead) == (NOW + 5, True)
    filters.register("g", [sql()], NOW + 20)
    assert data_of(filters) == data_of(registry())


def test_what_a_group_does_not_want_any_more_is_dead() -> None:
    filters = registry(sql(), sql(topic="U"), sql(topic="V"))
    filters.register("g", [sql(), Subscription("U", "*", 2)], NOW + 5)
    assert [data_of(filters, topic).is_dead for topic in "TUV"] == [False, True, True]


def test_other_groups_are_left_alone() -> None:
    filters = registry()
    filters.register("h", [sql("b = 1")], NOW)
    filters.unregister("h", NOW + 1)
    assert [data_of(filters, group=group).is_dead for group in "gh"] == [False, True]
    assert len(filters.of_topic("T")) == 2


def test_a_filter_that_is_dead_for_a_day_is_forgotten() -> None:
    filters = registry()
    filters.unregister("g", NOW)
    assert "T" in filters.to_table(NOW + DAY - 1).filters
    assert not filters.is_due(NOW + DAY - 1)
    assert filters.is_due(NOW + DAY)
    assert filters.to_table(NOW + DAY) == FilterTable()
    assert not filters


def test_only_what_changed_is_saved_again() -> None:
    filters = registry()
    assert filters.is_due(NOW)
    filters.to_table(NOW)
    filters.register("g", [sql()], NOW + 1)
    assert not filters.is_due(NOW)
    filters.register("g", [sql(version=2)], NOW + 1)
    assert filters.is_due(NOW)


def test_after_a_restart_all_groups_count_as_gone_for_half_a_minute() -> None:
    table = registry().to_table(NOW)
    for later_ms, dead_ms in ((60_000, NOW + 30_000), (10_000, NOW)):
        restored = FilterRegistry(BLOOM, DAY)
        restored.restore(table, NOW + later_ms)
        assert data_of(restored) == replace(data_of(registry()), dead_ms=dead_ms)
        assert data_of(restored).is_dead
        restored.register("g", [sql()], NOW + later_ms)
        assert data_of(restored) == data_of(registry())


@pytest.mark.parametrize("bloom", [None, BloomData(120, (1, 2, 3)), BloomData(112, (1, 2))])
def test_a_saved_filter_with_other_bits_makes_all_of_them_void(bloom: BloomData | None) -> None:
    table = registry(sql(), sql(topic="U")).to_table(NOW)
    other = replace(table.filters["U"]["g"], bloom=bloom)
    restored = FilterRegistry(BLOOM, DAY)
    restored.restore(FilterTable({**table.filters, "U": {"g": other}}), NOW)
    assert not restored


def test_a_saved_filter_that_cannot_be_compiled_is_left_out() -> None:
    table = registry(sql(), sql(topic="U")).to_table(NOW)
    newer = replace(table.filters["U"]["g"], expression="a CONTAINS")
    restored = FilterRegistry(BLOOM, DAY)
    restored.restore(
        FilterTable({**table.filters, "U": {"g": replace(newer, expression="a ?")}}), NOW
    )
    assert data_of(restored).expression == "a > 3"
    assert restored.registered("U", "g") is None


def test_after_a_crash_notes_of_before_are_not_trusted() -> None:
    restored = FilterRegistry(BLOOM, DAY)
    restored.restore(registry().to_table(NOW), NOW + 50)
    restored.distrust_notes_until(NOW + 100)
    assert (data_of(restored).born_ms, data_of(restored).is_dead) == (NOW + 100, True)
    restored.distrust_notes_until(NOW)
    assert data_of(restored).born_ms == NOW + 100


def test_a_message_is_wanted_by_its_properties() -> None:
    wanted = SqlFilter(compiled(SQL92, "a > 3 AND TAGS = 'x'"))
    assert wanted.wants_record(record("TAGS\x01x\x02a\x014"))
    assert not wanted.wants_record(record("TAGS\x01x\x02a\x013"))
    assert not wanted.wants_record(record("a\x01abc\x02TAGS\x01x"))


def test_a_damaged_message_is_for_the_consumer_to_see() -> None:
    wanted = SqlFilter(compiled(SQL92, "a > 3"))
    sound = record("a\x011")
    assert not wanted.wants_record(sound)
    assert wanted.wants_record(sound[:-1])
    assert wanted.wants_record(b"")


def test_a_note_decides_only_if_the_message_was_tried_on_the_filter() -> None:
    filters = registry()
    wanted = filters.wanted("T", "g")
    assert wanted is not None
    others = FilterBitsOf(registry(group="h"), BLOOM).of("T", record("a\x019"))
    nothing = bytes(14)
    assert not wanted.may_pass(NOW + 1, nothing)
    assert not wanted.may_pass(NOW + 1, others)
    assert wanted.may_pass(NOW, nothing)
    assert wanted.may_pass(NOW + 1, bytes(13))
    assert wanted.may_pass(NOW + 1, FilterBitsOf(filters, BLOOM).of("T", record("a\x019")))


def test_a_note_has_the_bits_of_every_filter_that_wants_the_message() -> None:
    filters = registry()
    filters.register("h", [sql("a > 5")], NOW)
    filters.unregister("h", NOW)
    noted = FilterBitsOf(filters, BLOOM)
    masks = {
        group: wanted.mask for group in "gh" if (wanted := filters.wanted("T", group)) is not None
    }
    both = int.from_bytes(masks["g"]) | int.from_bytes(masks["h"])
    assert noted.of("T", record("a\x013")) == bytes(14)
    assert noted.of("T", record("a\x014")) == masks["g"]
    assert int.from_bytes(noted.of("T", record("a\x016"))) == both
    assert noted.of("T", record("a\x016")[:-1]) == b""
    assert (noted.has_any("T"), noted.has_any("U")) == (True, False)


def test_messages_that_come_again_are_filtered_by_their_own_topic() -> None:
    filters = registry(sql(), sql("FALSE", topic="U"))
    wanted = RetryTopicFilter(filters, "g")
    by_topic = {
        topic: [
            wanted.wants_record(record(f"{RETRY_TOPIC}\x01{topic}\x02a\x01{a}", "%RETRY%g"))
            for a in (3, 4)
        ]
        for topic in "TUV"
    }
    assert by_topic == {"T": [False, True], "U": [False, False], "V": [True, True]}
    assert wanted.wants_record(record("a\x011", "%RETRY%g"))
