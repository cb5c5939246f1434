"""Calls to the processes of a broker, one after the other until one answers."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Final, TypeVar

from roquet.client._net.name_servers import Call
from roquet.client._net.route_table import RouteTable
from roquet.client._net.routes import BrokerAddress, read_addresses
from roquet.common.loop_time import now_s
from roquet.errors import CallTimeout, ConnectionClosed, RouteNotFound
from roquet.protocol.bodies.tables import Route
from roquet.protocol.records.message import MessageQueue
from roquet.protocol.remoting.command import Command

AVOID_S: Final = 5.0
"""How long an address whose connection failed is asked only after the other addresses."""
AVOID_SILENT_S: Final = 30.0
"""As `AVOID_S`, for an address that does not answer. It is longer, as each try costs seconds."""

T = TypeVar("T")
CallAll = Callable[[str, Sequence[Command], int], Awaitable[list[Command]]]
"""Address, requests, timeout in ms -> the responses."""
Choose = Callable[[Route, str], Iterable[BrokerAddress]]
"""Route, broker name -> the addresses to ask, best first."""


class BrokerCalls:
    """Calls to the brokers of queues. They ask a broker's processes until one answers.

    `choose` selects the processes, best first; those that failed recently come last. When a
    process fails, the route is refreshed in the background. When all fail, the processes that are
    new in the refreshed route are asked, too.

    All methods raise `RouteNotFound` if `choose` selected no process, `ConnectionClosed` if no
    process can be reached, and `CallTimeout` if the last one did not answer.
    """

    def __init__(self, call: Call, call_all: CallAll, routes: RouteTable) -> None:
        self._call = call
        self._call_all = call_all
        self._routes = routes
        self._avoided_until: dict[str, float] = {}

    async def call(
        self,
        queue: MessageQueue,
        request: Command,
        timeout_ms: int,
        choose: Choose = read_addresses,
    ) -> tuple[BrokerAddress, Command]:
        """Send a request; return the process that answered, and its response of any code.

        :param timeout_ms: the time in ms for each process.
        """

        async def ask(at: BrokerAddress) -> tuple[BrokerAddress, Command]:
            return at, await self._call(at.address, request, timeout_ms)

        return await self.first(queue, ask, choose)

    async def call_all(
        self,
        queue: MessageQueue,
        requests: Sequence[Command],
        timeout_ms: int,
        choose: Choose = read_addresses,
    ) -> tuple[BrokerAddress, list[Command]]:
        """As `call`, for several requests, which go to the same process at once."""

        async def ask(at: BrokerAddress) -> tuple[BrokerAddress, list[Command]]:
            return at, await self._call_all(at.address, requests, timeout_ms)

        return await self.first(queue, ask, choose)

    async def first(
        self,
        queue: MessageQueue,
        ask: Callable[[BrokerAddress], Awaitable[T]],
        choose: Choose = read_addresses,
    ) -> T:
        """The first result of `ask`, which is called with one process after the other."""
        tried: set[BrokerAddress] = set()
        failure: Exception | None = None
        for route_of in (self._routes.route, self._routes.refresh):
            route = await route_of(queue.topic)
            for at in self._least_suspect_first(choose(route, queue.broker_name)):
                if at in tried:
                    continue
                tried.add(at)
                try:
                    return await ask(at)
                except ConnectionClosed as error:
                    self._avoid(at, AVOID_S)
                    failure = error
                except CallTimeout as error:
                    self._avoid(at, AVOID_SILENT_S)
                    failure = error
                self._routes.refresh_soon(queue.topic)
        raise failure or RouteNotFound(
            f"route of {queue.topic}: no address of broker {queue.broker_name} can be used"
        )

    def _avoid(self, at: BrokerAddress, seconds: float) -> None:
        self._avoided_until[at.address] = now_s() + seconds

    def _least_suspect_first(self, addresses: Iterable[BrokerAddress]) -> list[BrokerAddress]:
        if not self._avoided_until:
            return list(addresses)
        now = now_s()
        self._avoided_until = {
            address: until for address, until in self._avoided_until.items() if until > now
        }
        return sorted(addresses, key=lambda at: at.address in self._avoided_until)
