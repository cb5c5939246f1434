"""Clients that are members of a simulated cluster, and ask its servers for what no client would."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from tests.fuzz.broker.hostile import Hostility
from tests.simulation.cluster import Cluster
from tests.simulation.nodes import NAME_SERVER_PORT
from tests.simulation.simulation import Host

ADDRESS: Final = "10.0.4.2"
HONEST: Final = "honest"
"""Whoever may wipe a broker's write permission by its name may do so: hostile requests name
`broker-a`.
"""
CLIENTS: Final = 4
PAUSE_S: Final = 0.5
"""The mean time between two bursts of one client."""
FRAMES: Final = (1, 5, 20)
BURSTS: Final = (1, 3, 10)
READS_CHANCE: Final = 0.8
BURST_BYTES_MAX: Final = 1 << 20


class Fuzzers:
    """Invariant: `sent` counts the frames that left, `answered` the bytes that came back.

    :param clients: addresses of ports for clients; :param slaves: of those for slaves.
    """

    def __init__(
        self,
        host: Host,
        chance: random.Random,
        clients: Sequence[str],
        slaves: Sequence[str],
        kind: type[Hostility] = Hostility,
    ) -> None:
        self.sent = self.answered = 0
        self._host = host
        self._chance = chance
        self._clients = clients
        self._slaves = slaves
        self._hostility = kind(chance.getrandbits(32))
        self._is_coming = False

    def come(self) -> None:
        """From now on, until `come_no_more`."""
        self._is_coming = True
        for _ in range(CLIENTS):
            self._host.start(self._go_on)

    def come_no_more(self) -> None:
        self._is_coming = False

    async def _go_on(self) -> None:
        while self._is_coming:
            await asyncio.sleep(self._chance.expovariate(1 / PAUSE_S))
            as_slave = self._chance.random() < 0.1
            host, _, port = self._chance.choice(
                self._slaves if as_slave else self._clients
            ).rpartition(":")
            try:
                transport, _ = await asyncio.get_running_loop().create_connection(
                    lambda: Counted(self), host, int(port)
                )
            except OSError:
                continue  # nobody listens there now
            await self._use(transport, as_slave=as_slave)
            transport.abort()

    async def _use(self, transport: asyncio.Transport, *, as_slave: bool) -> None:
        chance, hostility = self._chance, self._hostility
        if chance.random() > READS_CHANCE:
            transport.pause_reading()
        for _ in range(chance.choice(BURSTS)):
            frames = [
                hostility.slave_report() if as_slave else hostility.frame()
                for _ in range(chance.choice(FRAMES))
            ]
            transport.write(b"".join(frames)[:BURST_BYTES_MAX])
            self.sent += len(frames)
            await asyncio.sleep(chance.expovariate(1 / PAUSE_S))
            if transport.is_closing():
                return


def fuzzers_of(cluster: Cluster, kind: type[Hostility] = Hostility) -> Fuzzers:
    """Before the start: clients that turn to every port of a cluster, but for those of slaves'
    slaves.
    """
    clients = [f"{node.host.address}:{NAME_SERVER_PORT}" for node in cluster.name_servers.values()]
    slaves = []
    for node in cluster.brokers.values():
        config = node.config = replace(
            node.config, broker_name=f"{HONEST}-{node.config.broker_name}"
        )
        clients += [
            f"{node.host.address}:{port}" for port in (config.listen_port, config.listen_port - 2)
        ]
        if not node.is_slave:
            slaves.append(f"{node.host.address}:{config.ha_port}")
    return Fuzzers(cluster.sim.host(ADDRESS), cluster.sim.chance("fuzzers"), clients, slaves, kind)


class Counted(asyncio.Protocol):
    def __init__(self, fuzzers: Fuzzers) -> None:
        self._fuzzers = fuzzers

    def data_received(self, data: bytes) -> None:
        self._fuzzers.answered += len(data)
