"""Work that goes through thousands of things, a few ms at a time: others are served in between."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final, TypeVar
from weakref import WeakKeyDictionary

from roquet.common.steps import Steps
from roquet.errors import Refused
from roquet.protocol.remoting.codes import ResponseCode
from roquet.protocol.remoting.command import Command
from roquet.transport.connection import Answer, Connection, Handler

T = TypeVar("T")

SLICE_S: Final = 0.004
"""With what else a turn of the loop does it stays below 10 ms."""
STEPS_MAX: Final = 1000
"""Of one slice, where the loop's clock stands still between two events, as a simulation's does."""
WAITING_MAX: Final = 32
"""So much work a connection may have waiting; each answer may be large."""
AT_ONCE: Final = 8
"""So many requests of all connections are begun and not answered: of each the part of the answer that is made is kept,
7 MB for 50,000 topics. Of requests whose order counts there are as many again: lists do not hold up sends."""
STEPS_AT_ONCE: Final = 16
"""Of a request whose order counts: 1.6 ms. A slice costs a task, and every turn of the loop that it waits."""


@dataclass(slots=True)
class _Asked:
    """The long requests of one connection; one has its turn, the others wait for it."""

    count: int = 0
    turn: asyncio.Lock = field(default_factory=asyncio.Lock)


class LongRequests:
    """Requests whose answers take long to make, or to come.

    Keeps: of all of them at most `AT_ONCE` are begun and not answered, and of one connection at most one.
    """

    def __init__(self) -> None:
        self._places = asyncio.Semaphore(AT_ONCE)
        self._asked: WeakKeyDictionary[Connection, _Asked] = WeakKeyDictionary()

    def handler(self, answer: Callable[[Command], Coroutine[Any, Any, Command]]) -> Handler:
        """What answers such a request.

        A connection with too many of them under way is told so by code 2: its peer is slower than it asks.
        """
        return partial(self._answer, answer)

    def _answer(
        self,
        answer: Callable[[Command], Coroutine[Any, Any, Command]],
        request: Command,
        connection: Connection,
    ) -> None:
        asked = self._asked.setdefault(connection, _Asked())
        if asked.count >= WAITING_MAX:
            remark = f"[OVERLOAD]{asked.count} requests of this client for long lists are under way"
            raise Refused(ResponseCode.SYSTEM_BUSY, remark)
        _refuse_deaf(connection)
        connection.answer_later(request, self._in_turn(partial(answer, request), asked, connection))
        asked.count += 1

    async def _in_turn(
        self,
        work: Callable[[], Coroutine[Any, Any, Command]],
        asked: _Asked,
        connection: Connection,
    ) -> Command:
        try:
            async with asked.turn, self._places:
                _refuse_deaf(connection)
                answer = await work()
                await asyncio.sleep(
                    0
                )  # it may have megabytes, and has a turn of the loop to go into its frame
                return answer
        finally:
            asked.count -= 1


class Slices:
    """The long work of one server.

    Keeps: one slice of all work in a turn of the loop, at most; who waits gets the next one in the order of asking.
    """

    def __init__(self) -> None:
        self._turns = asyncio.Lock()
        self._requests = LongRequests()
        self._in_order = asyncio.Semaphore(AT_ONCE)
        self.count = 0
        """Slices so far."""

    async def run(self, work: Steps[T]) -> T:
        """What `work` returns, or raises."""
        while True:
            async with self._turns:
                await asyncio.sleep(0)
                try:
                    self._take_steps(work)
                except StopIteration as end:
                    result: T = end.value
                    return result

    def _take_steps(self, work: Steps[T]) -> None:
        self.count += 1
        loop = asyncio.get_running_loop()
        end = loop.time() + SLICE_S
        for _ in range(STEPS_MAX):
            next(work)
            if loop.time() >= end:
                return

    def answer_in_order(
        self, work: Steps[Answer], request: Command, connection: Connection
    ) -> Answer:
        """The answer that `work` makes, now where that takes few steps. Else it comes later, and what its peer sends
        after the request waits until then.
        """
        try:
            for _ in range(STEPS_AT_ONCE):
                next(work)
        except StopIteration as end:
            answer: Answer = end.value
            return answer
        connection.answer_in_order(request, self._one_of(work))
        return None

    async def _one_of(self, work: Steps[T]) -> T:
        async with self._in_order:
            return await self.run(work)

    def handler(self, answer: Callable[[Command], Steps[Command]]) -> Handler:
        """What answers a request by long work; as `LongRequests`."""
        return self._requests.handler(lambda request: self.run(answer(request)))


def _refuse_deaf(connection: Connection) -> None:
    """:raises Refused: it does not read what it was sent, and is given no more."""
    if not connection.is_writable:
        raise Refused(ResponseCode.SYSTEM_BUSY, f"[OVERLOAD]{connection.why_deaf}")
