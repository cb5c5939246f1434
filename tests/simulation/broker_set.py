"""The brokers of one name in a simulated cluster, and which of them is the master."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import TYPE_CHECKING

from roquet.client.send_result import SendResult
from tests.simulation.clients import TOPIC
from tests.simulation.nodes import QUEUES, BrokerNode

if TYPE_CHECKING:
    from tests.simulation.hosts import ClusterHosts


class BrokerSet:
    """A master and its slaves.

    Invariant: `former` are those that were passed over as master and have not rejoined: their logs may
    hold what the present master's does not.

    :param nodes: the master first.
    """

    def __init__(self, cluster: ClusterHosts, nodes: Sequence[BrokerNode]) -> None:
        self.cluster = cluster
        self.brokers = {node.name: node for node in nodes}
        self.former: set[str] = set()
        self._were_masters = {nodes[0].name}
        self._deleted_to: defaultdict[str, int] = defaultdict(int)
        self._master = nodes[0].name
        self._queue_ends: dict[str, list[int]] = {}
        self._passed: list[tuple[int, range]] = []

    @property
    def name(self) -> str:
        """The broker name that its brokers share."""
        return self.master.config.broker_name

    @property
    def master(self) -> BrokerNode:
        """The one that was promoted last."""
        return self.brokers[self._master]

    @property
    def slaves(self) -> list[BrokerNode]:
        """Who follows the master, or is going to."""
        return [
            node
            for name, node in self.brokers.items()
            if name != self._master and name not in self.former
        ]

    @property
    def acknowledged(self) -> dict[str, SendResult]:
        """By key, the messages that its master answered with SEND_OK."""
        return self.cluster.producer.acknowledged_by[self.name]

    def look_at_roles(self) -> None:
        """A slave that has become a master is the master from now on."""
        for node in self.slaves:
            if node.broker is not None and node.is_slave:
                store = node.broker.store
                self._queue_ends[node.name] = [
                    store.max_offset(TOPIC, number) for number in range(QUEUES)
                ]
            elif not node.is_slave:
                self.former.add(self._master)
                self._master = node.name
                self._were_masters.add(node.name)
                self.cluster.sim.note("master", node.name)
                self._note_what_only_the_former_master_had()

    def _note_what_only_the_former_master_had(self) -> None:
        for queue_id, end in enumerate(self._queue_ends[self._master]):
            ahead = max(
                consumer.went_to[self.name, queue_id]
                for consumer in self.cluster.consumers.values()
            )
            self._passed.append((queue_id, range(end, ahead)))

    def note_deleted(self, name: str, start: int) -> None:
        """The files before that physical offset have gone from a broker's log, as they may."""
        self._deleted_to[name] = max(start, self._deleted_to[name])

    @property
    def deleted_to(self) -> int:
        """Up to which physical offset some broker's log was deleted."""
        return max(self._deleted_to.values(), default=0)

    @property
    def masters_deleted_to(self) -> int:
        """The same of those that were the master."""
        return max(self._deleted_to[name] for name in self._were_masters)

    def may_be_passed(self, queue_id: int, offset: int) -> bool:
        """Whether a consumer may have passed a message's place before there was that message.

        It got another one there, from a master that had not acknowledged it and was the only one to
        have it. Nobody tells a consumer that lives on that the new master has other messages in
        those places.
        """
        return any(queue_id == of_queue and offset in places for of_queue, places in self._passed)
