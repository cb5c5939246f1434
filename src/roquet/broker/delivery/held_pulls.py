"""The pulls that wait for messages, and the places they take, which are shared among clients."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from roquet.common.shared_places import Shares, network_of
from roquet.errors import Refused
from roquet.protocol.remoting.codes import ResponseCode
from roquet.storage.queues.consume_queue import ConsumeQueue
from roquet.transport.connection import Connection


@dataclass(eq=False, slots=True)
class HeldPull:
    """One pull that found nothing.

    `fetch_again` gives the answer, or None to go on waiting; with True it answers whatever it finds.
    """

    connection: Connection
    queue: ConsumeQueue
    offset: int
    until_ms: int
    fetch_again: Callable[[bool], bytes | None] = field(repr=False)
    size: int
    is_over: bool = False
    """It has left its place: it was answered, or its connection is gone."""


class _Waiting:
    """The pulls of one connection, in the order they came."""

    __slots__ = ("network", "pulls")

    def __init__(self, connection: Connection) -> None:
        self.network = network_of(connection.peer_host_name)
        self.pulls: dict[HeldPull, None] = {}


class HeldPulls:
    """The places of waiting pulls: free ones are for everybody, full ones are shared as connections are.

    The network with most waiting pulls owes a place to one with at least two fewer. At one network it is the connection
    with most that owes one: behind a gateway all clients are one network.

    Keeps: `count` is the number of pulls that are not over. `_waiting` has each connection that holds one, and may keep
    others that are open.

    :param count_max: so many pulls may wait.
    """

    def __init__(self, count_max: int) -> None:
        self.count_max = count_max
        self.count = 0
        self._waiting: dict[Connection, _Waiting] = {}
        self._networks = Shares[str]()
        self._connections: dict[str, Shares[Connection]] = {}
        """Network -> its connections."""

    def count_of(self, connection: Connection) -> int:
        """How many pulls of this connection wait."""
        waiting = self._waiting.get(connection)
        return 0 if waiting is None else len(waiting.pulls)

    def crowding_out(self, newcomer: Connection) -> HeldPull | None:
        """The pull that has to leave for one of `newcomer`, when all places are taken.

        :raises Refused: no other client has so many more that it owes a place.
        """
        if self.count < self.count_max:
            return None
        network = self._of(newcomer).network
        if self._networks.owe(network):
            network = next(iter(self._networks.crowds))
        elif network not in self._connections or not self._connections[network].owe(newcomer):
            remark = f"[OVERLOAD]{self.count} pulls wait for messages already (pullThreadPoolQueueCapacity)"
            raise Refused(ResponseCode.SYSTEM_BUSY, remark)
        connection = next(iter(self._connections[network].crowds))
        return next(iter(self._waiting[connection].pulls))

    def take(self, held: HeldPull) -> None:
        """A pull begins to wait."""
        waiting = self._of(held.connection)
        waiting.pulls[held] = None
        self.count += 1
        self._networks.add(waiting.network)
        self._connections.setdefault(waiting.network, Shares()).add(held.connection)

    def leave(self, held: HeldPull) -> None:
        """A pull does not wait any more."""
        if held.is_over:
            return
        held.is_over = True
        waiting = self._waiting[held.connection]
        del waiting.pulls[held]
        self._dropped(held.connection, waiting.network, 1)

    def closed(self, connection: Connection) -> None:
        """None of its pulls waits any more."""
        waiting = self._waiting.pop(connection, None)
        if waiting is None:
            return
        for held in waiting.pulls:
            held.is_over = True
        if waiting.pulls:
            self._dropped(connection, waiting.network, len(waiting.pulls))

    def _of(self, connection: Connection) -> _Waiting:
        waiting = self._waiting.get(connection)
        if waiting is None:
            waiting = self._waiting[connection] = _Waiting(connection)
        return waiting

    def _dropped(self, connection: Connection, network: str, count: int) -> None:
        self.count -= count
        self._networks.drop(network, count)
        self._connections[network].drop(connection, count)
        if not self._networks.count(network):
            del self._connections[network]
