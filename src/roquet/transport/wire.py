"""The sending side of a connection: bytes out, back-pressure, and how it ends."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from roquet.errors import CallTimeout, PeerError, Refused
from roquet.protocol.remoting.codes import ResponseCode
from roquet.protocol.remoting.command import Command
from roquet.transport.failures import failure
from roquet.transport.peers import Peers

END_S: Final = 1.0
"""Seconds that a peer has to read its last answers when the connection is closed."""
GATHERED_MAX: Final = 64 * 1024
"""Bytes after which gathered frames are written before the turn ends: so much is worth a write of
its own, and the peer can begin with it."""


class Wire(asyncio.Protocol):
    """The sending half of a connection, for handlers, calls and later answers.

    Invariant: `_transport` is None before the connection is established and after it is lost.
    `_is_full` says whether the peer has left more bytes unread than it may. While frames are
    gathered, a flush is due; frames leave in the order of sending.

    :param is_server: this side accepted the connection. Only a server stops reading while its peer
        does not read: if both sides did so, both could wait for each other for ever.
    :param peers: the connections that share limits with this one.
    """

    __slots__ = (
        "_gathered",
        "_gathered_size",
        "_is_flush_due",
        "_is_full",
        "_loop",
        "_on_writable",
        "_room",
        "_sent",
        "_transport",
        "_unread_answers",
        "is_server",
        "last_active",
        "peer_address",
        "peer_host",
        "peer_host_name",
        "peers",
    )

    def __init__(self, peers: Peers, *, is_server: bool) -> None:
        self.peers = peers
        self.is_server = is_server
        self.peer_address = ""
        self.peer_host_name = ""
        self.peer_host = b""
        """The peer as a record stores it: address and port."""
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self.last_active = self._loop.time()
        self._sent = 0
        """Bytes written to the transport so far."""
        self._gathered: list[bytes] = []
        """Frames that are written when the turn of the loop ends."""
        self._gathered_size = 0
        self._is_flush_due = False
        self._is_full = False
        self._unread_answers = 0
        """Bytes of answers made since the peer stopped reading."""
        self._on_writable: Callable[[], None] | None = None
        self._room: asyncio.Future[None] | None = None
        """Done when callers of `room` may send more; None if nobody waits."""

    # sending

    @property
    def is_open(self) -> bool:
        return self._transport is not None and not self._transport.is_closing()

    @property
    def is_writable(self) -> bool:
        """Whether the connection is open and the peer reads; notifications wait until it does."""
        return self.is_open and not self._is_full

    @property
    def unread(self) -> int:
        """Bytes that were sent and that the peer has not read: gathered, or in the transport."""
        if self._transport is None:
            return 0
        return self._gathered_size + self._transport.get_write_buffer_size()

    @property
    def sent_bytes(self) -> int:
        """Bytes that were sent so far; the peer may not have read the last of them."""
        return self._sent

    @property
    def is_held_back(self) -> bool:
        """Whether no more requests are answered until the peer reads."""
        return self._is_full and self.is_server

    @property
    def is_connected(self) -> bool:
        """Whether it was established, and is not lost; it may be closing."""
        return self._transport is not None

    @property
    def is_reading(self) -> bool:
        """Whether it is connected, and requests are read: not while earlier ones must wait."""
        return self._transport is not None and self._transport.is_reading()

    @property
    def is_tls(self) -> bool:
        transport = self._transport
        return transport is not None and transport.get_extra_info("sslcontext") is not None

    def send(self, data: bytes) -> None:
        """Write whole frames. On a closed connection they are dropped: its callers got an error."""
        transport = self._transport
        if data and transport is not None and not transport.is_closing():
            if self._gathered:
                self._flush()
            self.last_active = self._loop.time()
            self._sent += len(data)
            transport.write(data)
            self.peers.passed(len(data))

    def send_soon(self, data: bytes) -> None:
        """As `send`, but frames of one turn of the loop leave in one write at the turn's end.

        For senders of which many may send in the same turn. A write costs each side more than all
        else that it does for a small frame.
        """
        size = len(data)
        if size >= GATHERED_MAX:
            self.send(data)  # a large frame is not copied
            return
        if not self._is_flush_due:
            self._is_flush_due = True
            self._loop.call_soon(self._end_turn)
        self._gathered.append(data)
        self._gathered_size += size
        if self._gathered_size >= GATHERED_MAX:
            self._flush()

    def _end_turn(self) -> None:
        self._is_flush_due = False
        self._flush()

    def _flush(self) -> None:
        data = b"".join(self._gathered)
        self._gathered.clear()
        self._gathered_size = 0
        self.send(data)

    def refuse_unwritable(self) -> None:
        """:raises Refused: the connection is open, and the peer does not read."""
        if self.is_open and not self.is_writable:
            raise Refused(ResponseCode.SYSTEM_BUSY, f"[OVERLOAD]{self.unread_remark}")

    @property
    def unread_remark(self) -> str:
        """Error text for a peer that does not read."""
        return f"client {self.peer_address} does not read, {self.unread} bytes wait for it"

    def count_answer(self, size: int) -> None:
        """Count an answer of the side that opened the connection.

        A server stops reading from a peer that does not read. A client has to go on reading, since
        it waits for responses to its own requests; so its answers are bounded here.

        :raises PeerError: the peer sends requests and reads no answers.
        """
        if self.is_server or not self._is_full:
            return
        self._unread_answers += size
        if self._unread_answers > self.peers.limits.answer_bytes_per_connection_max:
            raise PeerError(
                f"the peer sends requests and reads no answers, {self.unread} bytes are unread"
            )

    def failure(self, request: Command, error: Exception) -> Command:
        """The response to a request of the peer that failed with `error`.

        :raises PeerError: `error` is one; the caller ends the connection.
        """
        return failure(request, error, self, self.peers)

    # back-pressure

    def pause_writing(self) -> None:
        """Called when the peer does not read: a server reads no more requests until it does."""
        self._is_full = True
        if self.is_server:
            self.pause_reading()

    def resume_writing(self) -> None:
        self._is_full = False
        self._unread_answers = 0
        self._room_is_free()

    def pause_if_unread(self) -> None:
        """Stop reading requests while the peer has left any answer unread, until it has read most.

        For requests whose answers are made in parts: the normal limit does not see those to come.
        """
        transport = self._transport
        if transport is not None and self.is_open and self.unread:
            # calls `pause_writing`; `resume_writing` comes by the limits that are set after it
            transport.set_write_buffer_limits(high=0)
            transport.set_write_buffer_limits(high=self.peers.unread_max)

    def pause_reading(self) -> None:
        if self._transport is not None and not self._transport.is_closing():
            self._transport.pause_reading()

    def resume_reading(self) -> None:
        if self._transport is not None and not self._transport.is_closing():
            self._transport.resume_reading()

    def when_writable(self, callback: Callable[[], None]) -> None:
        """Call `callback` once, when the peer reads again. It replaces an earlier callback."""
        self._on_writable = callback

    def _tell_writable(self) -> None:
        callback = self._on_writable
        if callback is not None and self.is_writable:
            self._on_writable = None
            callback()

    async def room(self, timeout_ms: int) -> None:
        """Wait until the peer has read enough of its answers, or the connection ended.

        :raises CallTimeout: the peer did not read within `timeout_ms`.
        """
        if self.is_writable or not self.is_open:
            return
        if self._room is None:
            self._room = self._loop.create_future()
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                await asyncio.shield(self._room)
        except TimeoutError:
            raise CallTimeout(
                f"{self.peer_address} does not read: {self.unread} bytes wait for it"
            ) from None

    def _room_is_free(self) -> None:
        if self._room is not None:
            self._room.set_result(None)
            self._room = None

    def _lost(self) -> None:
        self._transport = None
        self._flush()
        self._on_writable = None
        self._room_is_free()

    def set_unread_max(self, size: int) -> None:
        """Set the number of unread bytes above which the peer counts as not reading."""
        if self._transport is not None and self.is_open:
            self._transport.set_write_buffer_limits(high=size)

    # closing

    def eof_received(self) -> None:
        """Called when the peer sends no more; asyncio then closes the connection as `close` does.

        The peer may still read.
        """
        self._flush()

    def close(self) -> None:
        """Close, whenever the peer has read what was sent."""
        if self._transport is not None:
            self._flush()
            self._transport.close()

    def end(self) -> None:
        """Close; unsent answers are sent first, if the peer reads them within `END_S`."""
        if self._transport is not None:
            self.close()
            self._loop.call_later(END_S, self.abort)

    def abort(self) -> None:
        """Close at once; unsent answers are dropped."""
        if self._transport is not None:
            self._transport.abort()

    def broken(self, error: PeerError) -> None:
        """Close, since the peer broke the protocol."""
        self.peers.broken(self, str(error))
        self.end()
