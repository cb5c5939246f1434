"""What must be true of a cluster that is whole and has nothing left to do."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from roquet.protocol.records.message import KEYS
from roquet.protocol.records.record import decode
from roquet.storage.store import Store
from tests.simulation.checks import read_log
from tests.simulation.clients import TOPIC, place_of
from tests.storage.records import found_by_key

if TYPE_CHECKING:
    from tests.simulation.broker_set import BrokerSet
    from tests.simulation.cluster import Cluster

ALL_TIMES: Final = (0, 1 << 62)
KEY_HITS_MAX: Final = 64


def check_quiet(cluster: Cluster) -> None:
    """The slaves have what the master has; whoever asks any of them gets it; the group has got
    it.
    """
    for each in cluster.sets:
        for slave in each.slaves:
            _check_equal(cluster.broker(each.master.name).store, cluster.broker(slave.name).store)
        for name in each.brokers:
            _check_has_all(cluster, each, name)
    missing = cluster.not_received()
    assert not missing, f"acknowledged, but never received: {sorted(missing)}"


def _check_has_all(cluster: Cluster, brokers: BrokerSet, name: str) -> None:
    store, readable = cluster.broker(name).store, cluster.readable_from(name)
    start = (
        store.log.start if name in cluster.began_anew else min(store.log.start, brokers.deleted_to)
    )
    due = {key for key, result in brokers.acknowledged.items() if place_of(result) >= start}
    missing = due - readable
    assert not missing, f"acknowledged, but not readable from {name}: {sorted(missing)}"
    lost = sorted(key for key in due if not _is_found_by_key(store, key))
    assert not lost, f"acknowledged, but not found by key on {name}: {lost}"


def _check_equal(master: Store, slave: Store) -> None:
    start, end = max(master.log.start, slave.log.start), master.log.end
    assert slave.log.end == end
    assert read_log(slave.log, start, end) == read_log(master.log, start, end)


def _is_found_by_key(store: Store, key: str) -> bool:
    hits = found_by_key(store, TOPIC, key, KEY_HITS_MAX, *ALL_TIMES)
    return any(decode(record).properties.get(KEYS) == key for record in hits.records)
