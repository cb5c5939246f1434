"""PURE: which brokers live, and which queues each of them has of a topic.

Time and connections are arguments: `now_ms`, and any hashable value that stands for the connection of a registration.

See docs/protocol/name-server.md and docs/pitfalls.md#name-servers.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Set
from dataclasses import dataclass, replace
from typing import Final

from roquet.common.steps import Steps, in_parts
from roquet.protocol.bodies.tables import (
    BrokerData,
    ClusterInfo,
    DataVersion,
    QueueData,
    Route,
    TopicConfig,
    TopicTable,
)
from roquet.protocol.records.message import READ_WRITE, Permission

SILENCE_MS_MAX: Final = 120_000
"""A broker that was not heard of for longer is gone."""
MASTER: Final = 0
_TOPICS_AT_ONCE: Final = 256
"""Topics that are looked at in one step."""
BROKERS_MAX: Final = 10_000
"""So many may live at a time; each is looked at whenever a connection ends."""
QUEUE_DATA_MAX: Final = 2_000_000
"""Topics of all masters, such as 50,000 of 40: some 600 MB. A registration of 260 KB may bring 200,000."""


@dataclass(frozen=True, slots=True)
class Broker:
    """One broker process, as it names itself. Master and slaves share `cluster` and `name`; the master's id is 0."""

    cluster: str
    name: str
    broker_id: int
    address: str
    ha_address: str = ""


@dataclass(frozen=True, slots=True)
class Registered:
    """What a registration brought to light.

    `master`: for a slave, its master if that lives. `replaced`: the live address that had the same name and id before.
    """

    is_new: bool
    master: Broker | None = None
    replaced: str | None = None


@dataclass(slots=True)
class _Live:
    """One registration; it is the broker's until there is another one."""

    broker: Broker
    version: DataVersion | None
    connection: Hashable
    heard_ms: float


