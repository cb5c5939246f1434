"""One TCP connection that speaks remoting: frames in and out, responses matched to requests.

Either side may send requests. All whole frames of one read are handled before one write sends
their answers. A large read is answered in several turns of the loop, so that the peer has something
to do meanwhile.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Final, TypeAlias, cast

from roquet.errors import PeerError
from roquet.protocol.records.record import host_bytes
from roquet.protocol.remoting.command import Command
from roquet.protocol.remoting.frame import FrameBuffer
from roquet.transport.calls import Calls
from roquet.transport.dispatcher import Dispatcher
from roquet.transport.handling import FastPathMakers, FastPaths, HandlerFor
from roquet.transport.later_answers import LaterAnswers
from roquet.transport.limits import SLOWEST
from roquet.transport.peers import SILENT, Peers
from roquet.transport.read_progress import PeerReadProgress
from roquet.transport.wire import Wire

_GONE: Final = ("0.0.0.0", 0)
"""Address of a peer that disconnected before its address was read; `connection_lost` follows."""


class Connection(Wire):
    """A TCP connection to a client or server.

    `calls` sends requests to the peer. `dispatcher` answers those of the peer: those that
    `fast_paths` do not know by handlers, which may leave them to `later`.

    Invariant: no part refers to the connection after it ended.

    :param handlers: request code -> handler, for requests of the peer.
    :param on_open: called once, when the connection is established.
    :param on_closed: called once, when the connection ended, for any reason.
    :param is_server: see `Wire`.
    :param encode: encodes (and signs) a request that is sent.
    :param peers: the connections that share limits with this one; None: limits of its own.
    :param fast_paths: the types of fast paths that handlers may ask for, and what makes them.
    """

    __slots__ = (
        "__weakref__",
        "_frame_began",
        "_frames",
        "_heard_at",
        "_is_admitted",
        "_on_closed",
        "_on_open",
        "_read_progress",
        "calls",
        "dispatcher",
        "fast_paths",
        "later",
        "received_bytes",
    )

    def __init__(
        self,
        handlers: Mapping[int, Handler],
        on_open: Callable[[Connection], None] | None = None,
        on_closed: Callable[[Connection], None] | None = None,
        *,
        is_server: bool = False,
        encode: Callable[[Command], bytes] = Command.encode,
        peers: Peers | None = None,
        fast_paths: FastPathMakers[Connection] | None = None,
    ) -> None:
        super().__init__(Peers() if peers is None else peers, is_server=is_server)
        self._on_open = on_open
        self._on_closed = on_closed
        self._is_admitted = False
        self._frames = FrameBuffer(self.peers.limits.request_bytes_per_connection_max)
        self._heard_at = self.last_active
        self._frame_began = self.last_active
        self._read_progress = PeerReadProgress(self.last_active)
        self.calls = Calls(self, encode)
        self.received_bytes = 0
        self.later = LaterAnswers(self)
        self.fast_paths = FastPaths(self, fast_paths or {})
        self.dispatcher = Dispatcher(self, handlers, self.fast_paths, self.calls, self.later)

    # called by asyncio

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transport is no subclass of asyncio.Transport, but has its methods
        self._transport = cast(asyncio.Transport, transport)
        self._transport.set_write_buffer_limits(high=self.peers.unread_max)
        host, port = (transport.get_extra_info("peername") or _GONE)[:2]
        self.peer_host_name = host
        self.peer_address = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        self.peer_host = host_bytes(host, port)
        self._is_admitted = self.peers.admits(self)
        if not self._is_admitted:
            self._transport.abort()
        elif self._on_open is not None:
            self._on_open(self)

    def data_received(self, data: bytes) -> None:
        self.last_active = self._heard_at = now = self._loop.time()
        self.received_bytes += len(data)
        is_going_on = bool(self._frames.pending)
        try:
            frames = self._frames.feed(data)
            if frames or not is_going_on:
                self._frame_began = now
            if self._frames.pending:
                self.peers.passed(len(data))
            self.dispatcher.received(frames, len(data), now)
        except PeerError as error:
            self.broken(error)

    def resume_writing(self) -> None:
        super().resume_writing()
        self.dispatcher.go_on()
        self._tell_writable()

    def resume_reading(self) -> None:
        # the time in which nothing was read must not count against a partial frame
        self._frame_began = self._loop.time()
        super().resume_reading()

    def connection_lost(self, exc: Exception | None) -> None:
        self.calls.ended(exc)
        self.dispatcher.ended()
        self.fast_paths.ended()
        self.later.ended()
        if self._transport is None:
            return  # never established, or already handled by `is_lost`
        self._lost()
        self.peers.closed(self)
        if self._is_admitted and self._on_closed is not None:
            self._on_closed(self)

    def is_lost(self) -> None:
        """Clean up after a failed or cancelled attempt to connect.

        The attempt may have succeeded in the same turn of the loop. uvloop then closes the
        transport, but does not call `connection_lost`: the connection would count as open for ever.
        """
        self.connection_lost(None)

    # as one of many (`Peer`)

    @property
    def unanswered(self) -> int:
        """Bytes of the peer's requests that are incomplete or not answered yet."""
        return len(self._frames.pending) + self.dispatcher.held_size + self.later.kept

    def held(self, now: float) -> tuple[int, int]:
        if self._transport is None:
            return 0, 0
        unread = self.unread
        sent = self._sent + self._gathered_size
        self._read_progress.sample(sent, unread, now, self.peers.limits.idle_s)
        return unread, self.unanswered

    def still_s(self, now: float) -> tuple[float, float]:
        return now - self._read_progress.moved_at, now - self._heard_at

    def why_end(self, now: float) -> str:
        unread, _ = self.held(now)
        idle_s, partial_s = self.peers.limits.idle_s, self.peers.limits.partial_s
        is_silent = now - self.last_active >= idle_s
        if unread and (is_silent or self._read_progress.is_overdue(now, idle_s)):
            return f"the peer does not read, or too slowly, {unread} bytes are unread"
        partial = len(self._frames.pending)
        whole = self._frames.wanted
        if partial and now - self._frame_began >= partial_s + whole / SLOWEST:
            return f"a request stays incomplete, {partial} of {whole} bytes were received"
        return SILENT if is_silent else ""


Handler: TypeAlias = HandlerFor[Connection]
"""Answers a request of a connection. See `roquet.transport.handling`."""
