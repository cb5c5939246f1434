"""One TCP connection that speaks remoting: frames in and out, responses matched to requests.

Either side may send requests. All whole frames of one read are handled before one write sends
their answers. A large read is answered in several writes, so that the peer has something to do
meanwhile. Nothing is allocated per request beyond the request itself: only a call that waits for
its response has a future.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from functools import partial
from math import inf
from typing import Any, Final, TypeAlias, cast

from roquet.errors import CallTimeout, ConnectionClosed, PeerError, Refused
from roquet.protocol.records.record import host_bytes
from roquet.protocol.remoting.codes import ResponseCode
from roquet.protocol.remoting.command import HEADER_SIZE_MAX, ONE_WAY, Command, decode
from roquet.protocol.remoting.frame import FRAME_SIZE_MAX, FrameBuffer
from roquet.transport.failures import failure
from roquet.transport.handling import Answer, FastPath, HandlerFor, SlowPath
from roquet.transport.limits import SLOWEST
from roquet.transport.peers import SILENT, Peers
from roquet.transport.slow_reader import SlowReader

END_S: Final = 1.0
"""Seconds that a peer has to read its last answers when the connection is closed."""
_ANSWERED_AT_ONCE: Final = 96 * 1024
"""Request bytes that one write answers. 64 senders of 2.5 KB each were a tenth faster with this
bound than with one write per read.
"""
_PARTS_UNREAD: Final = 4
"""Part of a peer's unread bytes that is made before checking whether the peer reads: 1 / this.

