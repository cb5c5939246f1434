"""The one look at a cluster after every event, on which all its checks depend."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.simulation.cluster import Cluster


class Watch:
    """Invariant: the checks have seen the cluster as it is, but for what is not in a broker's log,
    queues or progress, nor known to the producer. (Most events change nothing of that, so this look
    is nearly all that checks cost.)
    """

    def __init__(self, cluster: Cluster, checks: Sequence[Callable[[], None]]) -> None:
        self._cluster = cluster
        self._nodes = list(cluster.brokers.values())
        self._acknowledged = cluster.producer.acknowledged
        self._checks = checks
        self._seen: list[object] = []

    def look(self) -> None:
        seen: list[object] = [len(self._acknowledged)]
        for node in self._nodes:
            broker = node.broker
            if broker is not None:
                store = broker.store
                seen += broker, node.life, store.log.start, store.log.end, store.dispatch.position
                seen.append(broker.parts.tables.offsets.changes)
        if seen != self._seen:
            self._seen = seen
            self._cluster.look_at_roles()
            for check in self._checks:
                check()
