"""Gives the requests of one connection to their handlers or fast paths, and sends the answers.

See docs/storage/performance.md#a-read-is-handled-as-a-batch.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterator, Mapping
from math import inf
from typing import Any, Final, Generic, TypeVar

from roquet.errors import PeerError
from roquet.protocol.remoting.codes import ResponseCode
from roquet.protocol.remoting.command import HEADER_SIZE_MAX, Command, decode
from roquet.protocol.remoting.frame import FRAME_SIZE_MAX
from roquet.transport.calls import Calls
from roquet.transport.handling import Answer, FastPaths, HandlerFor
from roquet.transport.later_answers import LaterAnswers
from roquet.transport.wire import Wire

C = TypeVar("C", bound=Wire)

_TURN_BYTES: Final = 96 * 1024
"""Request bytes that one connection may have answered per turn of the loop. 64 senders of 2.5 KB
each were a tenth faster with this bound than with one write per read: those that get their answers
first send again while the others' requests are handled. While reads fill its buffer, uvloop reads
from one connection dozens of times before it serves another; after a read of this size it pauses.
"""
_TURN_S: Final = 0.004
"""Seconds that one connection may spend on the slow path per turn: some requests create a file."""
_UNREAD_PARTS: Final = 4
"""Part of a peer's unread bytes that is made before checking whether the peer reads: 1 / this.

