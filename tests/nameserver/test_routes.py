"""Which brokers live, and who has a topic's queues."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from roquet.common.steps import PART, Steps, finished
from roquet.nameserver import routes as limited
from roquet.nameserver.routes import SILENCE_MS_MAX, Registered, RegisteredBroker, Routes
from roquet.protocol.bodies.tables import (
    BrokerData,
    DataVersion,
    QueueData,
    TopicConfig,
    TopicTable,
)

MASTER = RegisteredBroker("c", "a", 0, "10.0.0.1:10911", "10.0.0.1:10912")
SLAVE = RegisteredBroker("c", "a", 1, "10.0.0.2:10911", "10.0.0.2:10912")
OTHER = RegisteredBroker("c", "b", 0, "10.0.0.3:10911", "10.0.0.3:10912")
NOW = 1_700_000_000_000


def topics(*configs: TopicConfig, counter: int = 1) -> TopicTable:
    return TopicTable({config.name: config for config in configs}, DataVersion(NOW, counter))


T = topics(TopicConfig("T", 4, 4))
NOTHING = topics()


def registered(
    routes: Routes, broker: RegisteredBroker, table: TopicTable, connection: object, now_ms: float
) -> Registered:
    return finished(routes.register(broker, table, connection, now_ms))


def test_a_registered_masters_topics_can_be_found() -> None:
    routes = Routes()

    registered(routes, MASTER, T, "connection", NOW)

    route = routes.route("T")
    assert route is not None
    assert route.brokers == (BrokerData("c", "a", {0: MASTER.address}),)
    assert route.queues == (QueueData("a", 4, 4, 6),)


def test_a_master_that_takes_its_place_back_brings_its_topics() -> None:
    """Whoever had the place meanwhile may have said anything of them, and theirs are of a version
    known already.
    """
    routes = Routes()
    registered(routes, MASTER, T, 1, NOW)
    registered(
        routes,
        replace(MASTER, address="10.0.0.9:1"),
        topics(TopicConfig("T", 1, 1, perm=4)),
        2,
        NOW,
    )
    assert routes.version_of(MASTER.address) is None, (
        "one that asks first whether it has to register has to"
    )

    registered(routes, MASTER, T, 1, NOW)

    assert routes.version_of(MASTER.address) == T.version

    route = routes.route("T")
    assert route is not None
    assert route.brokers == (BrokerData("c", "a", {0: MASTER.address}),)
    assert route.queues == (QueueData("a", 4, 4, 6),)


def test_a_topic_that_no_broker_has_has_no_route() -> None:
    routes = Routes()
    registered(routes, MASTER, T, "connection", NOW)

    assert routes.route("rmq_sys_SYNC_BROKER_MEMBER_a") is None


def test_a_route_names_the_brokers_that_have_the_topic_and_all_their_addresses() -> None:
    routes = Routes()
    registered(routes, MASTER, T, 1, NOW)
    registered(routes, SLAVE, T, 2, NOW)
    registered(routes, OTHER, NOTHING, 3, NOW)

    route = routes.route("T")

    assert route is not None
    assert route.brokers == (BrokerData("c", "a", {0: MASTER.address, 1: SLAVE.address}),)


def test_a_slave_learns_where_its_master_is() -> None:
    routes = Routes()
    assert registered(routes, SLAVE, NOTHING, 2, NOW).master is None

    registered(routes, MASTER, T, 1, NOW)

    assert registered(routes, SLAVE, NOTHING, 2, NOW).master == MASTER
    assert registered(routes, MASTER, T, 1, NOW).master is None


def test_a_slave_brings_no_topics() -> None:
    routes = Routes()

    registered(routes, SLAVE, T, 2, NOW)

    assert routes.route("T") is None


def test_topics_are_taken_again_only_with_another_version() -> None:
    routes = Routes()
    registered(routes, MASTER, T, 1, NOW)

    registered(routes, MASTER, topics(TopicConfig("T", 8, 8)), 1, NOW)
    unchanged = routes.route("T")
    registered(routes, MASTER, topics(TopicConfig("T", 8, 8), counter=2), 1, NOW)
    changed = routes.route("T")

    assert unchanged is not None
    assert unchanged.queues[0].read_queues == 4
    assert changed is not None
    assert changed.queues[0].read_queues == 8


def test_a_registration_removes_no_topic() -> None:
    routes = Routes()
    registered(routes, MASTER, T, 1, NOW)

    registered(routes, MASTER, topics(TopicConfig("U"), counter=2), 1, NOW)

    assert routes.topics() == ["T", "U"]


def test_a_slave_that_becomes_master_has_one_id_and_brings_its_topics() -> None:
    routes = Routes()
    registered(routes, SLAVE, T, 2, NOW)

    registered(routes, RegisteredBroker("c", "a", 0, SLAVE.address), T, 2, NOW)

    route = routes.route("T")
    assert route is not None
    assert route.brokers[0].addresses == {0: SLAVE.address}


def test_a_live_broker_that_loses_its_id_to_another_address_is_named() -> None:
    routes = Routes()
    rival = RegisteredBroker("c", "a", 0, "10.0.0.9:10911")
    assert registered(routes, MASTER, T, 1, NOW).replaced is None
    assert registered(routes, MASTER, T, 1, NOW).replaced is None

    assert registered(routes, rival, T, 9, NOW).replaced == MASTER.address
    assert routes.clusters().brokers["a"].addresses == {0: rival.address}


def test_the_loser_of_an_id_takes_nothing_along_when_it_goes() -> None:
    routes = Routes()
    rival = RegisteredBroker("c", "a", 0, "10.0.0.9:10911")
    registered(routes, MASTER, T, 1, NOW)
    registered(routes, rival, T, 9, NOW)

    routes.unregister(MASTER)
    routes.connection_ended(1)

    route = routes.route("T")
    assert route is not None
    assert route.brokers[0].addresses == {0: rival.address}


def test_an_unregistered_broker_is_gone_with_its_topics() -> None:
    routes = Routes()
    registered(routes, MASTER, T, 1, NOW)
    registered(routes, OTHER, topics(TopicConfig("T"), TopicConfig("U")), 3, NOW)

    routes.unregister(OTHER)

    finished(routes.sweep())
    assert routes.topics() == ["T"]
    assert list(routes.clusters().brokers) == ["a"]
    assert routes.clusters().clusters == {"c": ("a",)}


def test_while_a_slave_lives_the_topics_of_its_master_stay() -> None:
    routes = Routes()
    registered(routes, MASTER, T, 1, NOW)
    registered(routes, SLAVE, NOTHING, 2, NOW)

    routes.unregister(MASTER)

    route = routes.route("T")
    assert route is not None
    assert route.brokers[0].addresses == {1: SLAVE.address}


def test_a_connections_end_removes_the_brokers_that_registered_over_it() -> None:
    routes = Routes()
    registered(routes, MASTER, T, "shared", NOW)
    registered(routes, OTHER, T, "shared", NOW)
    registered(routes, SLAVE, T, "own", NOW)

    assert routes.connection_ended("shared") == [MASTER, OTHER]
    assert routes.clusters().brokers == {"a": BrokerData("c", "a", {1: SLAVE.address})}


def test_the_end_of_a_connection_that_was_replaced_removes_nothing() -> None:
    routes = Routes()
    registered(routes, MASTER, T, "old", NOW)
    registered(routes, MASTER, T, "new", NOW)

    assert routes.connection_ended("old") == []
    assert routes.route("T") is not None


def test_a_broker_is_kept_for_the_whole_silence_and_then_gone() -> None:
    routes = Routes()
    registered(routes, MASTER, T, "connection", NOW)

    assert routes.expire(NOW + SILENCE_MS_MAX) == []
    assert routes.expire(NOW + SILENCE_MS_MAX + 1) == [(MASTER, "connection")]
    finished(routes.sweep())
    assert routes.topics() == []
    assert routes.version_of(MASTER.address) is None


def test_a_broker_that_is_heard_of_does_not_expire() -> None:
    routes = Routes()
    registered(routes, MASTER, T, "connection", NOW)

    routes.heard(MASTER.address, NOW + SILENCE_MS_MAX)
    routes.heard("10.9.9.9:1", NOW)

    assert routes.expire(NOW + 2 * SILENCE_MS_MAX) == []


def test_a_process_that_changed_its_name_leaves_nothing_behind_when_it_goes() -> None:
    routes = Routes()
    registered(routes, MASTER, T, 1, NOW)
    registered(routes, RegisteredBroker("c", "renamed", 0, MASTER.address), T, 1, NOW)

    routes.connection_ended(1)

    assert routes.clusters().brokers == {}
    finished(routes.sweep())
    assert routes.topics() == []


def test_wiping_the_write_permission_leaves_the_others() -> None:
    routes = Routes()
    registered(routes, MASTER, topics(TopicConfig("T", perm=7), TopicConfig("U", perm=6)), 1, NOW)
    registered(routes, OTHER, T, 3, NOW)

    assert finished(routes.wipe_write_permission("a")) == 2
    assert permissions(routes, "T") == {"a": 5, "b": 6}
    assert permissions(routes, "U") == {"a": 4}
    assert finished(routes.wipe_write_permission("nobody")) == 0


def test_adding_the_write_permission_sets_read_and_write() -> None:
    routes = Routes()
    registered(routes, MASTER, topics(TopicConfig("T", perm=4)), 1, NOW)

    assert finished(routes.add_write_permission("a")) == 1
    assert permissions(routes, "T") == {"a": 6}


def permissions(routes: Routes, topic: str) -> dict[str, int]:
    route = routes.route(topic)
    assert route is not None
    return {queue.broker_name: queue.perm for queue in route.queues}


def test_a_deleted_topic_is_gone_everywhere_or_in_one_cluster() -> None:
    routes = Routes()
    registered(routes, MASTER, topics(TopicConfig("T"), TopicConfig("U")), 1, NOW)
    registered(
        routes,
        RegisteredBroker("d", "b", 0, OTHER.address),
        topics(TopicConfig("T"), TopicConfig("U")),
        3,
        NOW,
    )

    routes.delete_topic("T", "d")
    routes.delete_topic("U")
    routes.delete_topic("V", "nowhere")

    assert permissions(routes, "T") == {"a": 6}
    assert routes.topics() == ["T"]


def test_topics_are_listed_by_cluster_and_by_flag() -> None:
    routes = Routes()
    assert routes.any_address() is None
    registered(routes, MASTER, topics(TopicConfig("T"), TopicConfig("U", sys_flag=1)), 1, NOW)
    registered(
        routes,
        RegisteredBroker("d", "b", 0, OTHER.address),
        topics(TopicConfig("V", sys_flag=2)),
        3,
        NOW,
    )

    assert finished(routes.topics_of("c")) == ["T", "U"]
    assert finished(routes.topics_of("d")) == ["V"]
    assert finished(routes.topics_of("nowhere")) == []
    assert finished(routes.topics_where(lambda flag: flag == 2)) == ["V"]
    assert routes.any_address() == MASTER.address


def test_brokers_and_their_topics_are_bounded_and_known_ones_go_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A client may register any number over one connection, also under one address."""
    monkeypatch.setattr(limited, "BROKERS_MAX", 2)
    monkeypatch.setattr(limited, "QUEUE_DATA_MAX", 2)
    routes, two = Routes(), topics(TopicConfig("T"), TopicConfig("U"))
    for broker, table in (MASTER, T), (SLAVE, T), (OTHER, T):
        assert not finished(routes.why_full(broker, table)) or broker is OTHER
        registered(routes, broker, table, "connection", NOW)
    assert "2 brokers live already" in finished(
        routes.why_full(replace(MASTER, name="new"), NOTHING)
    )
    assert "2 brokers live already" in finished(
        routes.why_full(replace(MASTER, address="10.0.0.4:1"), NOTHING)
    )
    assert "3 topics of all brokers" in finished(routes.why_full(OTHER, two))
    assert not finished(routes.why_full(OTHER, T))
    routes.connection_ended("connection")
    assert not finished(routes.why_full(replace(MASTER, name="new"), two)), (
        "what is gone makes room"
    )
    assert (
        routes.count,
        routes.topics(),
        finished(routes.why_full(replace(MASTER, name="new"), two)),
    ) == (0, [], "")


