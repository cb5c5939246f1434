"""Somebody who says to name servers that he is the master: at an address of his, where nobody
serves.
"""

from __future__ import annotations

import asyncio
from typing import Final

from roquet.broker.config.broker import BrokerConfig
from roquet.protocol.bodies.tables import DataVersion, Registration, TopicConfig, TopicTable
from roquet.protocol.headers.routing import BrokerHeader, RegisterBrokerHeader
from roquet.protocol.json.dialect import dump_bytes
from roquet.protocol.records.message import Permission
from roquet.protocol.remoting.codes import RequestCode
from roquet.protocol.remoting.command import Command
from roquet.protocol.remoting.refusals import checked
from roquet.transport.channels import Channels
from tests.simulation.clients import TOPIC
from tests.simulation.cluster import Cluster
from tests.simulation.nodes import NAME_SERVER_PORT

ADDRESS: Final = "10.0.4.3"
CALL_MS: Final = 3000


class FalseBrokers:
    """Invariant: each registration comes over a connection of its own, which stays for a while; then
    the name server forgets that broker, or is told that it goes.
    """

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._chance = cluster.sim.chance("false brokers")
        self._host = cluster.sim.host(ADDRESS)
        self._port = 20_000

    def come(self, stays_s_max: float) -> None:
        """Register in place of the present master, with fewer queues that nobody may send to; go at
        some time.
        """
        self._cluster.words_may_come_late = (
            True  # the group hears of its progress from a slave meanwhile
        )
        self._port += 2
        server = f"{self._cluster.name_server.host.address}:{NAME_SERVER_PORT}"
        own, address = self._cluster.master.config, f"{ADDRESS}:{self._port}"
        seconds = self._chance.uniform(0, stays_s_max)
        self._host.start(lambda: self._register(server, own, address, seconds))

    async def _register(self, server: str, own: BrokerConfig, address: str, seconds: float) -> None:
        channels = Channels()
        header = RegisterBrokerHeader(
            own.broker_name, address, own.broker_cluster_name, f"{ADDRESS}:1", own.broker_id
        )
        table = TopicTable({TOPIC: TopicConfig(TOPIC, 1, 1, Permission.READ)}, DataVersion(1, 1))
        request = Command(
            RequestCode.REGISTER_BROKER, header.write(), dump_bytes(Registration(table).to_json())
        )
        try:
            checked(await channels.call(server, request, CALL_MS), server)
            await asyncio.sleep(seconds)
            if self._chance.random() < 0.5:
                goes = BrokerHeader(
                    own.broker_name, address, own.broker_cluster_name, own.broker_id
                )
                checked(
                    await channels.call(
                        server, Command(RequestCode.UNREGISTER_BROKER, goes.write()), CALL_MS
                    ),
                    "",
                )
        finally:
            await channels.close()