One read may bring thousands of small requests for large answers.
"""
_FIRST_FRAMES: Final = 16
"""Frames of a new connection that take the slow path: they may teach its fast paths the others."""


class Dispatcher(Generic[C]):
    """Answers the frames of one connection in order, a part of them in each turn of the loop.

    A server's connection has turns, so that all connections are served: frames beyond its turn wait
    for the next one, and nothing is read meanwhile. The loop writes the answers between two turns.

    Bytes, time or answers end a turn; on a client's connection only answers do.

    Invariant: while there are frames in `_held`, or an answer in order is under way, frames that
    arrive are added to `_held`. `_connection` is None once the connection ended, so that neither
    keeps the other in memory.

    :param handlers: request code -> handler.
    :param calls: gets the responses.
    :param later: runs what is answered in order.
    """

    __slots__ = (
        "_asked",
        "_calls",
        "_connection",
        "_fast_paths",
        "_handlers",
        "_header_size_max",
        "_held",
        "_is_in_order",
        "_later",
        "_left",
        "_loop",
        "_made",
        "_peers",
        "_turn_bytes",
        "_turn_end",
        "_turn_s",
    )

    def __init__(
        self,
        connection: C,
        handlers: Mapping[int, HandlerFor[C]],
        fast_paths: FastPaths[C],
        calls: Calls,
        later: LaterAnswers,
    ) -> None:
        self._connection: C | None = connection
        self._handlers = handlers
        self._fast_paths = fast_paths
        self._calls = calls
        self._later = later
        self._loop = asyncio.get_running_loop()
        self._peers = connection.peers
        self._header_size_max = HEADER_SIZE_MAX if connection.is_server else FRAME_SIZE_MAX
        """A client accepts larger ones: a response may list the ids of a batch's messages."""
        self._turn_bytes = _TURN_BYTES if connection.is_server else inf
        self._turn_s = _TURN_S if connection.is_server else inf
        self._turn_end = inf
        """Loop time at which the turn is over."""
        self._asked: Iterator[bytes] = iter(())
        """Gives out the frames of the turn."""
        self._made = 0
        """Bytes of answers made in the turn so far."""
        self._left: list[bytes] = []
        """Frames that were not given out, since the turn was ended before."""
        self._held: list[bytes] = []
        """Frames that wait until the peer reads, for the next turn, or for an earlier request that
        must be answered first."""
        self._is_in_order = False
        """Whether an `answer_in_order` request is under way: no later request is handled."""

    # frames

    def received(self, frames: list[bytes], size: int, now: float) -> None:
        """Answer the frames of a read of `size` bytes at loop time `now`, or let them wait.

        :raises PeerError: the peer broke the protocol.
        """
        connection = self._connection
        if self._held or self._is_in_order or connection is None:
            self._held += frames
            return
        if frames:
            self._answer(connection, frames, size, now)
        if size > self._turn_bytes and not self._held:
            self._hold(connection, [])

    def go_on(self) -> None:
        """Answer frames that wait, then resume reading; nothing if they still have to wait."""
        connection = self._connection
        if connection is None or self._must_wait(connection):
            return
        frames, self._held = self._held, []
        if frames:
            try:
                self._answer(connection, frames, sum(map(len, frames)), self._loop.time())
            except PeerError as error:
                connection.broken(error)
        if connection.is_server and not self._held and not self._must_wait(connection):
            connection.resume_reading()

    def _must_wait(self, connection: C) -> bool:
        return self._is_in_order or connection.is_held_back or not connection.is_open

    def _answer(self, connection: C, frames: list[bytes], size: int, now: float) -> None:
        """Answer the frames, `size` bytes, as far as this turn allows; hold the rest."""
        rest: list[bytes] = []
        if size > self._turn_bytes:
            # The turns of one read get parts of equal length.
            count = -(-len(frames) // (1 + size // _TURN_BYTES))
            rest = frames[count:]
            frames = frames[:count]
        self._turn_end = now + self._turn_s
        self._made = 0
        self._asked = asked = iter(frames)
        if self._fast_paths.made:
            answers = self._fast_paths.take(asked, self._take)
        else:
            answers = self._by_slow_path(asked)
        took = self._loop.time() - now
        watch = self._peers.watch
        if took >= watch.notable_s:
            watch.held(took, connection.peer_address, frames)
        connection.send(answers[0] if len(answers) == 1 else b"".join(answers))
        if self._left:
            rest = self._left + rest
            self._left = []
        if rest or self._is_in_order:
            self._hold(connection, rest)

    def _hold(self, connection: C, frames: list[bytes]) -> None:
        """Let these frames wait for the next turn, or longer; read nothing meanwhile."""
        self._held = frames
        if frames:
            self._peers.passed(self.held_size)
            connection.pause_if_unread()
        if connection.is_server:
            connection.pause_reading()
        if not self._must_wait(connection):
            self._loop.call_soon(self.go_on)

    @property
    def held_size(self) -> int:
        """Bytes of the frames that wait."""
        return sum(map(len, self._held))

    def _end_turn(self) -> None:
        """Give out no more frames."""
        self._left += self._asked

    @property
    def answers_at_once(self) -> int:
        """Bytes of answers after which they are written, to see whether the peer reads them.

        The last answer may exceed it.
        """
        return self._peers.unread_max // _UNREAD_PARTS

    def made(self, size: int) -> None:
        """Count an answer of `size` bytes. Above `answers_at_once` the turn ends."""
        self._made += size
        if self._made >= self.answers_at_once:
            self._end_turn()

    def answer_in_order(self, request: Command, work: Coroutine[Any, Any, Answer]) -> None:
        """As `LaterAnswers.answer`, but later requests of the peer are handled after it.

        A client's sends are thus stored in the order in which it sent them. Nothing is read from
        the peer meanwhile.

        :raises Refused: too many bytes of the peer's requests wait for answers.
        """
        task = self._later.answer(request, work)
        self._is_in_order = True
        self._end_turn()
        task.add_done_callback(self._answered_in_order)

    def _answered_in_order(self, _: asyncio.Task[None]) -> None:
        self._is_in_order = False
        self.go_on()

    def _by_slow_path(self, frames: Iterator[bytes]) -> list[bytes]:
        """Answer frames by the slow path, and by the fast paths that it has made meanwhile."""
        answers: list[bytes] = []
        for number, frame in enumerate(frames, 1):
            answer = self._take(frame)
            if answer is not None:
                answers.append(answer)
            if self._fast_paths.made and number >= _FIRST_FRAMES:
                return answers + self._fast_paths.take(frames, self._take)
        return answers

    def _take(self, frame: bytes) -> bytes | None:
        """The slow path: decode a frame and handle it.

        :returns: the encoded answer; None if it comes later or never.
        """
        command = decode(frame, self._header_size_max)
        if command.is_response:
            self._calls.responded(command)
            return None
        connection = self._connection
        if connection is None:
            return None
        response = self._handled(command, connection)
        if self._loop.time() >= self._turn_end:
            self._end_turn()
        if response is None or command.is_one_way:
            return None
        answer = response if isinstance(response, bytes) else response.encode()
        self.made(len(answer))
        connection.count_answer(len(answer))
        return answer

    def _handled(self, request: Command, connection: C) -> Answer:
        handler = self._handlers.get(request.code)
        if handler is None:
            code = ResponseCode.REQUEST_CODE_NOT_SUPPORTED
            return request.answer(code, f" request type {request.code} not supported")
        try:
            return handler(request, connection)
        except Exception as error:
            return connection.failure(request, error)

    def ended(self) -> None:
        """Drop the frames that wait: the connection ended."""
        self._connection = None
        self._held.clear()