MANY = topics(*(TopicConfig(f"T{at}", 4, 4) for at in range(10 * PART)))


def begun(
    routes: Routes, broker: RegisteredBroker = MASTER, table: TopicTable = MANY
) -> Steps[Registered]:
    """A registration of which some topics are taken."""
    work = routes.register(broker, table, "connection", NOW)
    for _ in range(5):
        next(work)
    assert 0 < len(routes.topics()) < 10 * PART
    return work


def test_a_version_is_known_once_all_its_topics_are_taken() -> None:
    routes = Routes()
    work = begun(routes)
    assert routes.version_of(MASTER.address) is None
    finished(work)
    assert routes.version_of(MASTER.address) == MANY.version
    assert len(routes.topics()) == 10 * PART


def test_nothing_more_is_taken_of_a_broker_that_is_gone() -> None:
    routes = Routes()
    work = begun(routes)
    routes.connection_ended("connection")
    finished(work)
    finished(routes.sweep())
    assert (routes.topics(), routes.count, routes.clusters().brokers) == ([], 0, {})


def test_of_two_registrations_the_later_one_counts() -> None:
    routes = Routes()
    earlier = begun(routes)
    later = topics(TopicConfig("T0", 1, 1), counter=2)
    registered(routes, MASTER, later, "connection", NOW)
    finished(earlier)
    assert routes.version_of(MASTER.address) == later.version
    route = routes.route("T0")
    assert route is not None
    assert route.queues[0].read_queues == 1


