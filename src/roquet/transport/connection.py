"""One TCP connection: frames in and out, answers matched to requests; either side may ask.

A read is a batch: every whole frame it brought is handled before one write takes all the answers out; a large read is
several batches, so that the peer has something to do meanwhile. Nothing is allocated per request beyond the request
itself; only a call that waits for its answer has a future.
"""

from __future__ import annotations

import asyncio
import logging
import os
import traceback
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from functools import partial
from math import inf
from typing import Any, Final, Protocol, TypeAlias, cast

from roquet.errors import NO_ROOM, CallTimeout, ConnectionClosed, PeerError, Refused, UnreadableFile
from roquet.protocol.records.record import host_bytes
from roquet.protocol.remoting.codes import ResponseCode
from roquet.protocol.remoting.command import HEADER_SIZE_MAX, ONE_WAY, Command, decode
from roquet.protocol.remoting.frame import FRAME_SIZE_MAX, FrameBuffer
from roquet.protocol.remoting.refusals import refusal
from roquet.transport.limits import SLOWEST
from roquet.transport.peers import SILENT, Peers
from roquet.transport.slow_reader import SlowReader

log = logging.getLogger(__name__)

Answer: TypeAlias = Command | bytes | None
"""What a handler gives back: a response, one already encoded, or None when it answers later or never."""
Handler: TypeAlias = Callable[[Command, "Connection"], Answer]

END_S: Final = 1.0
"""How long a peer may take to read its last answers."""
_ANSWERED_AT_ONCE: Final = 96 * 1024
"""Bytes of requests. Peers with 64 senders of 2.5 KB each were a tenth faster than when one write answered them all."""
_PARTS_UNREAD: Final = 4
"""What may wait for a peer is made in so many parts: thousands of small requests for a lot come in one read."""
_FIRST_FRAMES: Final = 16
"""By the first few frames of a connection its shortcuts are learnt, for the others that came with them."""
_GENERAL_COST: Final = 16
"""A request that goes the general way takes so many times as long as one that a shortcut takes."""
_LATER_COST: Final = 1024
"""Bytes that a request costs whose answer comes later, beside its own."""
_BYTES_PER_COST: Final = 4096
"""Bytes of large answers take as long as one request: they are copied three times."""
_TURN_S: Final = 0.004
"""So long the general way goes on with one connection's requests in one turn: some make a file each."""
_TURN_COST: Final = 4096
"""Of one connection's requests in one turn of the loop, a dozen milliseconds; what is left lets the others go first."""
_LARGE_READ: Final = 128 * 1024
"""Bytes. As long as reads fill its buffer uvloop goes on with a connection, dozens of times, before it sees another."""
_GONE: Final = ("0.0.0.0", 0)
"""The address of a peer that left before it was looked at; the end of its connection is on its way."""


_REMARK_MAX: Final = 1000
"""Characters of an error that a remark or a log line repeats: what a peer sent may be part of it."""


SlowPath: TypeAlias = Callable[[bytes], bytes | None]
"""What gives the encoded answer to a frame, None for one that comes later or never."""


class FastPath(Protocol):
    """A path that a handler learnt for one connection's usual requests."""

    def take(self, frames: Iterable[bytes], slow_path: SlowPath) -> list[bytes]:
        """The encoded answers to frames that came together; one that it does not know goes `slow_path`, in its turn.

        It answers its own errors (`Connection.failed`), and tells `Connection.made` of answers that may be large: by
        that the frames may end early.
        """
        ...


