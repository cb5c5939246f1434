"""A limit on how many do something at a time; the others wait in the order in which they came."""

from __future__ import annotations

import asyncio
from collections import deque
from types import TracebackType


class FifoSemaphore:
    """Keeps: at most `count_max` are inside `async with turns`.

    asyncio's own semaphore looks at every waiter whenever one leaves, which ten thousand sends at once would feel.
    """

    def __init__(self, count_max: int) -> None:
        self._free = count_max
        self._waiting: deque[asyncio.Future[None]] = deque()

    async def __aenter__(self) -> None:
        if self._free:
            self._free -= 1
            return
        turn = asyncio.get_running_loop().create_future()
        self._waiting.append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self._leave()
            raise

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._leave()

    def _leave(self) -> None:
        while self._waiting:
            turn = self._waiting.popleft()
            if not turn.done():
                turn.set_result(None)
                return
        self._free += 1
