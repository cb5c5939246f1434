"""TCP between simulated hosts, in memory, under the virtual loop: late, in pieces, and cut off
where a test wants it.

Inside a connection that lives nothing is lost, repeated or overtaken, as TCP promises. A packet
that cannot get through (partition, host without power) is sent again and again, so its bytes arrive
once the way is free; the sender gives up after `RETRANSMIT_S`. A reset is said once: who does not
hear it learns of it when he sends.
"""

from __future__ import annotations

import asyncio
import errno
import random
import socket
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextvars import Context, copy_context
from dataclasses import dataclass
from typing import Any, Final, TypeAlias, TypeVar

from tests.simulation.loop import VirtualLoop
from tests.simulation.stream import Connection, SocketStub, Stream, VirtualTransport
from tests.simulation.threads import Process, current_process

P = TypeVar("P", bound=asyncio.BaseProtocol)
ExtUnit: TypeAlias = Callable[..., None]

LOOPBACK: Final = frozenset({"127.0.0.1", "localhost", "::1"})
ANY_ADDRESS: Final = frozenset({"", "0.0.0.0", "::"})
FIRST_FREE_PORT: Final = 32_768
CONNECT_PAUSES_S: Final = (1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0)
"""Between the attempts of one connect that nobody answers, as Linux makes them; then it gives
up.
"""


@dataclass(frozen=True)
class LinkQuality:
    """What the way between two hosts does to packets.

    `window` is how many bytes the kernels of both sides hold for a receiver that does not read.
    """

    latency_s: tuple[float, float] = (0.0002, 0.002)
    spike_chance: float = 0.01
    spike_s: tuple[float, float] = (0.02, 0.3)
    split_chance: float = 0.3
    window: int = 256 * 1024

    def delay_s(self, chance: random.Random) -> float:
        delay_s = chance.uniform(*self.latency_s)
        if chance.random() < self.spike_chance:
            delay_s += chance.uniform(*self.spike_s)
        return delay_s

    def packets(self, data: bytes, chance: random.Random) -> Iterator[bytes]:
        """`data` in the pieces it travels in."""
        if len(data) < 2 or chance.random() >= self.split_chance:
            yield data
            return
        cuts = sorted({chance.randrange(1, len(data)) for _ in range(chance.randint(1, 3))})
        yield from (
            data[start:end] for start, end in zip([0, *cuts], [*cuts, len(data)], strict=True)
        )


WITHIN_A_HOST: Final = LinkQuality(latency_s=(0.00001, 0.0001), spike_chance=0.0)


class VirtualServer(asyncio.AbstractServer):
    """One listening port of one process.

    Invariant: `transports` are the connections it accepted that are not lost; `wait_closed` waits for
    them, too, as asyncio does from Python 3.12 on.
    """

    def __init__(
        self,
        network: Network,
        process: Process,
        factory: Callable[[], asyncio.BaseProtocol],
        local: tuple[str, int],
    ) -> None:
        self.process = process
        self.transports: dict[VirtualTransport, None] = {}
        self.only_loopback = local[0] in LOOPBACK
        self._network = network
        self._factory = factory
        self._context = copy_context()
        self._local = local
        self._serving = False
        self._closed = False
        self._serving_forever: asyncio.Future[None] | None = None
        self._all_gone = asyncio.Event()

    @property
    def sockets(self) -> tuple[SocketStub, ...]:
        return () if self._closed else (SocketStub(self._local),)

    def get_loop(self) -> asyncio.AbstractEventLoop:
        return self._network.loop

    def is_serving(self) -> bool:
        return self._serving

    def fork_context(self) -> Context:
        return self._context.copy()

    def accept(self, transport: VirtualTransport) -> None:
        """Runs in the server's context: the other side's connect has arrived."""
        if self._closed or transport.is_gone:
            transport.abort()
            return
        self.transports[transport] = None
        transport.open(self._factory(), self._lost)

    def _lost(self, transport: VirtualTransport) -> None:
        del self.transports[transport]
        self._wake_when_all_gone()

    def _wake_when_all_gone(self) -> None:
        if self._closed and not self.transports:
            self._all_gone.set()

    def close(self) -> None:
        if not self._closed:
            self._closed = True
            self._serving = False
            self._network.unlisten(self.process.address, self._local[1])
            if self._serving_forever is not None:
                self._serving_forever.cancel()
            self._wake_when_all_gone()

    def close_clients(self) -> None:
        for transport in list(self.transports):
            transport.close()

    def abort_clients(self) -> None:
        for transport in list(self.transports):
            transport.abort()

    async def start_serving(self) -> None:
        self._serving = not self._closed

    async def serve_forever(self) -> None:
        await self.start_serving()
        self._serving_forever = self._network.loop.create_future()
        try:
            await self._serving_forever
        finally:
            self.close()

    async def wait_closed(self) -> None:
        await self._all_gone.wait()


