"""A name server and brokers in this process, for tests and laptops.

    with roquet.dev.Cluster(brokers=2) as cluster:
        program_under_test(cluster.name_server)
        cluster.kill("broker-a")

May import: broker, nameserver, protocol, replication, transport.
"""

from __future__ import annotations

from roquet.dev.cluster import DEFAULT_NAMES, Cluster
from roquet.dev.programs import LOOPBACK, NAME_SERVER, Pause
from roquet.errors import ClusterStateError

__all__ = ["DEFAULT_NAMES", "LOOPBACK", "NAME_SERVER", "Cluster", "ClusterStateError", "Pause"]
