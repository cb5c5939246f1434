"""A name server on a loopback port, and connections to it."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from roquet.common.runtime import Runtime
from roquet.nameserver.config import NamesrvConfig
from roquet.nameserver.server import NameServer
from roquet.protocol.bodies.tables import (
    DataVersion,
    Registration,
    TopicConfig,
    TopicTable,
)
from roquet.protocol.json.dialect import dump_bytes
from roquet.protocol.remoting.codes import RequestCode, ResponseCode
from roquet.protocol.remoting.command import Command
from roquet.transport.connection import Connection

NOW = 1_700_000_000_000
VERSION = DataVersion(NOW, 1)
REGISTRATION = Registration(TopicTable({"T": TopicConfig("T", 4, 4)}, VERSION))
BODY = dump_bytes(REGISTRATION.to_json())


class Peer:
    """One connection to the name server."""

    def __init__(self, connection: Connection, closed: asyncio.Event) -> None:
        self.connection = connection
        self.closed = closed

    async def ask(
        self,
        code: int,
        body: bytes = b"",
        *,
        version: int = 409,
        header_type: int = 0,
        **fields: Any,
    ) -> Command:
        request = Command(code, {name: str(value) for name, value in fields.items()}, body)
        request.version, request.header_type = version, header_type
        return await self.connection.calls.call(request, 5000)

    async def register(self, body: bytes = BODY, *, version: int = 409, **changes: Any) -> Command:
        return await self.ask(
            RequestCode.REGISTER_BROKER, body, version=version, **{**MASTER, **changes}
        )

    async def end(self) -> None:
        self.connection.close()
        await self.closed.wait()


MASTER: Mapping[str, Any] = {
    "clusterName": "c",
    "brokerName": "a",
    "brokerId": 0,
    "brokerAddr": "10.0.0.1:10911",
    "haServerAddr": "10.0.0.1:10912",
}
SLAVE: Mapping[str, Any] = {
    "clusterName": "c",
    "brokerName": "a",
    "brokerId": 1,
    "brokerAddr": "10.0.0.2:10911",
    "haServerAddr": "10.0.0.2:10912",
}


class Started(NamedTuple):
    server: NameServer
    clock: list[int]
    peers: list[Peer]

    async def connect(self) -> Peer:
        closed = asyncio.Event()
        loop = asyncio.get_running_loop()
        _, connection = await loop.create_connection(
            lambda: Connection({}, on_closed=lambda _: closed.set()), "127.0.0.1", self.server.port
        )
        self.peers.append(Peer(connection, closed))
        return self.peers[-1]

    async def stop(self) -> None:
        await self.server.stop()
        for peer in self.peers:
            await peer.end()


def config_in(folder: Path, **changes: Any) -> NamesrvConfig:
    return NamesrvConfig(
        listen_port=0,
        bind_address="127.0.0.1",
        kv_config_path=str(folder / "kv" / "kvConfig.json"),
        config_store_path=str(folder / "namesrv.properties"),
        **changes,
    )


async def start(config: NamesrvConfig) -> Started:
    clock = [NOW]
    server = NameServer(config, Runtime(steady_ms=lambda: clock[0]))
    assert await server.start() == server.port
    return Started(server, clock, [])


async def put(peer: Peer, value: str = "a:4", topic: str = "T") -> None:
    order: dict[str, Any] = {"namespace": "ORDER_TOPIC_CONFIG", "key": topic}
    assert (
        await peer.ask(RequestCode.PUT_KV_CONFIG, **order, value=value)
    ).code == ResponseCode.SUCCESS
