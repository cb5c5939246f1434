"""PURE: the queues of a route, and the addresses of their brokers.

See docs/protocol/producing.md#queues-to-send-to.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

from roquet.protocol.bodies.tables import MASTER_ID, BrokerData, Route
from roquet.protocol.records.message import DEFAULT_TOPIC, MessageQueue, Permission

_DIGITS_MAX: Final = 20
"""Digits that are read of a number of queues. Python refuses to parse numbers of some thousand
digits, and any number with more than 20 exceeds `QUEUES_MAX` anyway."""

QUEUES_MAX: Final = 1_000_000
"""Maximum number of queues of a topic; to list that many takes half a second. A broker has some
thousand queues at most, but any number can be registered at a name server, which would pass it on
to all clients."""


class NewTopics(NamedTuple):
    """How a broker creates the topics that do not exist when a producer sends to them.

    :param template: the topic whose settings they get.
    :param queues: maximum number of queues at each broker; the template may have fewer.
    :param are_of_unit: whether they are marked as those of a unit.
    """

    template: str = DEFAULT_TOPIC
    queues: int = 4
    are_of_unit: bool = False


NEW_TOPICS: Final = NewTopics()
"""As Apache's clients have them unless they are told otherwise."""


@dataclass(frozen=True, slots=True, order=True)
class BrokerAddress:
    """One broker process: its id, 0 for the master, and `host:port`."""

    broker_id: int
    address: str

    @property
    def is_master(self) -> bool:
        return self.broker_id == MASTER_ID


def unusable_reason(route: Route) -> str:
    """Why a route cannot be used; empty if it can."""
    ordered = sum(count for _, count in _ordered_counts(route.order_conf or ""))
    count = max(ordered, sum(max(0, data.read_queues, data.write_queues) for data in route.queues))
    return f"{count} queues, possible are {QUEUES_MAX}" if count > QUEUES_MAX else ""


def publish_queues(topic: str, route: Route) -> tuple[MessageQueue, ...]:
    """The queues of a topic that messages may be sent to, in a stable order.

    A topic with an order configuration has exactly the queues that it names, whether their brokers
    are up or not. Any other topic has the writable queues whose master is registered; messages are
    never sent to a slave (docs/pitfalls.md#trap-52).
    """
    if route.order_conf:
        return tuple(
            MessageQueue(topic, broker_name, queue_id)
            for broker_name, count in _ordered_counts(route.order_conf)
            for queue_id in range(count)
        )
    with_master = {
        name for name, broker in _by_name(route).items() if MASTER_ID in broker.addresses
    }
    return tuple(
        MessageQueue(topic, data.broker_name, queue_id)
        for data in sorted(route.queues, key=lambda data: data.broker_name)
        if data.perm & Permission.WRITE and data.broker_name in with_master
        for queue_id in range(data.write_queues)
    )


def _ordered_counts(order_conf: str) -> Iterator[tuple[str, int]]:
    for part in order_conf.split(";"):
        broker_name, _, count = part.strip().rpartition(":")
        if broker_name and count.isdecimal():
            yield broker_name, int(count[:_DIGITS_MAX])


def _by_name(route: Route) -> dict[str, BrokerData]:
    return {broker.broker_name: broker for broker in route.brokers}


def subscribe_queues(topic: str, route: Route) -> tuple[MessageQueue, ...]:
    """The readable queues of a topic, sorted. Their broker needs no master; a slave is enough."""
    return tuple(
        sorted(
            MessageQueue(topic, data.broker_name, queue_id)
            for data in route.queues
            if data.perm & Permission.READ
            for queue_id in range(data.read_queues)
        )
    )


def route_of_new_topic(template: Route, queues: int) -> Route:
    """The route that a topic will have once a broker has created it from a template.

    :param template: the template's route.
    :param queues: maximum number of queues at each broker.
    """
    of_brokers = (
        replace(data, read_queues=count, write_queues=count)
        for data in template.queues
        for count in (min(queues, data.read_queues),)
    )
    return replace(template, queues=tuple(of_brokers))


def master_of(route: Route, broker_name: str) -> BrokerAddress | None:
    """The address of a broker's master, or None if the route has none."""
    broker = _by_name(route).get(broker_name)
    if broker is None or MASTER_ID not in broker.addresses:
        return None
    return BrokerAddress(MASTER_ID, broker.addresses[MASTER_ID])


def read_addresses(
    route: Route, broker_name: str, wanted_id: int = MASTER_ID
) -> list[BrokerAddress]:
    """The addresses at which a broker's queues can be read, best first.

    :param wanted_id: the broker id that comes first; after a slave's id comes the next higher id.
    """
    broker = _by_name(route).get(broker_name)
    if broker is None:
        return []
    preference = {wanted_id: 0, wanted_id + 1: 1 if wanted_id != MASTER_ID else 2}
    return sorted(
        all_addresses(broker), key=lambda at: (preference.get(at.broker_id, 2), at.broker_id)
    )


def masters_only(route: Route, broker_name: str) -> list[BrokerAddress]:
    """The address of a broker's master; empty if the route has none."""
    master = master_of(route, broker_name)
    return [] if master is None else [master]


def all_addresses(broker: BrokerData) -> list[BrokerAddress]:
    """The addresses of a broker's master and slaves."""
    return [BrokerAddress(broker_id, address) for broker_id, address in broker.addresses.items()]
