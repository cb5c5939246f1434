"""One TCP connection: a transport at each end, as asyncio's protocols know it, and a stream of
packets each way.
"""

from __future__ import annotations

import asyncio
import errno
import socket
from collections import deque
from collections.abc import Callable, Iterable
from contextvars import Context
from typing import TYPE_CHECKING, Any, Final, TypeAlias, cast

from tests.simulation.threads import Process

if TYPE_CHECKING:
    from tests.simulation.network import Network

Buffer: TypeAlias = "bytes | bytearray | memoryview[Any]"

RETRANSMIT_S: Final = 924.0
"""So long a sender repeats what is not acknowledged, as Linux does."""
RETRANSMIT_PAUSE_S_MAX: Final = 120.0
"""The longest pause between two repetitions."""
HIGH_WATER: Final = 64 * 1024


class SocketStub:
    """What `get_extra_info("socket")` gives: it has addresses, takes every option and does
    nothing.
    """

    family = socket.AF_INET
    type = socket.SOCK_STREAM
    proto = socket.IPPROTO_TCP

    def __init__(self, local: tuple[str, int], remote: tuple[str, int] | None = None) -> None:
        self._local = local
        self._remote = remote

    def getsockname(self) -> tuple[str, int]:
        return self._local

    def getpeername(self) -> tuple[str, int]:
        if self._remote is None:
            raise OSError(errno.ENOTCONN, "Transport endpoint is not connected")
        return self._remote

    def setsockopt(self, *_: object) -> None:
        pass

    def getsockopt(self, *_: object) -> int:
        return 0

    def fileno(self) -> int:
        return -1


class Stream:
    """One direction.

    Invariant: packets arrive in the order they were sent; `unread` counts the bytes sent and not yet
    handed to the receiver and never passes the window. A packet without bytes is the end of the
    stream.
    """

    def __init__(self, network: Network, source: str, target: str) -> None:
        self.source = source
        self.target = target
        self.is_silent = False
        self.unread = 0
        self.sender: VirtualTransport
        self.receiver: VirtualTransport
        self._network = network
        self._packets: deque[tuple[float, bytes]] = deque()
        self._last_arrival = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self._held_since: float | None = None
        self._giving_up: asyncio.TimerHandle | None = None

    # the sender's side

    @property
    def room(self) -> int:
        return max(0, self._network.quality_between(self.source, self.target).window - self.unread)

    def send(self, data: bytes) -> None:
        """At most `room` bytes."""
        quality = self._network.quality_between(self.source, self.target)
        for packet in quality.packets(data, self._network.random):
            self._packets.append((self._arrival(), packet))
        self.unread += len(data)
        self.hand_over()

    def send_end(self) -> None:
        self._packets.append((self._arrival(), b""))
        self.hand_over()

    def send_reset(self) -> None:
        """What is on its way already may or may not get there before it."""
        if self._network.random.random() < 0.5:
            self._drop_packets()
        self._network.loop.call_at(
            self._arrival(), self._reset_arrives, context=self.receiver.context
        )

    def drop_what_is_held(self) -> None:
        """The sender is without power: what did not get through is not sent again."""
        if self._held_since is not None:
            self._drop_packets()

    def opens_at(self, moment: float) -> None:
        """Nothing may arrive before."""
        self._last_arrival = moment

    def _arrival(self) -> float:
        delay_s = self._network.quality_between(self.source, self.target).delay_s(
            self._network.random
        )
        self._last_arrival = max(self._last_arrival, self._network.loop.time() + delay_s)
        return self._last_arrival

    def stop(self) -> None:
        """Nobody is left at either end."""
        self._drop_packets()

    def _drop_packets(self) -> None:
        """None that is sent later comes in the time of one that was dropped."""
        self._packets.clear()
        self._cancel_giving_up()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    # on the way

    @property
    def _is_blocked(self) -> bool:
        return self.is_silent or self._network.is_blocked(self.source, self.target)

    def _hold(self) -> None:
        if self._held_since is None:
            self._held_since = self._network.loop.time()
            timed_out = TimeoutError(errno.ETIMEDOUT, "Connection timed out")
            self._giving_up = self._network.loop.call_later(
                RETRANSMIT_S, self.sender.lose, timed_out, context=self.sender.context
            )

    def _cancel_giving_up(self) -> None:
        self._held_since = None
        if self._giving_up is not None:
            self._giving_up.cancel()
            self._giving_up = None

    def go_on(self) -> None:
        """The way may be free again: the next repetition gets through."""
        if self._held_since is not None and not self._is_blocked:
            held_s = self._network.loop.time() - self._held_since
            self._cancel_giving_up()
            pause_s = self._network.random.uniform(0.0, min(held_s, RETRANSMIT_PAUSE_S_MAX))
            self._set_timer(self._network.loop.time() + pause_s)
        self.sender.flush_soon()

    def _reset_arrives(self) -> None:
        """One that does not get through ends the stream all the same: what it took with it would be
        missing.
        """
        if self._is_blocked:
            self.is_silent = True
        else:
            self.receiver.lose(ConnectionResetError(errno.ECONNRESET, "Connection reset by peer"))

    # the receiver's side

    @property
    def has_arrived_unread(self) -> bool:
        return any(when <= self._network.loop.time() and packet for when, packet in self._packets)

    def hand_over(self) -> None:
        """See to it that the receiver gets the next packets when they are there."""
        if self._timer is None and self._packets and self.receiver.takes_packets:
            self._set_timer(max(self._network.loop.time(), self._packets[0][0]))

    def _set_timer(self, moment: float) -> None:
        if self._timer is None:
            self._timer = self._network.loop.call_at(
                moment, self._arrive, context=self.receiver.context
            )

    def _arrive(self) -> None:
        self._timer = None
        if self._is_blocked:
            self._hold()
        elif self._packets and self.receiver.takes_packets:
            if self._packets[0][1]:
                self._arrive_bytes(self._take_what_is_there())
            else:
                self._packets.popleft()
                self.receiver.receive_end()
            self.hand_over()

    def _take_what_is_there(self) -> bytes:
        now = self._network.loop.time()
        there = [self._packets.popleft()[1]]
        while self._packets and self._packets[0][0] <= now and self._packets[0][1]:
            there.append(self._packets.popleft()[1])
        return there[0] if len(there) == 1 else b"".join(there)

    def _arrive_bytes(self, data: bytes) -> None:
        self._network.arrived(self, data)
        taken = self.receiver.receive(data)
        if taken < len(data):
            self._packets.appendleft((self._network.loop.time(), data[taken:]))
        self.unread -= taken
        if not self._network.is_blocked(self.target, self.source):
            self.sender.flush_soon()


