"""A cluster on loopback, in a thread of its own: a command runs an event loop itself."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine, Iterator, Mapping
from typing import Any, Final, TypeVar

import pytest

from roquet.protocol.bodies.tables import BrokerData, ClusterInfo
from roquet.protocol.remoting.codes import RequestCode
from roquet.protocol.remoting.command import Command
from roquet.transport.connection import Connection
from roquet.transport.handling import Answer
from roquet.transport.server import Server
from tests.admin.scripted import Reply, says

T = TypeVar("T")

LOOPBACK: Final = "127.0.0.1"
PATIENCE_S: Final = 30


class ServedCluster:
    """A name server that lists what a test says, and brokers that answer as it says.

    Invariant: `requests` are all requests that brokers got.

    :param listed: the addresses of each broker name, by broker id.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.listed: dict[str, dict[int, str]] = {}
        self.requests: list[Command] = []
        self._loop = loop
        self._servers: list[Server] = []
        self.name_server = self._serve({RequestCode.GET_BROKER_CLUSTER_INFO: self._list})

    def _list(self, request: Command) -> Answer:
        brokers = {name: BrokerData("C", name, ids) for name, ids in self.listed.items()}
        return says(ClusterInfo(brokers, {}).to_json())(request)

    def broker(self, replies: Mapping[int, Reply], name: str = "b", broker_id: int = 0) -> str:
        """A broker that the name server lists; its address."""

        def noted(reply: Reply) -> Reply:
            def answer(request: Command) -> Answer:
                self.requests.append(request)
                return reply(request)

            return answer

        address = self._serve({code: noted(reply) for code, reply in replies.items()})
        self.listed.setdefault(name, {})[broker_id] = address
        return address

    def _serve(self, replies: Mapping[int, Reply]) -> str:
        def handler(reply: Reply) -> Callable[[Command, Connection], Answer]:
            return lambda request, _: reply(request)

        server = Server({code: handler(reply) for code, reply in replies.items()})
        self._servers.append(server)
        return f"{LOOPBACK}:{self.call(lambda: server.listen(LOOPBACK, 0))}"

    def call(self, work: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Run something in the cluster's thread."""
        return asyncio.run_coroutine_threadsafe(work(), self._loop).result(PATIENCE_S)

    def stop(self) -> None:
        for server in self._servers:
            self.call(server.close)


@pytest.fixture
def served() -> Iterator[ServedCluster]:
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, name="cluster")
    thread.start()
    cluster = ServedCluster(loop)
    try:
        yield cluster
    finally:
        cluster.stop()
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()