class Connection(asyncio.Protocol):
    """Keeps: `_calls` holds exactly the requests sent from here that have no answer yet.

    :param handlers: request code -> handler, for what the other side asks.
    :param on_open: told once the connection stands.
    :param on_closed: told once, when the connection is gone for whatever reason.
    :param holds_back: read no more requests while answers pile up; for one side only, else both could wait for ever.
    :param encode: gives the frame of a request that goes out from here; the place to sign it.
    :param peers: all connections that are bounded together; by itself without them.
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
        """A server's; its answers may have more, such as the ids of a batch's messages."""
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
        """Each gets what the one before does not know."""
        self.last_active = self._heard_at = self._frame_began = self._loop.time()
        self._sent = 0
        """Bytes given to the transport so far."""
        self._reading = SlowReader(self.last_active)
        self._is_full = False
        self._unheard = 0
        """Bytes of answers that were made for the peer since it does not read, where it is read from all the same."""
        self._asked: Iterator[bytes] = iter(())
        """The frames whose answers are being made, and how many bytes these have so far."""
        self._made = 0
        self._left: list[bytes] = []
        """Frames that have to wait, since the answers made are enough for now."""
        self._turn_end = inf
        """When the others are let go first, whatever is left of what came."""
        self._general = 0
        """Frames that went the general way so far."""
        self._frame_cost = _GENERAL_COST
        self._held_back: list[bytes] = []
        """Frames that wait: for the peer to read what it asked for, for the next turn, or for what is done in order."""
        self._is_waiting = False
        """Whether a request is under way whose order counts; no other one is begun."""
        self.on_writable: Callable[[], None] | None = None
        """Told once, when the peer reads again."""
        self._for_room: list[asyncio.Future[None]] = []
        """Those who wait to send more."""
        self.peer_address = self.peer_host_name = ""
        self.peer_host = b""
        """The peer as a record stores it: address and port."""
        self._why_closed = ""
        """Told to the first who asks, where the connection ended before anybody did."""

    # asyncio's side

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's is one in all but name
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
            return  # it is known (`is_lost`)
        loss = self._loss(exc)
        if not self._next_opaque:
            self._why_closed = loss
        self._transport = None
        self._held_back.clear()
        self.fast_paths.clear()  # they hold it, too: a cycle that nobody looks for (`roquet.common.garbage`)
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
        """Told by who gave up the attempt to connect. It may have succeeded in the same turn of the loop: uvloop then
        closes the transport, but does not call `connection_lost`, and the connection would count for ever.
        """
        self.connection_lost(None)

    def _loss(self, exc: Exception | None) -> str:
        """How to tell those who wait for answers. Brokers do not say why they end a connection: one that never gave a
        single answer may well want TLS, and with TLS it is the end of the handshake that it may not have liked.
        """
        text = f"{self.peer_address} closed the connection"
        is_heard = self._holds_back or len(self._calls) < self._next_opaque
        if is_heard or self._transport is None:
            return text
        if self._transport.get_extra_info("sslcontext") is None:
            return f"{text} before it answered anything: it may take TLS only (give tls, or useTLS)"
        why = f" ({exc})" if exc is not None else ""
        return f"{text} right after the TLS handshake{why}: it may want another client certificate, or none is given"

    def pause_writing(self) -> None:
        """The peer does not read what it asked for: it gets no more until it does."""
        self._is_full = True
        if self._holds_back and self._transport is not None and not self._transport.is_closing():
            self._transport.pause_reading()

    def resume_writing(self) -> None:
        self._is_full = False
        self._unheard = 0
        self._room()
        self._go_on()
        told, self.on_writable = (
            (self.on_writable, None) if self.is_writable else (None, self.on_writable)
        )
        if told is not None:
            told()

    def _room(self) -> None:
        waiting, self._for_room = self._for_room, []
        for each in waiting:
            if not each.done():
                each.set_result(None)

    async def room(self, timeout_ms: int) -> None:
        """Wait until the peer has read enough of what it was sent, or is gone.

        :raises CallTimeout: it has not by then.
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
        """Answer what was held back, and read again once that is done; who is gone is not answered."""
        if self._is_full or not self.is_open:
            return
        frames, self._held_back = self._held_back, []
        try:
            self._answer_in_parts(frames, len(frames))
        except PeerError as error:
            self._broken(error)
        is_done = not self._held_back and not self._is_full and not self._is_waiting
        if is_done and self._holds_back and self._transport is not None and self.is_open:
            self._frame_began = self._loop.time()  # it was not read meanwhile
            self._transport.resume_reading()

    # frames in

    def _answer_in_parts(self, frames: list[bytes], count_max: int) -> None:
        """Answer so many frames by one write, or fewer where answers are large or take long, for as long as the peer
        takes them and it is its turn.
        """
        if self._held_back or self._is_waiting:
            self._held_back += frames
            return
        left = _TURN_COST
        self._turn_end = self._loop.time() + _TURN_S if self._holds_back else inf
        while frames:
            count = max(
                1, min(count_max if self._general else _FIRST_FRAMES, left // self._frame_cost)
            )
            part, frames = (
                (frames, []) if len(frames) <= count else (frames[:count], frames[count:])
            )
            before = self._general
            began = self._loop.time()
            answers = self._answers(part)
            took = self._loop.time() - began
            if took >= self._peers.watch.notable_s:
                self._peers.watch.held(took, self.peer_address, part, began + took)
            taken = len(part) - len(self._left)
            frames = self._left + frames if self._left else frames
            cost = taken + (self._general - before) * _GENERAL_COST + self._made // _BYTES_PER_COST
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
        """Handle frames in order; all their answers end to end. Those in `_left` are not handled."""
        self._asked, self._made, self._left = iter(frames), 0, []
        if self.fast_paths:
            answers = self.fast_paths[0].take(self._asked, self._otherwise(1))
        else:
            answers = [answer for frame in self._asked if (answer := self._take(frame)) is not None]
        return answers[0] if len(answers) == 1 else b"".join(answers)

    @property
    def answers_at_once(self) -> int:
        """So many bytes of answers, and one answer more, are made for it before it is looked whether it takes them."""
        return self._peers.unread_max // _PARTS_UNREAD

    def made(self, size: int) -> None:
        """An answer of so many bytes was made; when they are many, the frames that came with it wait."""
        self._made += size
        if self._made >= self.answers_at_once:
            self._left += self._asked

    def _otherwise(self, at: int) -> SlowPath:
        """The way by the shortcuts from `at` on, and then the general one."""
        if at >= len(self.fast_paths):
            return self._take
        return lambda frame: (
            b"".join(self.fast_paths[at].take([frame], self._otherwise(at + 1))) or None
        )

    def _take(self, frame: bytes) -> bytes | None:
        """The general way of a frame; the answer, None for one that comes later or never."""
        self._general += 1
        command = decode(frame, self._header_size_max)
        if command.is_response:
            waiting = self._calls.pop(command.opaque, None)
            if waiting is not None and not waiting.done():
                waiting.set_result(command)
            return None
        response = self._handle(command)
        if self._loop.time() >= self._turn_end:
            self._left += self._asked
        if not response or command.is_one_way:
            return None
        answer = response if isinstance(response, bytes) else response.encode()
        self.made(len(answer))
        self._refuse_unheard(len(answer))
        return answer

    def _refuse_unheard(self, size: int) -> None:
        """
        :raises PeerError: the peer asks on and reads no answer. A server does not read from it meanwhile; who opened
            the connection has to, for what it asked itself.
        """
        if self._holds_back or not self._is_full:
            return
        self._unheard += size
        if self._unheard > self._peers.limits.answer_bytes_per_connection_max:
            raise PeerError(f"it asks on and reads no answer, {self.unread} bytes wait for it")

    def failed(self, frame: bytes, error: Exception) -> bytes:
        """The answer to a request that `error` ended; a one-way request gets none.

        :raises PeerError: `error` is one, or the frame breaks the protocol; either ends the connection.
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
        """The answer to a request that `error` ended: the one place where an error becomes a response code.

        :raises PeerError: the one that it is; the connection ends by it.
        """
        match error:
            case PeerError():
                raise error
            case Refused():
                return request.answer(error.code, error.remark)
            case ValueError():
                return request.answer(
                    ResponseCode.SYSTEM_ERROR, f"request {request.code}: {error}"[:_REMARK_MAX]
                )
            case UnreadableFile():
                pass  # told of, once, for all requests that meet it
            case OSError() if error.errno in NO_ROOM:
                self._peers.no_room(request.code, error)
                remark = f"request {request.code}: no room on this server's drive ({os.strerror(error.errno)})"
                return request.answer(ResponseCode.SYSTEM_ERROR, remark)
            case OSError():
                self._peers.failed(self, request.code, str(error))
            case _:
                self._peers.failed(self, request.code, _in_one_line(error))
                log.debug(
                    "request %s from %s failed", request.code, self.peer_address, exc_info=error
                )
        return request.answer(
            ResponseCode.SYSTEM_ERROR, f"{type(error).__name__}: {error}"[:_REMARK_MAX]
        )

    def answer_later(
        self, request: Command, work: Coroutine[Any, Any, Answer], kept: int = 0
    ) -> asyncio.Task[None]:
        """Answer with what `work` comes to, or with its error; it is cancelled when the connection ends first.

        :param kept: bytes that `work` keeps beside the request.
        :raises Refused: as `keep` does.
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
        """As `answer_later`; what the peer sent after the request is handled after that: its sends are stored in its
        order. Nothing more is read from it meanwhile.

        :raises Refused: as `keep` does.
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
        work.close()  # a task that is cancelled before it began has never come to it
        self._later.discard(task)
        self.release(size)

    def keep(self, size: int) -> None:
        """So many bytes of a request stay here until its answer, when they are to be released.

        :raises Refused: so much of this peer waits for answers that nothing more of it can be kept.
        """
        if self._kept >= self._peers.limits.answer_bytes_per_connection_max:
            remark = f"[OVERLOAD]{self._kept} bytes of requests of {self.peer_address} wait for their answers already"
            raise Refused(ResponseCode.SYSTEM_BUSY, remark)
        self._kept += size
        self._peers.passed(size)

    def release(self, size: int) -> None:
        self._kept -= size

    async def _answer_later(self, request: Command, work: Coroutine[Any, Any, Answer]) -> None:
        try:
            answer = await work
            data = (
                answer.encode() if isinstance(answer, Command) else answer
            )  # another client's may have no such form
        except PeerError as error:
            remark = f"somebody who was asked broke the protocol: {error}"
            data = request.answer(ResponseCode.SYSTEM_ERROR, remark).encode()
        except Exception as error:
            data = self.failure(request, error).encode()
        if data and not request.is_one_way:
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
        """Open, and the peer reads what it is sent: what is sent of our own accord can wait until it does."""
        return self.is_open and not self._is_full

    def send(self, data: bytes) -> None:
        """Write whole frames; to a connection that is gone they are dropped, its callers know already."""
        if data and self._transport is not None and not self._transport.is_closing():
            self.last_active = self._loop.time()
            self._sent += len(data)
            self._transport.write(data)
            self._peers.passed(len(data))

    def _send_now(self, data: bytes) -> None:
        """Write without waiting for the end of the loop's turn, which uvloop does as long as its buffer has room."""
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
        """Send a request and wait for its response, of whatever code.

        :raises CallTimeout: no answer within `timeout_ms`.
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
        """As `call`, for what others want of this peer: of one that does not read nothing more is kept for it here.

        :raises Refused: it does not read; says how much waits for it.
        """
        self._refuse_deaf()
        return await self.call(request, timeout_ms)

    def begin_to_ask(self, request: Command) -> asyncio.Future[Command]:
        """As `ask`, for who asks thousands of peers and then waits for all of them: sends, and gives what the response
        comes to, or the end of the connection. Who does not wait any more tells it by `give_up`.
        """
        self._refuse_deaf()
        frame = self._frame(request)
        waiting = self._expect(request.opaque)
        self.send(frame)
        return waiting

    def give_up(self, request: Command) -> None:
        """Nobody waits for the answer any more."""
        self._calls.pop(request.opaque, None)

    def _refuse_deaf(self) -> None:
        if self.is_open and not self.is_writable:
            raise Refused(ResponseCode.SYSTEM_BUSY, f"[OVERLOAD]{self.why_deaf}")

    @property
    def why_deaf(self) -> str:
        """What to say of a peer that is not writable."""
        return f"client {self.peer_address} does not read, {self.unread} bytes wait for it"

    @property
    def unread(self) -> int:
        """Bytes that were sent and not taken by the peer."""
        return 0 if self._transport is None else self._transport.get_write_buffer_size()

    async def call_all(self, requests: Sequence[Command], timeout_ms: int) -> list[Command]:
        """Send requests by one write and wait for the responses to all of them, for a fraction of what calls cost.

        :raises CallTimeout: not all of them came within `timeout_ms`.
        :raises ConnectionClosed: the connection ended first.
        """
        frames = b"".join([self._frame(request) for request in requests])
        waiting = [self._expect(request.opaque) for request in requests]
        self.send(frames)
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                return [await each for each in waiting]
        except TimeoutError:
            message = f"{self.peer_address} did not answer {len(requests)} requests within {timeout_ms} ms"
            raise CallTimeout(message) from None
        finally:
            for request, each in zip(requests, waiting, strict=True):
                self._calls.pop(request.opaque, None)
                if not each.cancelled() and not each.cancel():
                    each.exception()  # the connection's end is told to each, and once is enough

    @property
    def unanswered(self) -> int:
        """Bytes of the peer's requests that are not whole, or not answered."""
        return len(self._frames.pending) + sum(map(len, self._held_back)) + self._kept

    def _frame(self, request: Command) -> bytes:
        """A request that gets a number, as it goes out.

        :raises ConnectionClosed: there is nowhere to go any more.
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
        """Close; what waits goes out to a peer that takes it within `END_S`, one that does not is not waited for."""
        if self._transport is not None:
            self._transport.close()
            self._loop.call_later(END_S, self.abort)

    def abort(self) -> None:
        """Close at once, without sending what still waits."""
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
            return f"it does not read, or too slowly unread={unread}"
        half, whole = len(self._frames.pending), self._frames.wanted
        if half and now - self._frame_began >= partial_s + whole / SLOWEST:
            return f"its request does not come to an end, or too slowly bytes={half} of={whole}"
        return SILENT if is_silent else ""


def _in_one_line(error: Exception) -> str:
    """What it is and where it was raised; the rest is for who debugs."""
    frames = traceback.extract_tb(error.__traceback__)
    where = f" at {frames[-1].filename.rpartition('/')[2]}:{frames[-1].lineno}" if frames else ""
    text = " ".join(f"{type(error).__name__}: {error}".split())
    return f"{text[:_REMARK_MAX]}{where}"


def checked(
    response: Command, address: str, accepted: Iterable[int] = (ResponseCode.SUCCESS,)
) -> Command:
    """The response itself.

    :raises ResponseError: its code is not among those accepted.
    """
    if response.code not in accepted:
        raise refusal(response, address)
    return response