class Connection:
    """Two ends and the two streams between them; `hosts` in the order client, server."""

    def __init__(self, network: Network, hosts: tuple[str, str]) -> None:
        client, server = hosts
        self.hosts = hosts
        self.ends: list[VirtualTransport] = []
        self.streams = (Stream(network, client, server), Stream(network, server, client))
        self._network = network

    def add_end(
        self,
        process: Process,
        context: Context,
        local: tuple[str, int],
        remote: tuple[str, int] | None,
    ) -> VirtualTransport:
        """The client's end first; `remote` is None for one whose peer is gone already."""
        outbound, inbound = self.streams if not self.ends else self.streams[::-1]
        end = VirtualTransport(
            self._network.loop,
            process,
            context,
            (local, remote),
            (outbound, inbound),
            self._one_gone,
        )
        outbound.sender = inbound.receiver = end
        self.ends.append(end)
        return end

    def _one_gone(self) -> None:
        if all(end.is_gone for end in self.ends):
            for stream in self.streams:
                stream.stop()
            self._network.forget(self)


class VirtualTransport(asyncio.Transport):
    """One end, as the protocol on it sees it.

    Invariant: between `open` and the one `connection_lost` the protocol gets bytes in order, and none
    while it pauses; `is_gone` is the moment the kernel forgets the connection, after that nothing
    is sent but resets.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        process: Process,
        context: Context,
        addresses: tuple[tuple[str, int], tuple[str, int] | None],
        streams: tuple[Stream, Stream],
        on_gone: Callable[[], None],
    ) -> None:
        local, remote = addresses
        super().__init__(
            {"sockname": local, "peername": remote, "socket": SocketStub(local, remote)}
        )
        self.process = process
        self.context = context
        self.outbound, self.inbound = streams
        self.is_gone = False
        self._loop = loop
        self._on_gone = on_gone
        self._on_lost: Callable[[VirtualTransport], None] | None = None
        self._protocol: asyncio.BaseProtocol | None = None
        self._backlog = bytearray()
        self._low_water, self._high_water = HIGH_WATER // 4, HIGH_WATER
        self._is_reading = True
        self._is_closing = False
        self._ends_writing = False
        self._end_sent = False
        self._protocol_paused = False
        self._flush_asked = False

    def open(
        self,
        protocol: asyncio.BaseProtocol,
        on_lost: Callable[[VirtualTransport], None] | None = None,
    ) -> None:
        """The connection stands: the protocol meets its transport, unless the connection is gone
        again already.
        """
        if not self.is_gone:
            self._protocol = protocol
            self._on_lost = on_lost
            protocol.connection_made(self)
            self.inbound.hand_over()

    # what the network calls

    @property
    def takes_packets(self) -> bool:
        return self.is_gone or (
            self._protocol is not None and self._is_reading and not self._is_closing
        )

    def receive(self, data: bytes) -> int:
        """How many of the bytes were taken; what reaches an end that is gone is answered with a
        reset.
        """
        if self.is_gone:
            self.outbound.send_reset()
            return len(data)
        if isinstance(self._protocol, asyncio.BufferedProtocol):
            return _fill_buffer_of(self._protocol, data)
        cast(asyncio.Protocol, self._protocol).data_received(data)
        return len(data)

    def receive_end(self) -> None:
        stays_open = self.is_gone or cast(asyncio.Protocol, self._protocol).eof_received()
        if not stays_open:
            self.close()

    def lose(self, error: Exception | None) -> None:
        """The connection is broken, or given up."""
        if not self.is_gone:
            self._backlog.clear()
            self._is_closing = True
            self._go(error)

    def flush_soon(self) -> None:
        """The window may have room again."""
        if self._backlog and not self._flush_asked:
            self._flush_asked = True
            self._loop.call_soon(self._flush, context=self.context)

    def _flush(self) -> None:
        self._flush_asked = False
        if self.is_gone:
            return
        sent = bytes(self._backlog[: self.outbound.room])
        if sent:
            self.outbound.send(sent)
            del self._backlog[: len(sent)]
        if self._protocol_paused and len(self._backlog) <= self._low_water:
            self._protocol_paused = False
            cast(asyncio.BaseProtocol, self._protocol).resume_writing()
        self._end_when_all_is_sent()

    def _end_when_all_is_sent(self) -> None:
        if self._backlog:
            return
        if self._is_closing:
            self._loop.call_soon(self._finish, context=self.context)
        elif self._ends_writing:
            self._send_end()

    def _send_end(self) -> None:
        if not self._end_sent:
            self._end_sent = True
            self.outbound.send_end()

    def _finish(self) -> None:
        """As kernels do: bytes that nobody read turn the end into a reset."""
        if self.is_gone:
            return
        if self.inbound.has_arrived_unread:
            self.outbound.send_reset()
        else:
            self._send_end()
        self._go(None)

    def _go(self, error: Exception | None) -> None:
        self.is_gone = True
        self._on_gone()
        self.inbound.hand_over()
        if self._protocol is not None:
            self._loop.call_soon(self._tell_lost, self._protocol, error, context=self.context)

    def _tell_lost(self, protocol: asyncio.BaseProtocol, error: Exception | None) -> None:
        protocol.connection_lost(error)
        if self._on_lost is not None:
            self._on_lost(self)

    # what protocols call

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        self._protocol = protocol

    def get_protocol(self) -> asyncio.BaseProtocol:
        return cast(asyncio.BaseProtocol, self._protocol)

    def is_closing(self) -> bool:
        return self._is_closing

    def is_reading(self) -> bool:
        return self._is_reading and not self._is_closing

    def pause_reading(self) -> None:
        self._is_reading = False

    def resume_reading(self) -> None:
        if not self._is_closing and not self._is_reading:
            self._is_reading = True
            self.inbound.hand_over()

    def write(self, data: Buffer) -> None:
        if not isinstance(data, bytes | bytearray | memoryview):
            raise TypeError(
                f"data argument must be a bytes-like object, not {type(data).__name__!r}"
            )
        if self._ends_writing:
            raise RuntimeError("Cannot call write() after write_eof()")
        if self._is_closing or not data:
            return
        data = bytes(data)
        sent = 0 if self._backlog else min(len(data), self.outbound.room)
        if sent:
            self.outbound.send(data[:sent])
        if sent < len(data):
            self._backlog += data[sent:]
            self._pause_protocol_when_full()

    def writelines(self, list_of_data: Iterable[Buffer]) -> None:
        self.write(b"".join(list_of_data))

    def write_eof(self) -> None:
        if not self._is_closing and not self._ends_writing:
            self._ends_writing = True
            self._end_when_all_is_sent()

    def can_write_eof(self) -> bool:
        return True

    def close(self) -> None:
        if not self._is_closing:
            self._is_closing = True
            self._end_when_all_is_sent()

    def abort(self) -> None:
        if not self.is_gone:
            self.outbound.send_reset()
            self.lose(None)

    def get_write_buffer_size(self) -> int:
        return len(self._backlog)

    def get_write_buffer_limits(self) -> tuple[int, int]:
        return self._low_water, self._high_water

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        if high is None:
            high = HIGH_WATER if low is None else 4 * low
        if low is None:
            low = high // 4
        if not high >= low >= 0:
            raise ValueError(f"high ({high!r}) must be >= low ({low!r}) must be >= 0")
        self._low_water, self._high_water = low, high
        self._pause_protocol_when_full()

    def _pause_protocol_when_full(self) -> None:
        if len(self._backlog) > self._high_water and not self._protocol_paused:
            self._protocol_paused = True
            cast(asyncio.BaseProtocol, self._protocol).pause_writing()


def _fill_buffer_of(protocol: asyncio.BufferedProtocol, data: bytes) -> int:
    buffer = memoryview(protocol.get_buffer(len(data)))
    size = min(len(buffer), len(data))
    buffer[:size] = data[:size]
    protocol.buffer_updated(size)
    return size
