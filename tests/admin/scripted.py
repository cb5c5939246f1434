"""A cluster whose name server and brokers answer as a test says, on simulated hosts."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping
from typing import Any, Final, TypeAlias, TypeVar

from roquet.admin.cluster import AdminClient
from roquet.protocol.bodies.tables import BrokerData, ClusterInfo
from roquet.protocol.json.dialect import dump_dialect
from roquet.protocol.remoting.codes import RequestCode
from roquet.protocol.remoting.command import Command
from roquet.transport.connection import Connection
from roquet.transport.handling import Answer
from roquet.transport.server import Server
from tests.simulation.simulation import Host, Simulation

T = TypeVar("T")

NAME_SERVER: Final = "10.0.0.1:9876"
ADMIN: Final = "10.0.9.1"

Reply: TypeAlias = Callable[[Command], Answer]


def says(body: object, code: int = 0, remark: str | None = None) -> Reply:
    """The same answer each time; a body that is not bytes is encoded as JSON."""
    data = body if isinstance(body, bytes) else dump_dialect(body)
    return lambda request: request.answer(code, remark, body=data)


def refuses(code: int, remark: str) -> Reply:
    return lambda request: request.answer(code, remark)


class ScriptedCluster:
    """Invariant: `requests` are all requests that came, with the address that got them.

    :param listed: the addresses of each broker name, by broker id, that the name server lists.
    """

    def __init__(self, sim: Simulation) -> None:
        self.listed: dict[str, dict[int, str]] = {}
        self.requests: list[tuple[str, Command]] = []
        self.name_server: Reply = self._list
        self._sim = sim
        self._admin = sim.host(ADMIN)
        self._serve(NAME_SERVER, {RequestCode.GET_BROKER_CLUSTER_INFO: self._answer_list})

    def _answer_list(self, request: Command) -> Answer:
        return self.name_server(request)

    def _list(self, request: Command) -> Answer:
        brokers = {name: BrokerData("C", name, ids) for name, ids in self.listed.items()}
        return says(ClusterInfo(brokers, {}).to_json())(request)

    def broker(
        self, address: str, replies: Mapping[int, Reply], name: str = "b", broker_id: int = 0
    ) -> Host:
        """A broker that the name server lists."""
        self.listed.setdefault(name, {})[broker_id] = address
        return self._serve(address, replies)

    def _serve(self, address: str, replies: Mapping[int, Reply]) -> Host:
        def handler(reply: Reply) -> Callable[[Command, Connection], Answer]:
            def handle(request: Command, _: Connection) -> Answer:
                self.requests.append((address, request))
                return reply(request)

            return handle

        server = Server({code: handler(reply) for code, reply in replies.items()})
        name, _, port = address.rpartition(":")
        host = self._sim.host(name)
        host.call(lambda: server.listen("0.0.0.0", int(port)))
        return host

    def codes(self, address: str) -> list[int]:
        """The codes of the requests that an address got."""
        return [request.code for to, request in self.requests if to == address]

    def ask(
        self, work: Callable[[AdminClient], Coroutine[Any, Any, T]], within_s: float = 100
    ) -> T:
        """Run `work` with a client of the cluster."""

        async def asking() -> T:
            async with AdminClient(NAME_SERVER) as cluster:
                return await work(cluster)

        return self._admin.call(asking, within_s)
