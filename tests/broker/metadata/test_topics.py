"""The topics of a broker: from the start, on demand, by an admin.

See docs/broker/topics.md, docs/protocol/producing.md#how-a-broker-makes-a-topic and
docs/protocol/messages.md#names.
"""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from roquet.broker.metadata.topics import (
    TopicRegistry,
    dead_letter_topic,
    retry_topic,
    topics_at_start,
)
from roquet.protocol.bodies.tables import DataVersion, TopicConfig, TopicTable, parse
from roquet.protocol.json.dialect import dump_indented

NOW = 1_700_000_000_000


def registry(*, auto_create: bool = True) -> TopicRegistry:
    return TopicRegistry(
        topics_at_start("c", "b", auto_create=auto_create), NOW, auto_create=auto_create
    )


def test_a_broker_starts_with_apaches_topics() -> None:
    found = {
        topic.name: (topic.read_queues, topic.write_queues, topic.perm)
        for topic in topics_at_start("c", "b")
    }
    assert found == {
        "SELF_TEST_TOPIC": (1, 1, 6),
        "TBW102": (8, 8, 7),
        "BenchmarkTest": (1024, 1024, 6),
        "c": (16, 16, 7),
        "b": (1, 1, 7),
        "OFFSET_MOVED_EVENT": (1, 1, 6),
        "SCHEDULE_TOPIC_XXXX": (18, 18, 6),
        "c_REPLY_TOPIC": (1, 1, 6),
    }


def test_settings_change_the_topics_at_the_start() -> None:
    topics = topics_at_start(
        "c",
        "b",
        auto_create=False,
        cluster_topic=False,
        broker_topic=False,
        trace_topic="MyTrace",
        default_queues=3,
    )
    found = {topic.name: topic for topic in topics}
    assert "TBW102" not in found
    assert found["c"].perm == found["b"].perm == 1
    assert found["MyTrace"] == TopicConfig("MyTrace", 1, 1)
    assert [topic.write_queues for topic in topics_at_start("c", "b", default_queues=3)][1] == 3


def test_an_unknown_topic_is_made_like_the_default_topic_but_cannot_be_inherited_from() -> None:
    topics = registry()
    assert topics.create_for_send("T", "TBW102", 4, NOW) == TopicConfig("T", 4, 4, 6)
    assert topics.create_for_send("U", "TBW102", 99, NOW) == TopicConfig("U", 8, 8, 6)
    assert topics.create_for_send("V", "T", 4, NOW) is None
    assert list(topics.topics)[-2:] == ["T", "U"]


def test_a_topic_made_for_a_send_has_at_least_one_queue() -> None:
    topic = registry().create_for_send("T", "TBW102", 0, NOW)
    assert topic is not None
    assert topic.write_queues == 1


def test_the_default_topic_is_no_pattern_where_topics_are_not_made_on_demand_even_if_a_file_still_has_it() -> (
    None
):
    topics = registry(auto_create=False)
    topics.restore(TopicTable({"TBW102": TopicConfig("TBW102", 8, 8, 7)}), NOW)
    assert topics.create_for_send("T", "TBW102", 4, NOW) is None
    assert topics.create_for_send("T", "c", 4, NOW) == TopicConfig("T", 4, 4, 6)


def test_a_retry_topic_needs_no_pattern() -> None:
    assert registry(auto_create=False).create_for_send("%RETRY%g", "TBW102", 4, NOW) == TopicConfig(
        "%RETRY%g", 1, 1
    )


def test_names_of_retry_and_dead_letter_topics() -> None:
    assert retry_topic("g", 2) == TopicConfig("%RETRY%g", 2, 2, 6)
    assert dead_letter_topic("g") == TopicConfig("%DLQ%g", 1, 1, 6)


def test_creating_what_exists_changes_nothing() -> None:
    topics = registry()
    assert topics.create(TopicConfig("T", 2, 2), NOW)
    version = topics.version
    assert not topics.create(TopicConfig("T", 5, 5), NOW)
    assert (topics.topics["T"].read_queues, topics.version) == (2, version)


