"""Apache's name server and broker with a recording proxy on each road between them and to their clients.

    client ──▶ name_server_door ──▶ name server ◀── broker_road ◀── broker ◀── broker_door (and its VIP port) ◀── client

The broker registers through `broker_road`, which puts the address of `broker_door` in place of the broker's own; so
every client that asks for a route walks through `broker_door`, and no recorded byte was changed by us.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Self

from tests.golden.collection import Collection, Peer
from tests.golden.proxy import Connection, RecordingProxy
from tests.interop import wire
from tests.interop.apache import ApacheBroker, ApacheNameServer, free_port

IPV4 = "-Djava.net.preferIPv4Stack=true"
BINARY = "-Drocketmq.serialize.type=ROCKETMQ"
NAME_SERVER = Peer("frames/name-server-4.9.7", "Apache name server 4.9.7")
BROKER = Peer("frames/broker-4.9.7", "Apache broker 4.9.7")


def say(text: str) -> None:
    sys.stderr.write(f"{text}\n")


@dataclass
class Seen:
    """The connections opened while something ran, by the server they led to."""

    at_name_server: list[Connection] = field(default_factory=list)
    at_broker: list[Connection] = field(default_factory=list)

    def add_to(self, collection: Collection, caller: Peer, line: str) -> None:
        collection.add_exchanges(caller, NAME_SERVER, line, self.at_name_server)
        collection.add_exchanges(caller, BROKER, line, self.at_broker)


class Stage:
    """One name server, one master, their proxies; for use in `with`. `files` are put into the
    broker's directory.
    """

    def __init__(
        self,
        properties: Mapping[str, str | int],
        java_options: Sequence[str] = (),
        files: Mapping[str, str] | None = None,
    ) -> None:
        self._stack = ExitStack()
        self._properties = properties
        self._files = dict(files or {})
        self._claimed: set[int] = set()
        self.java_options = (IPV4, *java_options)

    def __enter__(self) -> Self:
        with self._stack as stack:
            self.name_server = stack.enter_context(ApacheNameServer(java_options=[IPV4]))
            self.name_server_door = stack.enter_context(
                RecordingProxy(self.name_server.address, free_port())
            )
            port, door = free_port(-2, 1), free_port(-2, 1)
            replaced = {
                f"127.0.0.1:{port + n}".encode(): f"127.0.0.1:{door + n}".encode() for n in (0, 1)
            }
            self.broker_road = stack.enter_context(
                RecordingProxy(self.name_server.address, free_port(), replaced=replaced)
            )
            self.broker = stack.enter_context(self._start_broker(port))
            self.broker_door = stack.enter_context(RecordingProxy(f"127.0.0.1:{port}", door))
            self.vip_door = stack.enter_context(RecordingProxy(f"127.0.0.1:{port - 2}", door - 2))
            self.ha_door = stack.enter_context(
                RecordingProxy(f"127.0.0.1:{port + 1}", door + 1, whole_frames=False)
            )
            self.broker.wait_ready(lambda: door_is_listed(self), "the name server lists the proxy")
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def _start_broker(self, port: int) -> ApacheBroker:
        broker = ApacheBroker(
            self.broker_road.address,
            port=port,
            properties=self._properties,
            java_options=self.java_options,
        )
        for name, text in self._files.items():
            (broker.directory / name).parent.mkdir(exist_ok=True)
            (broker.directory / name).write_text(text)
        broker.start(registered=False)  # The name server is going to list another address.
        return broker

    @property
    def namesrv(self) -> str:
        """The name server as clients are to know it."""
        return self.name_server_door.address

    @contextmanager
    def watch(self) -> Iterator[Seen]:
        """Fills in, at its end, the connections opened meanwhile, but for those of a watch within
        this one.
        """
        doors = [self.name_server_door, self.broker_door, self.vip_door]
        before = [len(door.connections) for door in doors]
        seen = Seen()
        yield seen
        mine = [
            [
                connection
                for connection in door.connections[count:]
                if id(connection) not in self._claimed
            ]
            for door, count in zip(doors, before, strict=True)
        ]
        seen.at_name_server, seen.at_broker = mine[0], mine[1] + mine[2]
        self._claimed |= {id(connection) for connections in mine for connection in connections}


def door_is_listed(stage: Stage) -> bool:
    return wire.has_broker(stage.name_server.address, stage.broker_door.address)
