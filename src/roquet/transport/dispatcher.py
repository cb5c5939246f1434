"""Gives the requests of one connection to their handlers or fast paths, and sends the answers.

See docs/storage/performance.md#a-read-is-handled-as-a-batch.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterator, Mapping
from math import inf
from typing import Any, Final, Generic, TypeAlias, TypeVar

from roquet.errors import PeerError
from roquet.protocol.remoting.codes import ResponseCode
from roquet.protocol.remoting.command import HEADER_SIZE_MAX, Command, decode
from roquet.protocol.remoting.frame import FRAME_SIZE_MAX
from roquet.transport.calls import Calls
from roquet.transport.handling import Answer, FastPath, HandlerFor, SlowPath
from roquet.transport.later_answers import LaterAnswers
from roquet.transport.wire import Wire

C = TypeVar("C", bound=Wire)
P = TypeVar("P", bound=FastPath)

FastPathMakers: TypeAlias = Mapping[type[FastPath], Callable[[C], FastPath]]
"""Makes the fast paths of a connection, by their types, in the order in which they are tried.

Only the first gets all frames of a read at once; later ones get frames one by one.
"""

_TURN_BYTES: Final = 96 * 1024
"""Request bytes that one connection may have answered per turn of the loop. 64 senders of 2.5 KB
each were a tenth faster with this bound than with one write per read: those that get their answers
first send again while the others' requests are handled. While reads fill its buffer, uvloop reads
from one connection dozens of times before it serves another; after a read of this size it pauses.
"""
_TURN_S: Final = 0.004
"""Seconds that one connection may spend on the slow path per turn: some requests create a file."""
_FIRST_FRAMES: Final = 16
"""Frames of a new connection that take the slow path: they may teach its fast paths the others."""
_UNREAD_PARTS: Final = 4
"""Part of a peer's unread bytes that is made before checking whether the peer reads: 1 / this.

