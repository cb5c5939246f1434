"""Records over many pages, and what a process leaves of them that is killed while it copies them
into mapped files.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Final

from roquet.protocol.records.layout import BLANK_SIZE
from roquet.protocol.records.message import KEYS, UNIQ_KEY, WAIT, join_properties
from roquet.protocol.records.record import Record
from roquet.storage.store import Store
from tests.simulation.clients import LARGE, TOPIC, body_of
from tests.simulation.cluster import Cluster
from tests.simulation.disk import PAGE_SIZE
from tests.simulation.nodes import STORE

FILE_SIZES: Final = (512 * 1024, 1024 * 1024)
CHUNK_SIZES: Final = (4_096, 32_768, 100_000)
SLAVE_WRITES_AT_ONCE: Final = 32_768


def send_large_messages(cluster: Cluster) -> None:
    """Before the start: of one byte to several hundred KiB; some ten fill a file of the log."""
    chance = cluster.sim.chance("large")
    file_size, chunk_size = chance.choice(FILE_SIZES), chance.choice(CHUNK_SIZES)
    for node in cluster.brokers.values():
        store = replace(node.config.store, mapped_file_size_commit_log=file_size)
        replication = replace(node.config.replication, ha_transfer_batch_size=chunk_size)
        node.config = replace(node.config, store=store, replication=replication)
    cluster.producer.kind = LARGE


def leave_torn_records(cluster: Cluster, name: str) -> None:
    """Of what a killed broker would have stored next some pages are there, in any order, and others
    are not: at a slave what its master has there, at a master a message that nobody has heard of.
    """
    node, chance = cluster.brokers[name], cluster.chance
    store, size = node.last_store, node.config.store.mapped_file_size_commit_log
    assert store is not None
    end = store.log.end
    if node.is_slave:
        master = cluster.broker(cluster.set_of(name).master.name).store
        data = master.log.read(end, SLAVE_WRITES_AT_ONCE)
    else:
        data = _unknown_message(store, node.host.now_ms()).encode()
    file = node.host.drive.names.files.get(Path(STORE) / "commitlog" / f"{end - end % size:020}")
    if file is None or end % size + len(data) + BLANK_SIZE * (not node.is_slave) > size:
        return
    at = end % size
    share = chance.random()
    for start in (at, *range(at - at % PAGE_SIZE + PAGE_SIZE, at + len(data), PAGE_SIZE)):
        stop = min(start - start % PAGE_SIZE + PAGE_SIZE, at + len(data))
        if chance.random() < share:
            file.cached[start:stop] = data[start - at : stop - at]
    cluster.sim.note("torn", name, end, len(data), round(share, 3))


def _unknown_message(store: Store, now_ms: int) -> Record:
    """The next of queue 0."""
    at, offset = store.log.end, store.max_offset(TOPIC, 0)
    key, host = f"{LARGE}-torn-{at}", bytes(8)
    pairs = join_properties({KEYS: key, UNIQ_KEY: key, WAIT: "true"})
    return Record(
        0,
        0,
        offset,
        at,
        0,
        now_ms,
        host,
        now_ms,
        host,
        0,
        0,
        body_of(key),
        TOPIC,
        pairs,
    )