One read may bring thousands of small requests for large answers.
"""
_FIRST_FRAMES: Final = 16
"""Frames of a new connection that are handled first: they may teach its fast paths the others."""
_SLOW_PATH_COST: Final = 16
"""Time of a request on the slow path, in units of a request on a fast path."""
_LATER_COST: Final = 1024
"""Bytes counted for a request that is answered later, in addition to its own bytes."""
_BYTES_PER_COST: Final = 4096
"""Bytes of large answers that take as long as one request: they are copied three times."""
_TURN_S: Final = 0.004
"""Seconds that one connection may spend on the slow path per turn: some requests create a file."""
_TURN_COST: Final = 4096
"""Cost that one connection may cause per turn, about 12 ms. Its other frames wait for the next
turn, so that other connections are served.
"""
_LARGE_READ: Final = 128 * 1024
"""Bytes of a read after which reading pauses for a turn. While reads fill its buffer, uvloop reads
from one connection dozens of times before it serves another.
"""
_GONE: Final = ("0.0.0.0", 0)
"""Address of a peer that disconnected before its address was read; `connection_lost` follows."""


class Connection(asyncio.Protocol):
    """A TCP connection to a client or server.

    Invariant: `_calls` holds exactly the requests that were sent and have no response yet.

    :param handlers: request code -> handler, for requests of the peer.
    :param on_open: called once, when the connection is established.
    :param on_closed: called once, when the connection ended, for any reason.
    :param holds_back: stop reading requests while the peer does not read its answers. For servers
        only: if both sides did so, both could wait for each other for ever.
    :param encode: encodes (and signs) a request that is sent.
    :param peers: the connections that share limits with this one; None: limits of its own.
    """

    def __init__(
        self,
        handlers: Mapping[int, Handler],
        on_open: Callable[[Connection], None] | None = None,
        on_closed: Callable[[Connection], None] | None = None,
        *,
        holds_back: bool = False,
        encode: Callable[[Command], bytes] = Command.encode,
        peers: Peers | None = None,
    ) -> None:
        self._peers = Peers() if peers is None else peers
        self._is_admitted = False
        self._holds_back = holds_back
        self._header_size_max = HEADER_SIZE_MAX if holds_back else FRAME_SIZE_MAX
        """A client accepts larger ones: a response may list the ids of a batch's messages."""
        self._encode = encode
        self._handlers = handlers
        self._on_open = on_open
        self._on_closed = on_closed
        self._loop = asyncio.get_running_loop()
        self._frames = FrameBuffer(self._peers.limits.request_bytes_per_connection_max)
        self._calls: dict[int, asyncio.Future[Command]] = {}
        self._later: set[asyncio.Task[None]] = set()
        self._kept = 0
        """Bytes of requests that are answered later."""
        self._next_opaque = 0
        self._transport: asyncio.Transport | None = None
        self.fast_paths: list[FastPath] = []
        """Tried in order; a frame that none of them matches takes the slow path."""
        self.last_active = self._heard_at = self._frame_began = self._loop.time()
        self._sent = 0
        """Bytes written to the transport so far."""
        self._reading = SlowReader(self.last_active)
        self._is_full = False
        self._unheard = 0
        """Bytes of answers made since the peer stopped reading. Only counted by the side that
        opened the connection: it goes on reading then."""
        self._asked: Iterator[bytes] = iter(())
        """The frames that are being answered."""
        self._made = 0
        """Bytes of their answers so far."""
        self._left: list[bytes] = []
        """Frames of `_asked` that were put back, since enough answers were made for now."""
        self._turn_end = inf
        """Loop time at which the remaining frames of a read are left for the next turn."""
        self._slow_frames = 0
        """Frames that took the slow path so far."""
        self._frame_cost = _SLOW_PATH_COST
        self._held_back: list[bytes] = []
        """Frames that wait until the peer reads, for the next turn, or for an earlier request that
        must be answered first."""
        self._is_waiting = False
        """Whether an `answer_in_order` request is under way: no later request is handled."""
        self.on_writable: Callable[[], None] | None = None
        """Called once, when the peer reads again."""
        self._for_room: list[asyncio.Future[None]] = []
        """One for each caller that waits to send more."""
        self.peer_address = ""
        self.peer_host_name = ""
        self.peer_host = b""
        """The peer as a record stores it: address and port."""
        self._why_closed = ""
        """The error of the first call, if the connection ended before anything was sent."""

    # called by asyncio

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transport is no subclass of asyncio.Transport, but has its methods
        self._transport = cast(asyncio.Transport, transport)
        self._transport.set_write_buffer_limits(high=self._peers.unread_max)
        self.peer_host_name, port = host, _ = (transport.get_extra_info("peername") or _GONE)[:2]
        self.peer_address = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        self.peer_host = host_bytes(host, port)
        self._is_admitted = self._peers.admits(self)
        if not self._is_admitted:
            self._transport.abort()
        elif self._on_open is not None:
            self._on_open(self)

    def data_received(self, data: bytes) -> None:
        self.last_active = self._heard_at = now = self._loop.time()
        is_going_on = bool(self._frames.pending)
        try:
            frames = self._frames.feed(data)
            if frames or not is_going_on:
                self._frame_began = now
            if self._frames.pending:
                self._peers.passed(len(data))
            parts = 1 + len(data) // _ANSWERED_AT_ONCE
            self._answer_in_parts(frames, -(-len(frames) // parts))
        except PeerError as error:
            self._broken(error)
        if self._holds_back and len(data) >= _LARGE_READ and not self._held_back:
            self._hold_back([])

    def _broken(self, error: PeerError) -> None:
        self._peers.broken(self, str(error))
        self.end()

    def connection_lost(self, exc: Exception | None) -> None:
        if self._transport is None:
            return  # already handled by `is_lost`
        loss = self._loss(exc)
        if not self._next_opaque:
            self._why_closed = loss
        self._transport = None
        self._held_back.clear()
        # They refer to the connection: a cycle, and those are rarely collected (`common.garbage`).
        self.fast_paths.clear()
        self._room()
        calls, self._calls = self._calls, {}
        for waiting in calls.values():
            if not waiting.done():
                waiting.set_exception(ConnectionClosed(loss))
        for task in self._later:
            task.cancel()
        self._peers.closed(self)
        if self._is_admitted and self._on_closed is not None:
            self._on_closed(self)

    def is_lost(self) -> None:
        """Clean up after a failed or cancelled attempt to connect.

        The attempt may have succeeded in the same turn of the loop. uvloop then closes the
        transport, but does not call `connection_lost`: the connection would count as open for ever.
        """
        self.connection_lost(None)

    def _loss(self, exc: Exception | None) -> str:
        """Error text for callers that wait for responses, with a guess at the reason.

        Brokers do not say why they close a connection. One that never answered may require TLS.
        With TLS it may have refused the client certificate, which shows after the handshake.
        """
        text = f"{self.peer_address} closed the connection"
        is_heard = self._holds_back or len(self._calls) < self._next_opaque
        if is_heard or self._transport is None:
            return text
        if self._transport.get_extra_info("sslcontext") is None:
            return f"{text} before it answered anything: it may take TLS only (give tls, or useTLS)"
        why = f" ({exc})" if exc is not None else ""
        return (
            f"{text} right after the TLS handshake{why}: "
            "it may want another client certificate, or none is given"
        )

    def pause_writing(self) -> None:
        """Called when the peer does not read: a server reads no more requests until it does."""
        self._is_full = True
        if self._holds_back and self._transport is not None and not self._transport.is_closing():
            self._transport.pause_reading()

    def resume_writing(self) -> None:
        self._is_full = False
        self._unheard = 0
        self._room()
        self._go_on()
        callback = self.on_writable
        if callback is not None and self.is_writable:
            self.on_writable = None
            callback()

    def _room(self) -> None:
        waiting, self._for_room = self._for_room, []
        for each in waiting:
            if not each.done():
                each.set_result(None)

    async def room(self, timeout_ms: int) -> None:
        """Wait until the peer has read enough of its answers, or the connection ended.

        :raises CallTimeout: the peer did not read within `timeout_ms`.
        """
        if self.is_writable or not self.is_open:
            return
        waiting: asyncio.Future[None] = self._loop.create_future()
        self._for_room.append(waiting)
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                await waiting
        except TimeoutError:
            raise CallTimeout(
                f"{self.peer_address} does not read: {self.unread} bytes wait for it"
            ) from None

    def _go_on(self) -> None:
        """Handle the frames that were held back, then resume reading."""
        if self._is_full or not self.is_open:
            return
        frames, self._held_back = self._held_back, []
        try:
            self._answer_in_parts(frames, len(frames))
        except PeerError as error:
            self._broken(error)
        is_done = not self._held_back and not self._is_full and not self._is_waiting
        if is_done and self._holds_back and self._transport is not None and self.is_open:
            # the time in which nothing was read must not count against a partial frame
            self._frame_began = self._loop.time()
            self._transport.resume_reading()

    # frames in

    def _answer_in_parts(self, frames: list[bytes], count_max: int) -> None:
        """Handle `frames` in order and write their answers in parts.

        Holds the rest back when the peer does not read, or when the connection's turn is over.

        :param count_max: frames answered by one write; fewer if they are expensive or large.
        """
        if self._held_back or self._is_waiting:
            self._held_back += frames
            return
        left = _TURN_COST
        self._turn_end = self._loop.time() + _TURN_S if self._holds_back else inf
        while frames:
            count = max(
                1, min(count_max if self._slow_frames else _FIRST_FRAMES, left // self._frame_cost)
            )
            part, frames = (
                (frames, []) if len(frames) <= count else (frames[:count], frames[count:])
            )
            before = self._slow_frames
            began = self._loop.time()
            answers = self._answers(part)
            took = self._loop.time() - began
            if took >= self._peers.watch.notable_s:
                self._peers.watch.held(took, self.peer_address, part, began + took)
            taken = len(part) - len(self._left)
            frames = self._left + frames if self._left else frames
            cost = (
                taken
                + (self._slow_frames - before) * _SLOW_PATH_COST
                + self._made // _BYTES_PER_COST
            )
            self._frame_cost = max(1, cost // taken)
            left -= cost
            if not frames and not self._is_waiting:
                self.send(answers)
                return
            self._send_now(answers)
            is_over = (
                self._is_full
                or left <= 0
                or bool(self._left and self._loop.time() >= self._turn_end)
            )
            if self._is_waiting or (self._holds_back and is_over):
                self._hold_back(frames)
                return

    def _hold_back(self, frames: list[bytes]) -> None:
        self._held_back = frames
        self._peers.passed(sum(map(len, frames)))
        if not self._is_full and self._transport is not None and self.is_open:
            self._transport.pause_reading()
            self._loop.call_soon(self._go_on)

    def _answers(self, frames: list[bytes]) -> bytes:
        """Handle frames in order and join their answers. Frames in `_left` were not handled."""
        self._asked, self._made, self._left = iter(frames), 0, []
        if self.fast_paths:
            answers = self.fast_paths[0].take(self._asked, self._fallback(1))
        else:
            answers = [answer for frame in self._asked if (answer := self._take(frame)) is not None]
        return answers[0] if len(answers) == 1 else b"".join(answers)

    @property
    def answers_at_once(self) -> int:
        """Bytes of answers after which they are written, to see whether the peer reads them.

        The last answer may exceed it.
        """
        return self._peers.unread_max // _PARTS_UNREAD

    def made(self, size: int) -> None:
        """Count an answer of `size` bytes. Above `answers_at_once` the frames after it wait."""
        self._made += size
        if self._made >= self.answers_at_once:
            self._left += self._asked

    def _fallback(self, at: int) -> SlowPath:
        """Return a function that tries the fast paths from index `at` on, then the slow path."""
        if at >= len(self.fast_paths):
            return self._take
        return lambda frame: (
            b"".join(self.fast_paths[at].take([frame], self._fallback(at + 1))) or None
        )

    def _take(self, frame: bytes) -> bytes | None:
        """The slow path: decode a frame and handle it.

        :returns: the encoded answer; None if it comes later or never.
        """
        self._slow_frames += 1
        command = decode(frame, self._header_size_max)
        if command.is_response:
            waiting = self._calls.pop(command.opaque, None)
            if waiting is not None and not waiting.done():
                waiting.set_result(command)
            return None
        response = self._handle(command)
        if self._loop.time() >= self._turn_end:
            self._left += self._asked
        if response is None or command.is_one_way:
            return None
        answer = response if isinstance(response, bytes) else response.encode()
        self.made(len(answer))
        self._refuse_unheard(len(answer))
        return answer

    def _refuse_unheard(self, size: int) -> None:
        """Bound the answers of the side that opened the connection.

        A server stops reading from a peer that does not read. A client has to go on reading, since
        it waits for responses to its own requests.

        :raises PeerError: the peer sends requests and reads no answers.
        """
        if self._holds_back or not self._is_full:
            return
        self._unheard += size
        if self._unheard > self._peers.limits.answer_bytes_per_connection_max:
            raise PeerError(
                f"the peer sends requests and reads no answers, {self.unread} bytes are unread"
            )

    def failed(self, frame: bytes, error: Exception) -> bytes:
        """The encoded answer to a request that failed with `error`.

        :raises PeerError: `error` is one, or the frame cannot be decoded; the caller ends the
            connection.
        """
        return self.failure(decode(frame), error).encode()

    def _handle(self, request: Command) -> Answer:
        handler = self._handlers.get(request.code)
        if handler is None:
            code = ResponseCode.REQUEST_CODE_NOT_SUPPORTED
            return request.answer(code, f" request type {request.code} not supported")
        try:
            return handler(request, self)
        except Exception as error:
            return self.failure(request, error)

    def failure(self, request: Command, error: Exception) -> Command:
        """The answer to a request that failed with `error`; see `roquet.transport.failures`.

        :raises PeerError: `error` is one; the caller ends the connection.
        """
        return failure(request, error, self, self._peers)

    def answer_later(
        self, request: Command, work: Coroutine[Any, Any, Answer], kept: int = 0
    ) -> asyncio.Task[None]:
        """Run `work` as a task and send its result, or its error, as the answer.

        The task is cancelled if the connection ends first.

        :param kept: bytes that `work` holds in addition to the request.
        :raises Refused: too many bytes of the peer's requests wait for answers (`keep`).
        """
        size = _LATER_COST + kept + len(request.body) + sum(map(len, request.fields.values()))
        try:
            self.keep(size)
        except Refused:
            work.close()
            raise
        task = self._loop.create_task(self._answer_later(request, work))
        self._later.add(task)
        task.add_done_callback(partial(self._answered, size, work))
        return task

    def answer_in_order(self, request: Command, work: Coroutine[Any, Any, Answer]) -> None:
        """As `answer_later`, but later requests of the peer are handled after `work` has finished.

        A client's sends are thus stored in the order in which it sent them. Nothing is read from
        the peer meanwhile.

        :raises Refused: too many bytes of the peer's requests wait for answers (`keep`).
        """
        task = self.answer_later(request, work)
        self._is_waiting = True
        self._left += self._asked
        task.add_done_callback(self._answered_in_order)

    def _answered_in_order(self, task: asyncio.Task[None]) -> None:
        self._is_waiting = False
        self._go_on()

    def _answered(
        self, size: int, work: Coroutine[Any, Any, Answer], task: asyncio.Task[None]
    ) -> None:
        work.close()  # a task that was cancelled before its first step never started it
        self._later.discard(task)
        self.release(size)

    def keep(self, size: int) -> None:
        """Count `size` bytes of a request that is answered later. The caller must `release` them.

        :raises Refused: too many bytes of this peer's requests wait for answers.
        """
        if self._kept >= self._peers.limits.answer_bytes_per_connection_max:
            raise Refused(
                ResponseCode.SYSTEM_BUSY,
                f"[OVERLOAD]{self._kept} bytes of requests of {self.peer_address} "
                "wait for their answers already",
            )
        self._kept += size
        self._peers.passed(size)

    def release(self, size: int) -> None:
        """Undo `keep`, when the request was answered."""
        self._kept -= size

    async def _answer_later(self, request: Command, work: Coroutine[Any, Any, Answer]) -> None:
        try:
            answer = await work
            # An answer relayed from another client may not be encodable: that is its error (below).
            data = answer.encode() if isinstance(answer, Command) else answer
        except PeerError as error:
            remark = f"another client that was asked broke the protocol: {error}"
            data = request.answer(ResponseCode.SYSTEM_ERROR, remark).encode()
        except Exception as error:
            data = self.failure(request, error).encode()
        if data is not None and not request.is_one_way:
            try:
                self._refuse_unheard(len(data))
            except PeerError as error:
                self._broken(error)
            else:
                self.send(data)

    # frames out

    @property
    def is_open(self) -> bool:
        return self._transport is not None and not self._transport.is_closing()

    @property
    def is_writable(self) -> bool:
        """Whether the connection is open and the peer reads; notifications wait until it does."""
        return self.is_open and not self._is_full

    def send(self, data: bytes) -> None:
        """Write whole frames. On a closed connection they are dropped: its callers got an error."""
        if data and self._transport is not None and not self._transport.is_closing():
            self.last_active = self._loop.time()
            self._sent += len(data)
            self._transport.write(data)
            self._peers.passed(len(data))

    def _send_now(self, data: bytes) -> None:
        """Write at once: uvloop defers writes to the end of the turn while its buffer has room."""
        if data and self._transport is not None and self.is_open:
            self._transport.set_write_buffer_limits(high=0)
            self.send(data)
            if self.is_open:
                self._transport.set_write_buffer_limits(high=self._peers.unread_max)

    def notify(self, request: Command) -> None:
        """Send a one-way request."""
        request.flag |= ONE_WAY
        request.opaque = self._opaque()
        self.send(self._encode(request))

    async def call(self, request: Command, timeout_ms: int) -> Command:
        """Send a request and wait for its response, whatever its response code.

        :raises CallTimeout: no response within `timeout_ms`.
        :raises ConnectionClosed: the connection ended first.
        """
        frame, opaque = self._frame(request), request.opaque
        waiting = self._expect(opaque)
        self.send(frame)
        timer = self._loop.call_later(
            timeout_ms / 1000, self._expire, opaque, request.code, timeout_ms
        )
        try:
            return await waiting
        finally:
            timer.cancel()
            self._calls.pop(opaque, None)

    async def ask(self, request: Command, timeout_ms: int) -> Command:
        """As `call`, for requests made on behalf of another client.

        They are refused while the peer does not read: otherwise other clients could fill this
        server's memory with requests to it.

        :raises Refused: the peer does not read; the remark says how many bytes are unread.
        """
        self._refuse_unwritable()
        return await self.call(request, timeout_ms)

    def begin_to_ask(self, request: Command) -> asyncio.Future[Command]:
        """As `ask`, without waiting, so that a caller can ask thousands of peers and then wait.

        :returns: a future of the response. A caller that stops waiting must call `give_up`.
        :raises Refused: the peer does not read.
        :raises ConnectionClosed: the connection is closed.
        """
        self._refuse_unwritable()
        frame = self._frame(request)
        waiting = self._expect(request.opaque)
        self.send(frame)
        return waiting

    def give_up(self, request: Command) -> None:
        """Stop waiting for the response to `request` (`begin_to_ask`)."""
        self._calls.pop(request.opaque, None)

    def _refuse_unwritable(self) -> None:
        if self.is_open and not self.is_writable:
            raise Refused(ResponseCode.SYSTEM_BUSY, f"[OVERLOAD]{self.why_deaf}")

    @property
    def why_deaf(self) -> str:
        """Error text for a peer that does not read."""
        return f"client {self.peer_address} does not read, {self.unread} bytes wait for it"

    @property
    def unread(self) -> int:
        """Bytes that were sent and that the peer has not read (in the transport's buffer)."""
        return 0 if self._transport is None else self._transport.get_write_buffer_size()

    async def call_all(self, requests: Sequence[Command], timeout_ms: int) -> list[Command]:
        """Send requests by one write and wait for all responses: one timer and write, not one each.

        :returns: the responses, in the order of the requests.
        :raises CallTimeout: some responses did not come within `timeout_ms`.
        :raises ConnectionClosed: the connection ended first.
        """
        frames = b"".join([self._frame(request) for request in requests])
        waiting = [self._expect(request.opaque) for request in requests]
        self.send(frames)
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                return [await each for each in waiting]
        except TimeoutError:
            raise CallTimeout(
                f"{self.peer_address} did not answer {len(requests)} requests "
                f"within {timeout_ms} ms"
            ) from None
        finally:
            for request, each in zip(requests, waiting, strict=True):
                self._calls.pop(request.opaque, None)
                if not each.cancelled() and not each.cancel():
                    # The first future raised the error; reading the others' avoids a warning each.
                    each.exception()

    @property
    def unanswered(self) -> int:
        """Bytes of the peer's requests that are incomplete or not answered yet."""
        return len(self._frames.pending) + sum(map(len, self._held_back)) + self._kept

    def _frame(self, request: Command) -> bytes:
        """Give a request its opaque and encode it.

        :raises ConnectionClosed: the connection is closed.
        """
        if not self.is_open:
            raise ConnectionClosed(self._why_no_request())
        request.opaque = self._opaque()
        return self._encode(request)

    def _why_no_request(self) -> str:
        if self._next_opaque:
            return f"connection to {self.peer_address} is closed"
        return self._why_closed or self._loss(None)

    def _expect(self, opaque: int) -> asyncio.Future[Command]:
        waiting: asyncio.Future[Command] = self._loop.create_future()
        self._calls[opaque] = waiting
        return waiting

    def _expire(self, opaque: int, code: int, timeout_ms: int) -> None:
        waiting = self._calls.pop(opaque, None)
        if waiting is not None and not waiting.done():
            message = f"{self.peer_address} did not answer request {code} within {timeout_ms} ms"
            waiting.set_exception(CallTimeout(message))

    def _opaque(self) -> int:
        self._next_opaque = (self._next_opaque + 1) & 0x7FFFFFFF
        return self._next_opaque

    def close(self) -> None:
        if self._transport is not None:
            self._transport.close()

    def end(self) -> None:
        """Close; unsent answers are sent first, if the peer reads them within `END_S`."""
        if self._transport is not None:
            self._transport.close()
            self._loop.call_later(END_S, self.abort)

    def abort(self) -> None:
        """Close at once; unsent answers are dropped."""
        if self._transport is not None:
            self._transport.abort()

    # as one of many (`Peer`)

    def set_unread_max(self, size: int) -> None:
        if self._transport is not None and self.is_open:
            self._transport.set_write_buffer_limits(high=size)

    def held(self, now: float) -> tuple[int, int]:
        if self._transport is None:
            return 0, 0
        unread = self._transport.get_write_buffer_size()
        self._reading.look(self._sent, unread, now, self._peers.limits.idle_s)
        return unread, self.unanswered

    def still_s(self, now: float) -> tuple[float, float]:
        return now - self._reading.moved_at, now - self._heard_at

    def why_end(self, now: float) -> str:
        unread, _ = self.held(now)
        idle_s, partial_s = self._peers.limits.idle_s, self._peers.limits.partial_s
        is_silent = now - self.last_active >= idle_s
        if unread and (is_silent or self._reading.is_overdue(now, idle_s)):
            return f"the peer does not read, or too slowly, {unread} bytes are unread"
        partial = len(self._frames.pending)
        whole = self._frames.wanted
        if partial and now - self._frame_began >= partial_s + whole / SLOWEST:
            return f"a request stays incomplete, {partial} of {whole} bytes were received"
        return SILENT if is_silent else ""


Handler: TypeAlias = HandlerFor[Connection]
