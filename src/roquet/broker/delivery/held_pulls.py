"""The places for held pulls, shared among clients."""

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
    """One pull that found nothing and waits for its queue to grow.

    :param offset: the queue offset that it pulls.
    :param until_ms: when its time is over, by the event loop's clock.
    :param fetch_again: returns the encoded answer, or None to go on waiting; called with True it
        always returns an answer.
    :param size: bytes counted against `requestBytesPerConnectionMax`.
    """

    connection: Connection
    queue: ConsumeQueue
    offset: int
    until_ms: int
    fetch_again: Callable[[bool], bytes | None] = field(repr=False)
    size: int
    is_over: bool = False
    """Whether it was answered, or its connection is closed: it has no place any more."""

    def end(self) -> None:
        self.is_over = True


class _Waiting:
    """The held pulls of one connection, in order of arrival."""

    __slots__ = ("network", "pulls")

    def __init__(self, connection: Connection) -> None:
        self.network = network_of(connection.peer_host_name)
        self.pulls: dict[HeldPull, None] = {}


class HeldPulls:
    """The places for held pulls. When all are taken, clients with most pulls give places to others.

    The network with most held pulls gives a place to a network with at least two fewer. Within one
    network the connection with most held pulls gives the place, since behind a gateway all clients
    are one network.

    Invariant: `count` is the number of pulls that are not over. `_waiting` has every connection
    with a held pull, and may have other open connections.

    :param count_max: pulls that may be held at once.
    """

    def __init__(self, count_max: int) -> None:
        self.count_max = count_max
        self.count = 0
        self._waiting: dict[Connection, _Waiting] = {}
        self._networks = Shares[str]()
        self._connections: dict[str, Shares[Connection]] = {}
        """The places of each connection, by network."""

    def count_of(self, connection: Connection) -> int:
        """How many pulls of this connection are held."""
        waiting = self._waiting.get(connection)
        return 0 if waiting is None else len(waiting.pulls)

    def crowding_out(self, newcomer: Connection) -> HeldPull | None:
        """The pull whose place a pull of `newcomer` gets; None while places are free.

        :raises Refused: all places are taken, and no client has enough more pulls than `newcomer`.
        """
        if self.count < self.count_max:
            return None
        network = self._of(newcomer).network
        if self._networks.largest_must_yield_to(network):
            network = next(iter(self._networks.largest))
        elif network not in self._connections or not self._connections[
            network
        ].largest_must_yield_to(newcomer):
            remark = (
                f"[OVERLOAD]{self.count} pulls wait for messages already "
                "(pullThreadPoolQueueCapacity)"
            )
            raise Refused(ResponseCode.SYSTEM_BUSY, remark)
        connection = next(iter(self._connections[network].largest))
        return next(iter(self._waiting[connection].pulls))

    def take(self, held: HeldPull) -> None:
        """Give a place to a pull."""
        waiting = self._of(held.connection)
        waiting.pulls[held] = None
        self.count += 1
        self._networks.add(waiting.network)
        self._connections.setdefault(waiting.network, Shares()).add(held.connection)

    def leave(self, held: HeldPull) -> None:
        """Free the place of a pull, if it still has one."""
        if held.is_over:
            return
        held.end()
        waiting = self._waiting[held.connection]
        del waiting.pulls[held]
        self._dropped(held.connection, waiting.network, 1)

    def closed(self, connection: Connection) -> None:
        """Free the places of all pulls of a closed connection."""
        waiting = self._waiting.pop(connection, None)
        if waiting is None:
            return
        for held in waiting.pulls:
            held.end()
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
