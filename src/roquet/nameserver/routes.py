"""PURE: the table of live brokers and of the queues that each has of each topic.

Times (`now_ms`) and connections are arguments; a connection is any hashable value.

See docs/protocol/name-server.md and docs/pitfalls.md#name-servers.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Set
from dataclasses import dataclass, replace
from typing import Final

from roquet.common.steps import Steps, in_parts
from roquet.protocol.bodies.tables import (
    MASTER_ID,
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
"""A broker that was silent for longer is removed (ms)."""
_TOPICS_AT_ONCE: Final = 256
"""Topics per step."""
BROKERS_MAX: Final = 10_000
"""Live brokers allowed; all are scanned whenever a connection ends."""
QUEUE_DATA_MAX: Final = 2_000_000
"""Topics allowed, counted once per broker name: 50,000 topics of 40 masters take some 600 MB.

The limit is needed since a registration of only 260 KB can bring 200,000 topics.
"""


@dataclass(frozen=True, slots=True)
class RegisteredBroker:
    """One broker process, as it registers.

    A master and its slaves share `cluster` and `name`; the master has id 0.
    """

    cluster: str
    name: str
    broker_id: int
    address: str
    ha_address: str = ""


@dataclass(frozen=True, slots=True)
class Registered:
    """The result of a registration.

    `master`: the live master of a slave. `replaced`: a live address that had the same broker name
    and id before.
    """

    is_new: bool
    master: RegisteredBroker | None = None
    replaced: str | None = None


@dataclass(slots=True)
class _Live:
    """The last registration of a live broker."""

    broker: RegisteredBroker
    version: DataVersion | None
    connection: Hashable
    heard_ms: float


class Routes:
    """Live brokers and routes.

    Only masters register topics. A later registration replaces a topic's queues, but removes no
    topic (docs/pitfalls.md#trap-18). `count` is the number of topics, summed over broker names.

    Invariant: an address has one id under a broker name. Each broker name has an address. A topic
    has queues, and only on broker names that exist or are in `_leaving`.
    """

    def __init__(self) -> None:
        self._live: dict[str, _Live] = {}
        self._brokers: dict[str, BrokerData] = {}
        self._topics: dict[str, dict[str, QueueData]] = {}
        self._leaving: set[str] = set()
        """Broker names that are removed, but whose queues `sweep` has still to remove."""
        self._coming = 0
        """Topics of registrations that are being stored."""
        self.count = 0

    # registrations

    def register(
        self, broker: RegisteredBroker, table: TopicTable, connection: Hashable, now_ms: float
    ) -> Steps[Registered]:
        """Register a broker, and its topics if it is a master.

        The topics are stored in steps. Their version is known only after the last step, so that a
        broker that queries it before registers again. If the broker is removed or registers again
        meanwhile, the rest is not stored.

        :param connection: the connection of the registration; when it ends, the broker is removed.
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
        takes_topics = broker.broker_id == MASTER_ID and (
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

    def why_full(self, broker: RegisteredBroker, table: TopicTable) -> Steps[str]:
        """Why a registration exceeds a limit; empty if it does not.

        A registration without new brokers or topics never does.
        """
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
        """The data version of the topics that the broker at `address` registered last.

        None while the topics are being stored, and after another address took over its name and id:
        that one may have registered other queues.
        """
        live = self._live.get(address)
        if live is None or self._addresses(live.broker.name).get(live.broker.broker_id) != address:
            return None
        return live.version

    def heard(self, address: str, now_ms: float) -> None:
        """Note that the broker at `address` lives and its topics are unchanged."""
        live = self._live.get(address)
        if live is not None:
            live.heard_ms = now_ms

    def unregister(self, broker: RegisteredBroker) -> None:
        """Remove a broker. If another address took over its name and id, that one stays.

        Call `sweep` afterwards, as after `connection_ended` and `expire`.
        """
        self._live.pop(broker.address, None)
        self._remove_addresses({broker.address})

    def connection_ended(self, connection: Hashable) -> list[RegisteredBroker]:
        """Remove and return the brokers that registered over `connection`."""
        return self._remove(lambda live: live.connection == connection)

    def expire(self, now_ms: float) -> list[tuple[RegisteredBroker, Hashable]]:
        """Remove brokers that were silent for too long; return them with their connections."""
        silent = {
            live.broker: live.connection
            for live in self._live.values()
            if live.heard_ms + SILENCE_MS_MAX < now_ms
        }
        self._remove(lambda live: live.broker in silent)
        return list(silent.items())

    # queries

    def route(self, topic: str) -> Route | None:
        """The route of a topic; None if no broker has it."""
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
        """Topics with queues in a cluster."""
        names = self._names_in(cluster)
        return self._topics_with(lambda queues: not names.isdisjoint(queues))

    def topics_where(self, has: Callable[[int], bool]) -> Steps[list[str]]:
        """Topics whose sysFlag passes `has`; the sysFlag is that of their first broker."""
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
        """The address of any live broker."""
        return next(
            (address for broker in self._brokers.values() for address in broker.addresses.values()),
            None,
        )

    # changes by admin tools

    def wipe_write_permission(self, name: str) -> Steps[int]:
        """Remove the write permission of a broker name's topics; return how many topics it has."""
        return self._set_permissions(name, lambda perm: perm & ~Permission.WRITE)

    def add_write_permission(self, name: str) -> Steps[int]:
        return self._set_permissions(name, lambda _: READ_WRITE)

    def delete_topic(self, topic: str, cluster: str | None = None) -> None:
        """Remove a topic, from all brokers or from those of one cluster."""
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

    def _master_of(self, broker: RegisteredBroker) -> RegisteredBroker | None:
        if broker.broker_id == MASTER_ID:
            return None
        live = self._live.get(self._brokers[broker.name].addresses.get(MASTER_ID, ""))
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

    def _remove(self, gone: Callable[[_Live], bool]) -> list[RegisteredBroker]:
        brokers = [live.broker for live in self._live.values() if gone(live)]
        for broker in brokers:
            del self._live[broker.address]
        self._remove_addresses({broker.address for broker in brokers})
        return brokers

    def _remove_addresses(self, addresses: Set[str]) -> None:
        """Remove addresses from all broker names: a renamed broker is still under its old one."""
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
        """Remove broker names; `sweep` removes their queues later."""
        for name in names:
            del self._brokers[name]
        self._leaving |= names

    @property
    def is_swept(self) -> bool:
        """Whether no queues of removed broker names are left."""
        return not self._leaving

    def sweep(self) -> Steps[None]:
        """Remove the queues of all removed broker names, in one pass over the topics.

        Thousands of them may have registered over one connection.
        """
        while names := frozenset(self._leaving):
            for part in in_parts(list(self._topics), _TOPICS_AT_ONCE):
                # another sweep may have finished a name, and a broker may have registered it again
                going = names & self._leaving
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
