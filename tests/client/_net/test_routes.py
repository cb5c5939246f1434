"""From a route to queues and addresses."""

from __future__ import annotations

from dataclasses import replace

import pytest

from roquet.client._net.routes import (
    QUEUES_MAX,
    BrokerAddress,
    master_of,
    publish_queues,
    read_addresses,
    route_of_new_topic,
    subscribe_queues,
    unusable_reason,
)
from roquet.protocol.bodies.tables import BrokerData, QueueData, Route
from roquet.protocol.records.message import MessageQueue, Permission

READ, WRITE = Permission.READ, Permission.WRITE
BOTH = READ | WRITE


def route(
    *queues: QueueData, addresses: dict[str, dict[int, str]] | None = None, order: str | None = None
) -> Route:
    known = (
        {"a": {0: "10.0.0.1:1", 1: "10.0.0.2:1"}, "b": {0: "10.0.0.3:1"}}
        if addresses is None
        else addresses
    )
    return Route(tuple(BrokerData("C", name, ids) for name, ids in known.items()), queues, order)


def names(queues: tuple[MessageQueue, ...]) -> list[str]:
    return [f"{queue.broker_name}{queue.queue_id}" for queue in queues]


def test_messages_go_to_writable_queues_in_order_of_broker_name() -> None:
    found = publish_queues("T", route(QueueData("b", 9, 2, BOTH), QueueData("a", 9, 2, BOTH)))
    assert names(found) == ["a0", "a1", "b0", "b1"]


def test_messages_never_go_to_a_broker_without_master() -> None:
    found = publish_queues(
        "T", route(QueueData("a", 2, 2, BOTH), addresses={"a": {1: "10.0.0.2:1"}})
    )
    assert found == ()


def test_messages_never_go_to_queues_without_write_permission_or_broker() -> None:
    assert (
        publish_queues("T", route(QueueData("a", 2, 2, READ), QueueData("gone", 2, 2, BOTH))) == ()
    )


def test_an_ordered_topic_keeps_its_queues_while_a_broker_is_away() -> None:
    found = publish_queues("T", route(QueueData("a", 1, 1, BOTH), addresses={}, order="b:1;a:2"))
    assert names(found) == ["b0", "a0", "a1"]


def test_messages_are_read_where_only_a_slave_is_left() -> None:
    found = subscribe_queues(
        "T", route(QueueData("a", 2, 9, BOTH), addresses={"a": {1: "10.0.0.2:1"}})
    )
    assert names(found) == ["a0", "a1"]


def test_queues_without_read_permission_are_not_read() -> None:
    assert names(
        subscribe_queues("T", route(QueueData("b", 1, 1, WRITE), QueueData("a", 1, 1, READ)))
    ) == ["a0"]


@pytest.mark.parametrize(
    ("most", "expected"), [(4, ["a0", "a1", "a2", "a3", "b0", "b1"]), (1, ["a0", "b0"])]
)
def test_a_new_topic_gets_as_many_queues_as_are_asked_for_and_the_template_has(
    most: int, expected: list[str]
) -> None:
    template = route(QueueData("a", 8, 8, 7), QueueData("b", 2, 8, 7))
    assert names(publish_queues("new", route_of_new_topic(template, most))) == expected


def test_reading_prefers_the_wanted_broker_then_the_rest_by_id() -> None:
    three = route(addresses={"a": {0: "m:1", 1: "s:1", 2: "t:1"}})
    assert [at.broker_id for at in read_addresses(three, "a")] == [0, 1, 2]
    assert [at.broker_id for at in read_addresses(three, "a", wanted_id=1)] == [1, 2, 0]
    assert [at.broker_id for at in read_addresses(three, "a", wanted_id=2)] == [2, 0, 1]


def test_a_wanted_slave_that_is_gone_is_replaced_by_the_next() -> None:
    assert read_addresses(route(addresses={"a": {0: "m:1", 2: "t:1"}}), "a", wanted_id=1) == [
        BrokerAddress(2, "t:1"),
        BrokerAddress(0, "m:1"),
    ]


def test_a_broker_the_route_does_not_have_has_no_address() -> None:
    assert read_addresses(route(), "gone") == []
    assert master_of(route(), "gone") is None


def test_the_master_is_the_one_with_id_0() -> None:
    assert master_of(route(), "a") == BrokerAddress(0, "10.0.0.1:1")
    assert master_of(replace(route(addresses={"a": {1: "s:1"}})), "a") is None


def test_a_route_of_more_queues_than_can_be_listed_is_impossible() -> None:
    """Who registers 2^31 queues at a name server would take the memory of all clients of that
    topic.
    """
    many = QueueData("a", 2**31 - 1, 4, BOTH)
    assert "2147483647 queues" in unusable_reason(route(many))
    assert unusable_reason(route(*[QueueData("a", 4, QUEUES_MAX // 2, BOTH)] * 3))
    assert unusable_reason(route(order="a:4;b:" + "9" * 5000))
    assert not unusable_reason(
        route(QueueData("a", -(2**31), 4096, BOTH), QueueData("b", 4, 4, BOTH), order="a:4;b:x")
    )
