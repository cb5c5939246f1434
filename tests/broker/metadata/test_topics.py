"""The topics of a broker: from the start, on demand, by an admin.

See docs/broker/topics.md, docs/protocol/producing.md#how-a-broker-makes-a-topic and
docs/protocol/messages.md#names.
"""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from roquet.broker.metadata.topics import TopicRegistry, topics_at_start
from roquet.common.listeners import Then
from roquet.protocol.bodies.tables import DataVersion, GroupConfig, TopicConfig, TopicTable, parse
from roquet.protocol.json.dialect import dump_indented

NOW = 1_700_000_000_000


def registry(*, auto_create: bool = True, now_ms: int = NOW) -> TopicRegistry:
    return TopicRegistry(
        topics_at_start("c", "b", auto_create=auto_create),
        lambda: now_ms,
        auto_create=auto_create,
    )


def changes_of(topics: TopicRegistry) -> list[Then | None]:
    """What each further change is reported with."""
    reported: list[Then | None] = []
    topics.changed.add(reported.append)
    return reported


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
    assert topics.get_or_create_for_send("T", "TBW102", 4) == TopicConfig("T", 4, 4, 6)
    assert topics.get_or_create_for_send("U", "TBW102", 99) == TopicConfig("U", 8, 8, 6)
    assert topics.get_or_create_for_send("V", "T", 4) is None
    assert list(topics.topics)[-2:] == ["T", "U"]


def test_a_topic_made_for_a_send_has_at_least_one_queue() -> None:
    topic = registry().get_or_create_for_send("T", "TBW102", 0)
    assert topic is not None
    assert topic.write_queues == 1


def test_the_default_topic_is_no_pattern_where_topics_are_not_made_on_demand_even_if_a_file_still_has_it() -> (
    None
):
    topics = registry(auto_create=False)
    topics.restore(TopicTable({"TBW102": TopicConfig("TBW102", 8, 8, 7)}))
    assert topics.get_or_create_for_send("T", "TBW102", 4) is None
    assert topics.get_or_create_for_send("T", "c", 4) == TopicConfig("T", 4, 4, 6)


def test_a_retry_topic_needs_no_pattern() -> None:
    assert registry(auto_create=False).get_or_create_for_send(
        "%RETRY%g", "TBW102", 4
    ) == TopicConfig("%RETRY%g", 1, 1)


def test_topics_of_groups_and_of_the_broker_are_created_once() -> None:
    topics = registry()
    reported = changes_of(topics)
    for _ in range(2):
        assert topics.retry_topic(GroupConfig("g", retry_queues=2), 2) == TopicConfig(
            "%RETRY%g", 2, 2, 6, sys_flag=2
        )
        assert topics.dead_letter_topic("g") == TopicConfig("%DLQ%g", 1, 1, 6)
        assert topics.get_or_create(TopicConfig("S", 1, 1)) == TopicConfig("S", 1, 1)
        assert topics.get_or_create_for_send("T", "TBW102", 4) == TopicConfig("T", 4, 4)
    assert reported == [None] * 4


def test_no_topic_is_created_whose_name_would_be_too_long() -> None:
    topics = registry()
    reported = changes_of(topics)
    assert topics.retry_topic(GroupConfig("g" * 121)) is None
    assert topics.dead_letter_topic("g" * 124) is None
    assert reported == []


def test_creating_what_exists_changes_nothing() -> None:
    topics = registry()
    assert topics.get_or_create(TopicConfig("T", 2, 2)) == TopicConfig("T", 2, 2)
    version = topics.version
    assert topics.get_or_create(TopicConfig("T", 5, 5)) == TopicConfig("T", 2, 2)
    assert (topics.topics["T"].read_queues, topics.version) == (2, version)


def test_an_admins_changes_are_reported_with_what_is_to_follow() -> None:
    topics = registry()
    reported = changes_of(topics)

    def then(error: OSError | None) -> None: ...

    topics.update(TopicConfig("T"), then)
    topics.delete("T", then)
    topics.delete("T", then)
    assert reported == [then] * 3


def test_the_words_of_name_servers_and_master_are_reported_only_when_they_change_something() -> (
    None
):
    topics = registry()
    reported = changes_of(topics)
    for _ in range(2):
        topics.copy_master(TopicTable({"T": TopicConfig("T")}, DataVersion(1, 1)))
    assert reported == [None]
    for _ in range(2):
        topics.set_ordered({"T"})
    assert reported == [None] * 2


def test_an_update_leaves_alone_whether_a_topic_is_ordered() -> None:
    topics = registry()
    topics.update(TopicConfig("T", 2, 2))
    topics.set_ordered({"T", "unknown"})
    topics.update(TopicConfig("T", 4, 4))
    assert topics.topics["T"] == TopicConfig("T", 4, 4, order=True)
    topics.set_ordered(())
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
    topics.restore(saved)
    assert topics.topics["SELF_TEST_TOPIC"].read_queues == 3
    assert topics.version == DataVersion(NOW, 10), (
        "this start brought topics that the file does not have"
    )
    again = registry(now_ms=NOW + 1)
    again.restore(topics.to_table())
    assert again.version == topics.version


def test_a_slave_takes_the_masters_table_when_its_version_differs() -> None:
    topics, view = registry(), registry().topics
    topics_view = topics.topics
    master = TopicTable({"T": TopicConfig("T", 2, 2)}, DataVersion(7, 3))
    topics.copy_master(master)
    assert dict(topics.topics) == {"T": TopicConfig("T", 2, 2)}
    assert topics.topics is topics_view is not view
    assert topics.version == master.version
    topics.copy_master(TopicTable({}, master.version))
    assert dict(topics.topics) == {"T": TopicConfig("T", 2, 2)}


def test_deleting_an_unknown_topic_does_not_increment_the_version() -> None:
    topics = registry()
    topics.update(TopicConfig("T"))
    version = topics.version
    for _ in range(2):
        topics.delete("T")
        assert topics.version == version.next(NOW)


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
                topics.update(TopicConfig(name, len(before.topics), 1))
            case "create":
                topics.get_or_create(TopicConfig(name))
            case "send":
                topics.get_or_create_for_send(name, "TBW102", 4)
            case "delete":
                topics.delete(name)
            case "order":
                topics.set_ordered({name})
        after = topics.to_table()
        assert (after.topics != before.topics) <= (after.version != version)
        if step != "update":
            assert (after.topics != before.topics) == (after.version != version)


@given(st.lists(steps))
def test_a_table_survives_its_file(made: list[tuple[str, str]]) -> None:
    topics = registry()
    for number, (_, name) in enumerate(made):
        topics.update(TopicConfig(name, number, number))
    again = registry()
    again.restore(parse(dump_indented(topics.to_table().to_json()), TopicTable.from_json))
    assert again.to_table() == topics.to_table()
