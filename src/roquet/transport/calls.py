"""The requests that one side of a connection sends, and their responses."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from math import inf
from typing import Final

from roquet.errors import CallTimeout, ConnectionClosed
from roquet.protocol.remoting.command import ONE_WAY, Command
from roquet.transport.wire import Wire

_EARLY_S: Final = 0.001
"""Seconds by which a call may end before its time: loops round timers to ms, and calls that end at
nearly the same time are ended by one look at all of them."""


class Calls:
    """Sends requests over one connection, and waits for the responses.

    Nothing is allocated per request beyond the request itself: only a call that waits for its
    response has a future. All calls share one timer, since nearly every call ends before its time:
    it is set for the first deadline, and looks for the next one when it fires.

    Invariant: `waiting` holds exactly the requests that were sent and have no response yet.
    While the connection is open, no deadline of a waiting call is before `_timer_at`.
    `_wire` is None once the connection ended, so that neither keeps the other in memory.

    :param encode: encodes (and signs) a request that is sent.
    """

    __slots__ = (
        "_deadlines",
        "_encode",
        "_last_opaque",
        "_loop",
        "_timer",
        "_timer_at",
        "_why_ended",
        "_wire",
        "has_answered",
        "waiting",
    )

    def __init__(self, wire: Wire, encode: Callable[[Command], bytes]) -> None:
        self._wire: Wire | None = wire
        self._encode = encode
        self._loop = asyncio.get_running_loop()
        self.waiting: dict[int, asyncio.Future[Command]] = {}
        """The futures of responses, by opaque."""
        self._deadlines: dict[int, tuple[float, int, int]] = {}
        """Of `call`, by opaque: loop time at which it ends, request code, timeout in ms."""
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = inf
        """Loop time of the timer; `inf` if there is none."""
        self._last_opaque = 0
        self._why_ended = ""
        """Error text for calls after the connection ended."""
        self.has_answered = False
        """Whether the peer is known to have answered: over an earlier connection, as the owner of
        this one says, or over this one, once it ended."""

    def notify(self, request: Command) -> None:
        """Send a one-way request. On a closed connection it is dropped."""
        request.flag |= ONE_WAY
        request.opaque = self._opaque()
        if self._wire is not None:
            self._wire.send_soon(self._encode(request))

    async def call(self, request: Command, timeout_ms: int) -> Command:
        """Send a request and wait for its response, whatever its response code.

        :raises CallTimeout: no response within `timeout_ms`.
        :raises ConnectionClosed: the connection ended first.
        """
        wire = self._open_wire()
        opaque = request.opaque = self._opaque()
        frame = self._encode(request)
        self._send(wire, frame)
        waiting: asyncio.Future[Command] = self._loop.create_future()
        self.waiting[opaque] = waiting
        deadline = self._loop.time() + timeout_ms / 1000
        self._deadlines[opaque] = deadline, request.code, timeout_ms
        if deadline < self._timer_at:
            self._set_timer(deadline)
        try:
            return await waiting
        finally:
            self.waiting.pop(opaque, None)
            self._deadlines.pop(opaque, None)
            del waiting  # its error would refer to it, by the traceback: a cycle

    def _set_timer(self, deadline: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer_at = deadline
        self._timer = self._loop.call_at(deadline, self._expire)

    def _expire(self) -> None:
        """End the calls whose time is over, and set the timer for the next ones."""
        assert self._wire is not None  # `ended` cancels the timer
        address = self._wire.peer_address
        self._timer = None
        self._timer_at = inf
        over = self._loop.time() + _EARLY_S
        first = inf
        for opaque, (deadline, code, timeout_ms) in self._deadlines.items():
            if deadline > over:
                first = min(first, deadline)
                continue
            waiting = self.waiting.pop(opaque, None)
            if waiting is not None and not waiting.done():
                message = f"{address} did not answer request {code} within {timeout_ms} ms"
                waiting.set_exception(CallTimeout(message))
        if first < inf:
            self._set_timer(first)

    async def call_all(self, requests: Sequence[Command], timeout_ms: int) -> list[Command]:
        """Send requests by one write and wait for all responses: one timer and write, not one each.

        :returns: the responses, in the order of the requests.
        :raises CallTimeout: some responses did not come within `timeout_ms`.
        :raises ConnectionClosed: the connection ended first.
        """
        address = self._open_wire().peer_address
        waiting = self.begin(requests)
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                return [await each for each in waiting]
        except TimeoutError:
            raise CallTimeout(
                f"{address} did not answer {len(requests)} requests within {timeout_ms} ms"
            ) from None
        finally:
            for request, each in zip(requests, waiting, strict=True):
                self.waiting.pop(request.opaque, None)
                if not each.cancelled() and not each.cancel():
                    # The first future raised the error; reading the others' avoids a warning each.
                    each.exception()

    async def ask(self, request: Command, timeout_ms: int) -> Command:
        """As `call`, for requests made on behalf of another client.

        They are refused while the peer does not read: otherwise other clients could fill this
        server's memory with requests to it.

        :raises Refused: the peer does not read; the remark says how many bytes are unread.
        """
        if self._wire is not None:
            self._wire.refuse_unwritable()
        return await self.call(request, timeout_ms)

    def begin(self, requests: Sequence[Command]) -> list[asyncio.Future[Command]]:
        """Send requests by one write, without waiting.

        :returns: the futures of the responses, in the order of the requests.
        :raises ConnectionClosed: the connection is closed.
        """
        wire = self._open_wire()
        for request in requests:
            request.opaque = self._opaque()
        frames = b"".join([self._encode(request) for request in requests])
        began: dict[int, asyncio.Future[Command]] = {
            request.opaque: self._loop.create_future() for request in requests
        }
        self._send(wire, frames)
        self.waiting |= began
        return list(began.values())

    def begin_to_ask(self, request: Command) -> asyncio.Future[Command]:
        """As `ask`, without waiting, so that a caller can ask thousands of peers and then wait.

        :returns: a future of the response. A caller that stops waiting must call `give_up`.
        :raises Refused: the peer does not read.
        :raises ConnectionClosed: the connection is closed.
        """
        if self._wire is not None:
            self._wire.refuse_unwritable()
        (waiting,) = self.begin((request,))
        return waiting

    def give_up(self, request: Command) -> None:
        """Stop waiting for the response to `request` (`begin_to_ask`)."""
        self.waiting.pop(request.opaque, None)

    def responded(self, response: Command) -> None:
        """Give a response to the call that waits for it. Others are ignored: they came too late."""
        waiting = self.waiting.pop(response.opaque, None)
        if waiting is not None and not waiting.done():
            waiting.set_result(response)

    def ended(self, error: Exception | None) -> None:
        """Fail all calls: the connection ended, with `error` if it was not closed in order."""
        why = self._why_closed(error)
        self._why_ended = self._why_no_request() if self._last_opaque else why
        self._wire = None
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        calls, self.waiting = self.waiting, {}
        for waiting in calls.values():
            if not waiting.done():
                waiting.set_exception(ConnectionClosed(why))

    def _send(self, wire: Wire, frames: bytes) -> None:
        """Send requests that get responses.

        Calls under way are answered by few reads, and whoever waited for them may call again in one
        turn. A call alone gains nothing by waiting for the turn's end, which costs a turn. A call
        has its deadline until its caller goes on: so the first of many that were answered by one
        read does not take itself for alone, and all leave in one write.
        """
        if self.waiting or self._deadlines:
            wire.send_soon(frames)
        else:
            wire.send(frames)

    def _open_wire(self) -> Wire:
        """:raises ConnectionClosed: the connection is closed."""
        if self._wire is None or not self._wire.is_open:
            raise ConnectionClosed(self._why_no_request())
        return self._wire

    def _opaque(self) -> int:
        self._last_opaque = (self._last_opaque + 1) & 0x7FFFFFFF
        return self._last_opaque

    # error texts

    def _why_no_request(self) -> str:
        if self._wire is None:
            return self._why_ended
        if self._last_opaque:
            return f"connection to {self._wire.peer_address} is closed"
        return self._why_closed(None)

    def _why_closed(self, error: Exception | None) -> str:
        """Why the peer closed the connection: it does not say so, but may never have answered.

        Such a peer may require TLS. With TLS it may have refused the client certificate, which
        shows after the handshake. A peer that answered before has neither reason: it stopped. Nor
        has a peer without TLS that was sent nothing, or whose process died with requests unread,
        which resets the connection.
        """
        wire = self._wire
        if wire is None:
            return self._why_ended
        text = f"{wire.peer_address} closed the connection"
        if wire.is_server or len(self.waiting) < self._last_opaque:
            self.has_answered = True
        if self.has_answered or not wire.is_connected:
            return text
        if not wire.is_tls:
            if error is not None or not self._last_opaque:
                return f"{text} before it answered anything"
            return f"{text} before it answered anything: it may take TLS only (give tls, or useTLS)"
        why = f" ({error})" if error is not None else ""
        return (
            f"{text} right after the TLS handshake{why}: "
            "it may want another client certificate, or none is given"
        )