def test_topics_of_a_broker_that_is_gone_are_nowhere_before_they_are_swept() -> None:
    routes = Routes()
    registered(routes, MASTER, T, 1, NOW)
    registered(routes, OTHER, T, 2, NOW)
    routes.connection_ended(1)
    route = routes.route("T")
    assert route is not None
    assert [queue.broker_name for queue in route.queues] == ["b"]


def test_a_broker_that_comes_again_while_it_is_swept_keeps_its_topics() -> None:
    routes = Routes()
    registered(routes, MASTER, MANY, 1, NOW)
    routes.connection_ended(1)
    sweeping = routes.sweep()
    next(sweeping)
    registered(routes, MASTER, T, 1, NOW)
    finished(sweeping)
    assert routes.topics() == ["T"]
    assert routes.is_swept


def test_topics_that_are_being_taken_count(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limited, "QUEUE_DATA_MAX", 11 * PART)
    routes = Routes()
    work = begun(routes)
    assert "topics of all brokers" in finished(routes.why_full(OTHER, MANY))
    work.close()
    routes.connection_ended("connection")
    assert not finished(routes.why_full(OTHER, MANY)), "one that was given up does not"


class AnyLife(RuleBasedStateMachine):
    """Brokers that come and go in any order never leave the tables at odds with each other."""

    names = st.sampled_from(["a", "b"])
    numbers = st.integers(0, 2)
    addresses = st.sampled_from(["x:1", "y:1", "z:1"])
    connections = st.integers(0, 2)

    def __init__(self) -> None:
        super().__init__()
        self.routes = Routes()
        self.now_ms = 0

    @rule(
        name=names,
        number=numbers,
        address=addresses,
        connection=connections,
        counter=st.integers(0, 2),
    )
    def register(self, name: str, number: int, address: str, connection: int, counter: int) -> None:
        broker = RegisteredBroker("c", name, number, address)
        registered(
            self.routes,
            broker,
            topics(TopicConfig(f"T{counter}"), counter=counter),
            connection,
            self.now_ms,
        )
        assert self.routes.clusters().brokers[name].addresses[number] == address

    @rule(name=names, number=numbers, address=addresses)
    def unregister(self, name: str, number: int, address: str) -> None:
        self.routes.unregister(RegisteredBroker("c", name, number, address))
        assert self.routes.version_of(address) is None

    @rule(connection=connections)
    def end(self, connection: int) -> None:
        self.routes.connection_ended(connection)

    @rule(passed_ms=st.sampled_from([1000, SILENCE_MS_MAX]))
    def wait(self, passed_ms: int) -> None:
        self.now_ms += passed_ms
        self.routes.expire(self.now_ms)

    @rule()
    def sweep(self) -> None:
        finished(self.routes.sweep())
        assert all(self.routes.route(topic) is not None for topic in self.routes.topics())

    @rule(name=names, topic=st.sampled_from(["T0", "T1"]))
    def change(self, name: str, topic: str) -> None:
        finished(self.routes.wipe_write_permission(name))
        self.routes.delete_topic(topic)

    @invariant()
    def every_address_in_a_route_lives(self) -> None:
        for topic in self.routes.topics():
            route = self.routes.route(topic)
            if route is None:
                assert not self.routes.is_swept
                continue
            for broker in route.brokers:
                assert broker.addresses
                assert set(broker.addresses.values()) <= self.routes._live.keys()
                assert len(set(broker.addresses.values())) == len(broker.addresses)


AnyLife.TestCase.settings = settings(max_examples=50, stateful_step_count=25)
TestAnyLife = AnyLife.TestCase