class Network:
    """Every host's connections, and every fault between them.

    Invariant: a port of a host has at most one server; `processes` holds the running process of each
    host that has power.

    :param note: told every fact that must repeat when the same seed runs again.
    """

    def __init__(self, loop: VirtualLoop, chance: random.Random, note: ExtUnit) -> None:
        self.loop = loop
        self.random = chance
        self.quality = LinkQuality()
        self.processes: dict[str, Process] = {}
        self._note = note
        self._qualities: dict[tuple[str, str], LinkQuality] = {}
        self._servers: dict[tuple[str, int], VirtualServer] = {}
        self._next_port: dict[str, int] = {}
        self._connections: dict[Connection, None] = {}
        self._unreachable: set[str] = set()
        self._partitions: set[tuple[str, str]] = set()

    # faults

    def set_quality(self, a: str, b: str, quality: LinkQuality) -> None:
        """Between these two hosts, from now on; `quality` without a pair is for all others."""
        self._qualities[a, b] = self._qualities[b, a] = quality

    def cut(self, a: str, b: str) -> None:
        """Reset every connection between the two hosts; new ones can be made at once."""
        self._note("cut", a, b)
        for connection in self._between(a, b):
            for stream in connection.streams:
                stream.send_reset()

    def half_open(self, a: str, b: str) -> None:
        """From now on, what is sent over the present connections between the two vanishes; nobody
        is told.
        """
        self._note("half-open", a, b)
        for connection in self._between(a, b):
            for stream in connection.streams:
                stream.is_silent = True

    def partition(self, a: str, b: str, one_way: bool = False) -> None:
        """Nothing gets from `a` to `b`, nor back unless `one_way`."""
        self._note("partition", a, b, one_way)
        self._partitions |= {(a, b)} if one_way else {(a, b), (b, a)}

    def isolate(self, address: str) -> None:
        """Nothing gets to this host or away from it."""
        self._note("isolate", address)
        self._unreachable.add(address)

    def heal(self, *addresses: str) -> None:
        """End the partitions and isolations of these hosts, of all without any; what was held up
        goes on its way.
        """
        self._note("heal", *addresses)
        healed = set(addresses) or self._unreachable.union(*self._partitions)
        self._partitions = {pair for pair in self._partitions if healed.isdisjoint(pair)}
        self._unreachable -= healed
        self._wake()

    def _between(self, a: str, b: str) -> list[Connection]:
        return [
            connection for connection in self._connections if connection.hosts in ((a, b), (b, a))
        ]

    def _wake(self) -> None:
        for connection in list(self._connections):
            for stream in connection.streams:
                stream.go_on()

    # hosts

    def boot(self, process: Process) -> None:
        """The host has power and this process; packets that waited for it find that their
        connection is unknown.
        """
        self._note("boot", process.address)
        self.processes[process.address] = process
        self._wake()

    def kill(self, process: Process) -> None:
        """The process is gone and its kernel says so: the other sides see an end or a reset."""
        self._note("kill", process.address)
        for transport in self._leave(process):
            if self.random.random() < 0.5:
                transport.outbound.send_end()
            else:
                transport.outbound.send_reset()

    def crash(self, process: Process, silently: bool) -> None:
        """The host is gone; unless silently, the other sides see a reset. No answer from there
        until it boots.
        """
        self._note("crash", process.address, silently)
        for transport in self._leave(process):
            if silently:
                transport.outbound.drop_what_is_held()
            else:
                transport.outbound.send_reset()
        del self.processes[process.address]

    def open_ends(self, process: Process) -> list[VirtualTransport]:
        """The connections of a process, also those that are being closed."""
        return [
            end
            for connection in self._connections
            for end in connection.ends
            if end.process is process and not end.is_gone
        ]

    def _leave(self, process: Process) -> list[VirtualTransport]:
        for server in [server for server in self._servers.values() if server.process is process]:
            server.close()
        standing = self.open_ends(process)
        for end in standing:
            end.lose(None)
        return standing

    # what streams ask

    def is_blocked(self, source: str, target: str) -> bool:
        """Whether a packet that should arrive now does not."""
        if target not in self.processes:
            return True
        if source == target:
            return False
        return (source, target) in self._partitions or not self._unreachable.isdisjoint(
            (source, target)
        )

    def quality_between(self, source: str, target: str) -> LinkQuality:
        return (
            WITHIN_A_HOST
            if source == target
            else self._qualities.get((source, target), self.quality)
        )

    def arrived(self, stream: Stream, data: bytes) -> None:
        self._note("arrived", stream.source, stream.target, len(data), zlib.crc32(data))

    def forget(self, connection: Connection) -> None:
        """Both of its ends are gone."""
        self._connections.pop(connection, None)

    # what the loop asks

    async def listen(
        self,
        factory: Callable[[], asyncio.BaseProtocol],
        host: str | Sequence[str] | None,
        port: int,
    ) -> VirtualServer:
        process = self._running_process()
        address = self._own_address(process, host)
        port = port or self._free_port(process.address)
        if (process.address, port) in self._servers:
            raise OSError(
                errno.EADDRINUSE,
                f"error while attempting to bind on address {(address, port)!r}: in use",
            )
        server = self._servers[process.address, port] = VirtualServer(
            self, process, factory, (address, port)
        )
        return server

    def unlisten(self, address: str, port: int) -> None:
        del self._servers[address, port]

    async def connect(
        self, factory: Callable[[], P], host: str, port: int
    ) -> tuple[VirtualTransport, P]:
        process = self._running_process()
        source, target = process.address, process.address if host in LOOPBACK else host
        host = "127.0.0.1" if host in LOOPBACK else host
        local = (host if host in LOOPBACK else source, self._free_port(source))
        for pause_s in (*CONNECT_PAUSES_S, 0.0):
            await asyncio.sleep(self._delay_s(source, target))
            if not self.is_blocked(source, target) and not self.is_blocked(target, source):
                return await self._answer_connect(process, factory, local, (host, port), target)
            await asyncio.sleep(pause_s)
        raise TimeoutError(errno.ETIMEDOUT, f"Connect call failed {(host, port)!r}")

    async def _answer_connect(
        self,
        process: Process,
        factory: Callable[[], P],
        local: tuple[str, int],
        remote: tuple[str, int],
        target: str,
    ) -> tuple[VirtualTransport, P]:
        """The connect has arrived at `target`: what comes back, and how long that takes."""
        back_s = self._delay_s(target, process.address)
        server = self._servers.get((target, remote[1]))
        if (
            server is None
            or not server.is_serving()
            or (server.only_loopback and remote[0] not in LOOPBACK)
        ):
            await asyncio.sleep(back_s)
            raise ConnectionRefusedError(errno.ECONNREFUSED, f"Connect call failed {remote!r}")
        connection = Connection(self, (process.address, target))
        self._connections[connection] = None
        client = connection.add_end(process, copy_context(), local, remote)
        accepted = connection.add_end(server.process, server.fork_context(), remote, local)
        client.inbound.opens_at(self.loop.time() + back_s)
        self.loop.call_soon(server.accept, accepted, context=accepted.context)
        try:
            await asyncio.sleep(back_s)
        except asyncio.CancelledError:
            client.abort()
            raise
        if client.is_gone:
            raise ConnectionResetError(errno.ECONNRESET, f"Connect call failed {remote!r}")
        protocol = factory()
        client.open(protocol)
        return client, protocol

    def knock(self, host: str, port: int) -> None:
        """Connect and reset before the server accepts: it gets a connection that has no peer any
        more.

        :raises ConnectionRefusedError: nobody listens there.
        """
        process, server = self._running_process(), self._servers.get((host, port))
        if server is None or not server.is_serving() or self.is_blocked(process.address, host):
            raise ConnectionRefusedError(
                errno.ECONNREFUSED, f"Connect call failed {(host, port)!r}"
            )
        connection = Connection(self, (process.address, host))
        self._connections[connection] = None
        local, remote = (process.address, self._free_port(process.address)), (host, port)
        client = connection.add_end(process, copy_context(), local, remote)
        accepted = connection.add_end(server.process, server.fork_context(), remote, None)
        self.loop.call_soon(server.accept, accepted, context=accepted.context)
        client.abort()

    def _delay_s(self, source: str, target: str) -> float:
        return self.quality_between(source, target).delay_s(self.random)

    def _running_process(self) -> Process:
        process = current_process.get()
        if process is None:
            raise RuntimeError(
                "only what runs on a host has a network: start it with Host.start or Host.call"
            )
        if not process.alive:
            raise OSError(errno.ENETDOWN, "Network is down")
        return process

    def _own_address(self, process: Process, host: str | Sequence[str] | None) -> str:
        name = host if isinstance(host, str) else (host or [""])[0]
        if name in ANY_ADDRESS:
            return "0.0.0.0"
        if name != process.address and name not in LOOPBACK:
            raise OSError(
                errno.EADDRNOTAVAIL,
                f"error while attempting to bind on address {name!r}: not of this host",
            )
        return name

    def _free_port(self, address: str) -> int:
        port = self._next_port.get(address, FIRST_FREE_PORT)
        while (address, port) in self._servers:
            port += 1
        self._next_port[address] = port + 1
        return port


class NetworkedLoop(VirtualLoop):
    """The virtual loop with the two calls that open sockets; TLS is left out, it would bring real
    randomness.
    """

    network: Network

    async def create_server(  # type: ignore[override]
        self,
        protocol_factory: Callable[[], asyncio.BaseProtocol],
        host: str | Sequence[str] | None = None,
        port: int | None = None,
        *,
        ssl: object = None,
        start_serving: bool = True,
        **_: object,
    ) -> VirtualServer:
        _refuse_tls(ssl)
        server = await self.network.listen(protocol_factory, host, port or 0)
        if start_serving:
            await server.start_serving()
        return server

    async def create_connection(  # type: ignore[override]
        self,
        protocol_factory: Callable[[], P],
        host: str,
        port: int,
        *,
        ssl: object = None,
        **_: object,
    ) -> tuple[VirtualTransport, P]:
        _refuse_tls(ssl)
        return await self.network.connect(protocol_factory, host, port)

    async def getaddrinfo(self, host: Any, port: Any, **_: int) -> Any:
        """There are no names here: every address is its own."""
        address = (host, port)
        return [(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP, "", address)]


def _refuse_tls(ssl: object) -> None:
    if ssl:
        raise NotImplementedError("no TLS on the simulated network")