def test_an_update_leaves_alone_whether_a_topic_is_ordered() -> None:
    topics = registry()
    topics.update(TopicConfig("T", 2, 2), NOW)
    assert topics.set_ordered({"T", "unknown"}, NOW)
    topics.update(TopicConfig("T", 4, 4), NOW)
    assert topics.topics["T"] == TopicConfig("T", 4, 4, order=True)
    assert not topics.set_ordered({"T"}, NOW)
    assert topics.set_ordered((), NOW)
    assert not topics.topics["T"].order


def test_brokers_own_topics_are_system_topics() -> None:
    topics = registry()
    for name in (
        "TBW102",
        "RMQ_SYS_TRANS_HALF_TOPIC",
        "c",
        "b",
        "c_REPLY_TOPIC",
        "rmq_sys_x",
        "RMQ_SYS_TRACE_TOPIC",
    ):
        assert topics.is_system(name)
    assert not topics.is_system("T")
    assert "c" in topics.system_names


def test_a_saved_table_goes_over_the_topics_of_the_start() -> None:
    saved = TopicTable({"SELF_TEST_TOPIC": TopicConfig("SELF_TEST_TOPIC", 3, 3)}, DataVersion(5, 9))
    topics = registry()
    topics.restore(saved, NOW)
    assert topics.topics["SELF_TEST_TOPIC"].read_queues == 3
    assert topics.version == DataVersion(NOW, 10), (
        "this start brought topics that the file does not have"
    )
    again = registry()
    again.restore(topics.to_table(), NOW + 1)
    assert again.version == topics.version


def test_a_slave_takes_the_masters_table_when_its_version_differs() -> None:
    topics, view = registry(), registry().topics
    topics_view = topics.topics
    master = TopicTable({"T": TopicConfig("T", 2, 2)}, DataVersion(7, 3))
    assert topics.copy_master(master)
    assert dict(topics.topics) == {"T": TopicConfig("T", 2, 2)}
    assert topics.topics is topics_view is not view
    assert topics.version == master.version
    assert not topics.copy_master(TopicTable({}, master.version))


def test_deleting_tells_whether_there_was_anything_to_delete() -> None:
    topics = registry()
    topics.update(TopicConfig("T"), NOW)
    version = topics.version
    assert topics.delete("T", NOW + 1)
    assert topics.version == version.next(NOW + 1)
    assert not topics.delete("T", NOW + 2)
    assert topics.version == version.next(NOW + 1)


names = st.sampled_from(["T", "U", "%RETRY%g", "TBW102"])
steps = st.one_of(
    st.tuples(st.just("update"), names),
    st.tuples(st.just("create"), names),
    st.tuples(st.just("send"), names),
    st.tuples(st.just("delete"), names),
    st.tuples(st.just("order"), names),
)


@given(st.lists(steps))
def test_the_version_moves_exactly_when_the_table_does(made: list[tuple[str, str]]) -> None:
    topics = registry()
    for step, name in made:
        before, version = topics.to_table(), topics.version
        match step:
            case "update":
                topics.update(TopicConfig(name, len(before.topics), 1), NOW)
            case "create":
                topics.create(TopicConfig(name), NOW)
            case "send" if name not in topics.topics:
                topics.create_for_send(name, "TBW102", 4, NOW)
            case "delete":
                topics.delete(name, NOW)
            case "order":
                topics.set_ordered({name}, NOW)
        after = topics.to_table()
        assert (after.topics != before.topics) <= (after.version != version)
        if step != "update":
            assert (after.topics != before.topics) == (after.version != version)


@given(st.lists(steps))
def test_a_table_survives_its_file(made: list[tuple[str, str]]) -> None:
    topics = registry()
    for number, (_, name) in enumerate(made):
        topics.update(TopicConfig(name, number, number), NOW + number)
    again = registry()
    again.restore(parse(dump_indented(topics.to_table().to_json()), TopicTable.from_json), NOW)
    assert again.to_table() == topics.to_table()