One read may bring thousands of small requests for large answers.
"""


class Dispatcher(Generic[C]):
    """Answers the frames of one connection in order, a part of them in each turn of the loop.

    A server's connection has turns, so that all connections are served: frames beyond its turn's
    bytes, time or answers wait for the next one, and nothing is read meanwhile. The loop writes the
    answers between two turns.

    Invariant: while there are frames in `_held`, or an answer in order is under way, frames that
    arrive are added to `_held`. `_connection` is None once the connection ended; fast paths refer
    to it, too, and end with it: such cycles are rarely collected (`common.garbage`).

    :param handlers: request code -> handler.
    """

    __slots__ = (
        "_asked",
        "_calls",
        "_connection",
        "_fast_path_makers",
        "_fast_paths",
        "_handlers",
        "_header_size_max",
        "_held",
        "_is_in_order",
        "_later",
        "_left",
        "_loop",
        "_made",
        "_turn_bytes",
        "_turn_end",
        "_turn_s",
    )

    def __init__(
        self,
        connection: C,
        handlers: Mapping[int, HandlerFor[C]],
        fast_path_makers: FastPathMakers[C],
        calls: Calls,
        later: LaterAnswers,
    ) -> None:
        self._connection: C | None = connection
        self._handlers = handlers
        self._fast_path_makers = fast_path_makers
        self._calls = calls
        self._later = later
        self._loop = asyncio.get_running_loop()
        self._header_size_max = HEADER_SIZE_MAX if connection.is_server else FRAME_SIZE_MAX
        """A client accepts larger ones: a response may list the ids of a batch's messages."""
        self._fast_paths: tuple[FastPath, ...] = ()
        self._asked: Iterator[bytes] = iter(())
        """The frames that are being answered."""
        self._left: list[bytes] = []
        """Frames of `_asked` that were put back, since the turn is over."""
        self._made = 0
        """Bytes of their answers so far."""
        self._turn_bytes = _TURN_BYTES if connection.is_server else inf
        self._turn_s = _TURN_S if connection.is_server else inf
        self._turn_end = inf
        """Loop time at which the turn is over."""
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
        if self._held or self._is_in_order:
            self._held += frames
            return
        if frames:
            self._answer(frames, size, now)
        if size > self._turn_bytes and not self._held:
            self._hold([])

    def go_on(self) -> None:
        """Answer frames that wait, then resume reading; nothing if they still have to wait."""
        connection = self._connection
        if connection is None or self._must_wait(connection):
            return
        frames, self._held = self._held, []
        if frames:
            try:
                self._answer(frames, sum(map(len, frames)), self._loop.time())
            except PeerError as error:
                connection.broken(error)
        if connection.is_server and not self._held and not self._must_wait(connection):
            connection.resume_reading()

    def _must_wait(self, connection: C) -> bool:
        return self._is_in_order or connection.is_held_back or not connection.is_open

    def _answer(self, frames: list[bytes], size: int, now: float) -> None:
        """Answer the frames, `size` bytes, as far as this turn allows; hold the rest."""
        connection = self._connection
        if connection is None:
            return
        rest: list[bytes] = []
        if size > self._turn_bytes:
            parts = 1 + size // _TURN_BYTES
            count = -(-len(frames) // parts)
            rest = frames[count:]
            frames = frames[:count]
        self._turn_end = now + self._turn_s
        self._asked = iter(frames)
        self._made = 0
        if self._fast_paths:
            answers = self._fast_paths[0].take(self._asked, self._path_after(0))
        else:
            answers = self._by_slow_path()
        took = self._loop.time() - now
        watch = connection.peers.watch
        if took >= watch.notable_s:
            watch.held(took, connection.peer_address, frames, now + took)
        connection.send(answers[0] if len(answers) == 1 else b"".join(answers))
        if self._left:
            rest = self._left + rest
            self._left = []
        if rest or self._is_in_order:
            self._hold(rest)

    def _hold(self, frames: list[bytes]) -> None:
        """Let these frames wait for the next turn, or longer; read nothing meanwhile."""
        connection = self._connection
        if connection is None:
            return
        self._held = frames
        if frames:
            connection.peers.passed(self.held_size)
            connection.pause_if_unread()
        if connection.is_server:
            connection.pause_reading()
        if not self._must_wait(connection):
            self._loop.call_soon(self.go_on)

    @property
    def held_size(self) -> int:
        """Bytes of the frames that wait."""
        return sum(map(len, self._held))

    # answers

    @property
    def answers_at_once(self) -> int:
        """Bytes of answers after which they are written, to see whether the peer reads them.

        The last answer may exceed it.
        """
        connection = self._connection
        return 0 if connection is None else connection.peers.unread_max // _UNREAD_PARTS

    def made(self, size: int) -> None:
        """Count an answer of `size` bytes. Above `answers_at_once` the frames after it wait."""
        self._made += size
        if self._made >= self.answers_at_once:
            self._end_turn()

    def _end_turn(self) -> None:
        self._left += self._asked

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

    # paths

    def fast_path(self, kind: type[P]) -> P | None:
        """The fast path of this type, made when it is asked for first.

        Idle connections thus have none.

        :returns: None if connections of this server have no such fast path.
        """
        for path in self._fast_paths:
            if isinstance(path, kind):
                return path
        make = self._fast_path_makers.get(kind)
        if make is None or self._connection is None:
            return None
        made = make(self._connection)
        assert isinstance(made, kind)
        order = list(self._fast_path_makers)
        self._fast_paths = tuple(
            sorted((*self._fast_paths, made), key=lambda path: order.index(type(path)))
        )
        return made

    def _path_after(self, at: int) -> SlowPath:
        """A function that tries the fast paths behind index `at`, then the slow path."""
        if at + 1 == len(self._fast_paths):
            return self._take
        after = self._fast_paths[at + 1]
        return lambda frame: b"".join(after.take((frame,), self._path_after(at + 1))) or None

    def _by_slow_path(self) -> list[bytes]:
        """Answer frames by the slow path, and by the fast paths that it has made meanwhile."""
        answers: list[bytes] = []
        for number, frame in enumerate(self._asked, 1):
            answer = self._take(frame)
            if answer is not None:
                answers.append(answer)
            if self._fast_paths and number >= _FIRST_FRAMES:
                return answers + self._fast_paths[0].take(self._asked, self._path_after(0))
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
        """Drop the frames that wait, and the fast paths: the connection ended."""
        self._connection = None
        self._held.clear()
        self._fast_paths = ()
