"""Runs long work in slices of a few ms, so that the event loop serves others in between."""

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
from roquet.transport.connection import Connection, Handler
from roquet.transport.handling import Answer

T = TypeVar("T")

SLICE_S: Final = 0.004
"""Seconds of one slice. A turn of the loop stays below 10 ms with it and its other work."""
STEPS_MAX: Final = 1000
"""Steps of one slice, for a loop whose clock stands still between events (simulation)."""
WAITING_MAX: Final = 32
"""Long requests of one connection that may be under way; each answer may be large."""
AT_ONCE: Final = 8
"""Long requests of all connections that may be started and not answered.

Each holds the part of its answer that is made, 7 MB for 50,000 topics. Requests of
`answer_in_order` have as many places of their own, so that lists do not hold up sends.
"""
STEPS_AT_ONCE: Final = 16
"""Steps that `answer_in_order` runs at once, about 1.6 ms: slices cost a task and waiting turns."""


@dataclass(slots=True)
class _Asked:
    """The long requests of one connection. One is worked on, the others wait for `turn`."""

    count: int = 0
    turn: asyncio.Lock = field(default_factory=asyncio.Lock)


class LongRequests:
    """Limits requests whose answers take long.

    Invariant: at most `AT_ONCE` of them are started and not answered, at most one per connection.
    """

    def __init__(self) -> None:
        self._places = asyncio.Semaphore(AT_ONCE)
        self._asked: WeakKeyDictionary[Connection, _Asked] = WeakKeyDictionary()

    def handler(self, answer: Callable[[Command], Coroutine[Any, Any, Command]]) -> Handler:
        """Return a handler that answers requests with `answer`, within the limits.

        A connection with `WAITING_MAX` of them under way gets SYSTEM_BUSY.
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
        connection.refuse_unwritable()
        connection.later.answer(request, self._in_turn(partial(answer, request), asked, connection))
        asked.count += 1

    async def _in_turn(
        self,
        work: Callable[[], Coroutine[Any, Any, Command]],
        asked: _Asked,
        connection: Connection,
    ) -> Command:
        try:
            async with asked.turn, self._places:
                connection.refuse_unwritable()
                answer = await work()
                # The answer may have megabytes: encoding them gets a turn of the loop of its own.
                await asyncio.sleep(0)
                return answer
        finally:
            asked.count -= 1


class Slices:
    """Runs the long work of one server.

    Invariant: at most one slice of all work runs per turn of the loop, in the order of asking.
    """

    def __init__(self) -> None:
        self._turns = asyncio.Lock()
        self._requests = LongRequests()
        self._in_order = asyncio.Semaphore(AT_ONCE)
        self.count = 0
        """Slices run so far."""

    async def run(self, work: Steps[T]) -> T:
        """Run `work` in slices and return (or raise) its result."""
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
        """Answer a request with `work`: at once if it takes few steps, otherwise in slices.

        Meanwhile later requests of the connection wait.

        :returns: the answer; None if it comes later.
        """
        try:
            for _ in range(STEPS_AT_ONCE):
                next(work)
        except StopIteration as end:
            answer: Answer = end.value
            return answer
        connection.dispatcher.answer_in_order(request, self._run_in_order(work))
        return None

    async def _run_in_order(self, work: Steps[T]) -> T:
        async with self._in_order:
            return await self.run(work)

    def handler(self, answer: Callable[[Command], Steps[Command]]) -> Handler:
        """Return a handler that answers requests by long work, within `LongRequests`' limits."""
        return self._requests.handler(lambda request: self.run(answer(request)))
