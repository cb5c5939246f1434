"""The one look at a cluster after every event, on which all its checks depend."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.simulation.cluster import Cluster
    from tests.simulation.nodes import BrokerNode


class Watch:
    """Keeps: the checks have seen the cluster as it is, but for what is not in a broker's log, queues or progress, nor
    known to the producer. (An event costs them 5 us where nothing of that has changed, and most change nothing.)
    """

    def __init__(self, cluster: Cluster, checks: Sequence[Callable[[], None]]) -> None:
        self._cluster = cluster
        self._nodes = list(cluster.brokers.values())
        self._acknowledged = cluster.producer.acknowledged
        self._checks = checks
        self._seen: list[object] = []

    def look(self) -> None:
        seen = [len(self._acknowledged), *map(_sight, self._nodes)]
        if seen != self._seen:
            self._seen = seen
            self._cluster.look_at_roles()
            for check in self._checks:
                check()


def _sight(node: BrokerNode) -> object:
    broker = node.broker
    if broker is None:
        return None
    store = broker.store
    log = store.log
    return broker, node.life, log.start, log.end, store.dispatch.position, broker.progress.changes
