"""A name server and a broker of ours on simulated hosts, for clients whose peers cannot be scripted
in a few lines.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any, Final, TypeVar

from roquet.protocol.records.record import Record, decode
from tests.broker.served import serving, started
from tests.simulation.nodes import NAME_SERVER_PORT, BrokerNode, NameServerNode
from tests.simulation.simulation import Host, Simulation

T = TypeVar("T")

NAME_SERVER: Final = f"10.0.0.100:{NAME_SERVER_PORT}"
QUEUES: Final = 2


class Served:
    """Invariant: the broker asks about open transactions each ten seconds, once they are a second
    old.
    """

    def __init__(self, sim: Simulation, **settings: object) -> None:
        self.sim = sim
        self.name_server = NameServerNode(sim.host("10.0.0.100"))
        self.name_server.start()
        sim.run_until(lambda: self.name_server.is_serving, 5)
        self._settings = {
            "namesrvAddr": NAME_SERVER,
            "defaultTopicQueueNums": QUEUES,
            "transactionTimeOut": 1000,
            "transactionCheckInterval": 10_000,
            "mapedFileSizeCommitLog": 65536,
            "mapedFileSizeConsumeQueue": 20 * 1000,
            **settings,
        }
        self.broker = self.more()

    def more(self, address: str = "10.0.0.1", **settings: object) -> BrokerNode:
        """Another broker, that the name server knows."""
        node = started(self.sim, address, **self._settings, **settings)
        self.sim.run_for(1)
        return node

    @property
    def client(self) -> Host:
        return self.sim.host("10.0.9.1")

    def run(self, work: Callable[[], Coroutine[Any, Any, T]], within_s: float = 300.0) -> T:
        """Run a client to its end."""
        return self.client.call(work, within_s)

    def records(self, topic: str) -> list[Record]:
        """All that the broker's queues of the topic have, in the order in which it was stored."""
        store = serving(self.broker).store
        entries = [
            entry
            for queue in store.queues
            if queue.topic == topic
            for entry in queue.entries(0, 1000)
        ]
        return [decode(store.log.record_at(at) or b"") for at, *_ in sorted(entries)]

    def bodies(self, topic: str = "T") -> list[str]:
        return [record.body.decode() for record in self.records(topic)]
