"""Work that goes through thousands of things, a few ms at a time: others are served in between."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Final, TypeVar
from weakref import WeakKeyDictionary

from roquet.errors import Refused
from roquet.protocol.codes import ResponseCode
from roquet.protocol.command import Command
from roquet.steps import Steps
from roquet.transport.connection import Connection, Handler

T = TypeVar("T")

SLICE_S: Final = 0.004
"""With what else a turn of the loop does it stays below 10 ms."""
STEPS_MAX: Final = 1000
"""Of one slice, where the loop's clock stands still between two events, as a simulation's does."""
WAITING_MAX: Final = 32
"""So much work a connection may have under way; each answer may be large, and waits for nobody to read it."""


class Slices:
    """The long work of one server.

    Keeps: one slice of all work in a turn of the loop, at most; who waits gets the next one in the order of asking.
    """

    def __init__(self) -> None:
        self._turns = asyncio.Lock()
        self._waiting: WeakKeyDictionary[Connection, int] = WeakKeyDictionary()
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

    def handler(self, answer: Callable[[Command], Steps[Command]]) -> Handler:
        """What answers a request by long work.

        A connection with too much of it under way is told so by code 2: its peer is slower than it asks.
        """
        return partial(self._answer, answer)

    def _answer(self, answer: Callable[[Command], Steps[Command]], request: Command, connection: Connection) -> None:
        under_way = self._waiting.get(connection, 0)
        if under_way >= WAITING_MAX or not connection.is_writable:
            remark = f"[OVERLOAD]{under_way} requests of this client for long lists are under way, or it does not read"
            raise Refused(ResponseCode.SYSTEM_BUSY, remark)
        self._waiting[connection] = under_way + 1
        connection.answer_later(request, self._counted(answer(request), connection))

    async def _counted(self, work: Steps[Command], connection: Connection) -> Command:
        try:
            return await self.run(work)
        finally:
            self._waiting[connection] -= 1