class Routes:
    """Keeps: an address has one id under a broker name; a broker name has an address or is nowhere;
    a topic has queues on a broker name that exists or is in `_leaving`, or is not there.

    `count` is how many topics all broker names have together.

    Topics come from masters, are replaced by later registrations and never removed by one (docs/pitfalls.md#trap-18).
    """

    def __init__(self) -> None:
        self._live: dict[str, _Live] = {}
        self._brokers: dict[str, BrokerData] = {}
        self._topics: dict[str, dict[str, QueueData]] = {}
        self._leaving: set[str] = set()
        """Broker names that are gone, and still have queues that `sweep` takes away."""
        self._coming = 0
        """Topics of registrations that are being taken."""
        self.count = 0

    # brokers come and go

    def register(
        self, broker: Broker, table: TopicTable, connection: Hashable, now_ms: float
    ) -> Steps[Registered]:
        """A broker says that it lives, and which topics it has.

        Its topics are taken in steps, and their version is known once they all are: a broker that asks before is told
        to register. Nothing more is taken of one that is gone meanwhile, or registered anew.
        """
        if broker.name in self._leaving:
            yield from self.sweep()
        addresses = self._addresses(broker.name)
        before = addresses.get(broker.broker_id)
        kept = {
            number: address for number, address in addresses.items() if address != broker.address
        }
        cluster = (
            self._brokers[broker.name].cluster if broker.name in self._brokers else broker.cluster
        )
        self._brokers[broker.name] = BrokerData(
            cluster, broker.name, {**kept, broker.broker_id: broker.address}
        )
        version = self.version_of(broker.address)
        takes_topics = broker.broker_id == MASTER and (
            before != broker.address or version != table.version
        )
        is_new = broker.address not in self._live
        live = _Live(broker, None if takes_topics else table.version, connection, now_ms)
        self._live[broker.address] = live
        replaced = before if before != broker.address and before in self._live else None
        registered = Registered(is_new, self._master_of(broker), replaced)
        if takes_topics:
            self._coming += len(table.topics)
            try:
                yield from self._take_topics(live, table)
            finally:
                self._coming -= len(table.topics)
        return registered

    def why_full(self, broker: Broker, table: TopicTable) -> Steps[str]:
        """Why a registration cannot be kept; empty where it can, as each can that brings nothing new."""
        is_known = broker.address in self._live and broker.name in self._brokers
        if not is_known and max(len(self._live), len(self._brokers)) >= BROKERS_MAX:
            return f"{BROKERS_MAX} brokers live already, {broker.address} is one too many"
        if self.count + self._coming + len(table.topics) > QUEUE_DATA_MAX:
            yield from self.sweep()
        count = self.count + self._coming + len(table.topics)
        if count > QUEUE_DATA_MAX:
            for part in in_parts(table.topics, _TOPICS_AT_ONCE):
                count -= sum(broker.name in self._topics.get(topic, ()) for topic in part)
                yield
        if count > QUEUE_DATA_MAX:
            return f"{count} topics of all brokers, allowed are {QUEUE_DATA_MAX}"
        return ""

    def version_of(self, address: str) -> DataVersion | None:
        """The version of the topics that the broker at `address` registered last. None while they are being taken, and
        once another address has its place: that one may have said anything of them.
        """
        live = self._live.get(address)
        if live is None or self._addresses(live.broker.name).get(live.broker.broker_id) != address:
            return None
        return live.version

    def heard(self, address: str, now_ms: float) -> None:
        """The broker at `address` lives, and nothing changed."""
        live = self._live.get(address)
        if live is not None:
            live.heard_ms = now_ms

    def unregister(self, broker: Broker) -> None:
        """A broker says that it goes; one that lost its id to another address takes nothing of the other along.

        `sweep` is due after it, as after everything by which brokers go.
        """
        self._live.pop(broker.address, None)
        self._remove_addresses({broker.address})

    def connection_ended(self, connection: Hashable) -> list[Broker]:
        """The brokers that registered over it are gone."""
        return self._remove(lambda live: live.connection == connection)

    def expire(self, now_ms: float) -> list[tuple[Broker, Hashable]]:
        """Brokers that were silent too long are gone; gives them and the connections that are of no use any more."""
        silent = {
            live.broker: live.connection
            for live in self._live.values()
            if live.heard_ms + SILENCE_MS_MAX < now_ms
        }
        self._remove(lambda live: live.broker in silent)
        return list(silent.items())

    # what clients and tools ask

    def route(self, topic: str) -> Route | None:
        """Where a topic's queues are; None where no broker has any."""
        queues = self._topics.get(topic, {})
        if not self._leaving.isdisjoint(queues):
            queues = {name: data for name, data in queues.items() if name not in self._leaving}
        if not queues:
            return None
        return Route(tuple(self._brokers[name] for name in queues), tuple(queues.values()))

    def clusters(self) -> ClusterInfo:
        clusters: dict[str, list[str]] = {}
        for broker in self._brokers.values():
            clusters.setdefault(broker.cluster, []).append(broker.broker_name)
        return ClusterInfo(
            dict(self._brokers), {cluster: tuple(names) for cluster, names in clusters.items()}
        )

    def topics(self) -> list[str]:
        return list(self._topics)

    def topics_of(self, cluster: str) -> Steps[list[str]]:
        """The topics that have queues in a cluster."""
        names = self._names_in(cluster)
        return self._topics_with(lambda queues: not names.isdisjoint(queues))

    def topics_where(self, has: Callable[[int], bool]) -> Steps[list[str]]:
        """The topics whose sysFlag, as their first broker registered it, passes a test."""
        return self._topics_with(lambda queues: has(next(iter(queues.values())).topic_sys_flag))

    def _topics_with(self, wanted: Callable[[Mapping[str, QueueData]], bool]) -> Steps[list[str]]:
        found: list[str] = []
        for part in in_parts(list(self._topics), _TOPICS_AT_ONCE):
            found += [
                topic for topic in part if (queues := self._topics.get(topic)) and wanted(queues)
            ]
            yield
        return found

    def any_address(self) -> str | None:
        """The address of some broker, one that is up."""
        return next(
            (address for broker in self._brokers.values() for address in broker.addresses.values()),
            None,
        )

    # what tools change

    def wipe_write_permission(self, name: str) -> Steps[int]:
        """No client sends to this broker name any more; gives the number of topics it has."""
        return self._set_permissions(name, lambda perm: perm & ~Permission.WRITE)

    def add_write_permission(self, name: str) -> Steps[int]:
        return self._set_permissions(name, lambda _: READ_WRITE)

    def delete_topic(self, topic: str, cluster: str | None = None) -> None:
        """Forget a topic, everywhere or in one cluster."""
        names = set(self._brokers) if cluster is None else self._names_in(cluster)
        for name in names:
            self._remove_queues(topic, name)

    # inside

    def _addresses(self, name: str) -> dict[int, str]:
        return dict(self._brokers[name].addresses) if name in self._brokers else {}

    def _names_in(self, cluster: str) -> set[str]:
        return {
            broker.broker_name for broker in self._brokers.values() if broker.cluster == cluster
        }

    def _master_of(self, broker: Broker) -> Broker | None:
        if broker.broker_id == MASTER:
            return None
        live = self._live.get(self._brokers[broker.name].addresses.get(MASTER, ""))
        return None if live is None else live.broker

    def _take_topics(self, live: _Live, table: TopicTable) -> Steps[None]:
        name = live.broker.name
        for part in in_parts(table.topics.items()):
            yield
            if self._live.get(live.broker.address) is not live or name not in self._brokers:
                return
            for topic, config in part:
                queues = self._topics.setdefault(topic, {})
                self.count += name not in queues
                queues[name] = _queues(name, config)
        live.version = table.version

    def _set_permissions(self, name: str, change: Callable[[int], int]) -> Steps[int]:
        having = 0
        for part in in_parts(list(self._topics.values()), _TOPICS_AT_ONCE):
            for queues in part:
                if name in queues:
                    having += 1
                    queues[name] = replace(queues[name], perm=change(queues[name].perm))
            yield
        return having

    def _remove(self, gone: Callable[[_Live], bool]) -> list[Broker]:
        brokers = [live.broker for live in self._live.values() if gone(live)]
        for broker in brokers:
            del self._live[broker.address]
        self._remove_addresses({broker.address for broker in brokers})
        return brokers

    def _remove_addresses(self, addresses: Set[str]) -> None:
        """Also where another name had them: a process that changed its name left them behind."""
        if not addresses:
            return
        empty: set[str] = set()
        for name, broker in self._brokers.items():
            left = {
                number: address
                for number, address in broker.addresses.items()
                if address not in addresses
            }
            if len(left) < len(broker.addresses):
                self._brokers[name] = replace(broker, addresses=left)
            if not left:
                empty.add(name)
        self._remove_names(empty)

    def _remove_names(self, names: Set[str]) -> None:
        """They are nowhere from now on; `sweep` takes their queues away."""
        for name in names:
            del self._brokers[name]
        self._leaving |= names

    @property
    def is_swept(self) -> bool:
        """Whether no queues are left of brokers that are gone."""
        return not self._leaving

    def sweep(self) -> Steps[None]:
        """Take away the queues of all broker names that are gone, in one pass: thousands may have come by one
        connection."""
        while names := frozenset(self._leaving):
            for part in in_parts(list(self._topics), _TOPICS_AT_ONCE):
                going = (
                    names & self._leaving
                )  # another sweep may be done with a name that is there again
                for topic in part:
                    for name in going & self._topics.get(topic, {}).keys():
                        self._remove_queues(topic, name)
                yield
            self._leaving -= names

    def _remove_queues(self, topic: str, name: str) -> None:
        queues = self._topics.get(topic, {})
        self.count -= queues.pop(name, None) is not None
        if not queues:
            self._topics.pop(topic, None)


def _queues(name: str, topic: TopicConfig) -> QueueData:
    return QueueData(name, topic.read_queues, topic.write_queues, topic.perm, topic.sys_flag)
