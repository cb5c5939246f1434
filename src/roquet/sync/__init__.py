"""The client for code without event loop: scripts, Django, Flask, Celery.

The names, arguments and results are those of the asyncio client, which works underneath in a thread
of its own. Any number of threads may use a client at the same time.

May import: admin, client, cluster, protocol.
"""

from __future__ import annotations

from roquet.sync.admin import AdminClient
from roquet.sync.cluster import Client, connect
from roquet.sync.consumer import Consumer
from roquet.sync.producer import Producer
from roquet.sync.pull_consumer import PullConsumer
from roquet.sync.rebalance_listener import RebalanceListener
from roquet.sync.transactions import TransactionProducer

__all__ = [
    "AdminClient",
    "Client",
    "Consumer",
    "Producer",
    "PullConsumer",
    "RebalanceListener",
    "TransactionProducer",
    "connect",
]
